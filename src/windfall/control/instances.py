"""How an instance leaves, and how its size follows: it is forgotten, and with it the machine that was its own.

A machine that several environments share stays known, and so does one whose agent has spoken before it had an instance.
Instances that share a machine follow the machine's size, which changes when its agent is started with other settings,
and their environment's maxvCpus. What runs is not touched; an instance that became smaller than what it holds takes
nothing new until enough has ended.
"""

from __future__ import annotations

from windfall.capacity.machines import Instance, InstanceState, largest_claim
from windfall.control.instructions import TerminateInstance
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.ids import InstanceId, MachineId


def remove_instance(state: State, instance_id: InstanceId, round_: Round) -> None:
    """Forget an instance on which nothing runs any more."""
    instance = state.instances.pop(instance_id)
    state.occupancy.instances.pop(instance_id, None)
    round_.changes.instances[instance_id] = None
    state.unsettled = True
    if instance.machine is not None and not instance.is_share:
        forget_machine(state, instance.machine, round_)


def forget_machine(state: State, machine: MachineId, round_: Round) -> None:
    """Forget a machine that has no instance left, unless instances come and go there as shares of it."""
    if machine in state.shared_machines or any(
        instance.machine == machine for instance in state.instances.values()
    ):
        return
    state.gone_machines[machine] = round_.now
    if machine in state.machines:
        del state.machines[machine]
        state.occupancy.machines.pop(machine, None)
        round_.changes.machines[machine] = None


def let_go(state: State, instance_id: InstanceId, round_: Round) -> None:
    """Have an instance terminated that nobody needs any more."""
    remove_instance(state, instance_id, round_)
    round_.instructions.append(TerminateInstance(instance_id))


def let_go_if_left(state: State, instance: Instance, round_: Round) -> None:
    """Have an instance terminated that is to go and that the last attempt has left."""
    use = state.occupancy.instances.get(instance.id)
    if instance.state is InstanceState.TERMINATING and (use is None or not use.holds):
        let_go(state, instance.id, round_)


def resize_instances(state: State, round_: Round) -> None:
    """Give every such instance its present size."""
    for instance in state.instances.values():
        machine = state.machines.get(instance.machine) if instance.machine is not None else None
        environment = state.environments.get(instance.environment)
        if not instance.is_share or machine is None or environment is None:
            continue
        total = largest_claim(machine.total, environment.max_vcpus)
        if total != instance.total:
            instance.total = total
            round_.changes.instances[instance.id] = instance
            state.unsettled = True
