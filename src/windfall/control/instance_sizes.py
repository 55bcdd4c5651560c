"""Instances that share a machine follow the machine's size and their environment's maxvCpus.

A machine changes when its agent is started with other settings, and maxvCpus when the environment is updated. What runs
is not touched; an instance that became smaller than what it holds takes nothing new until enough has ended.
"""

from __future__ import annotations

from windfall.capacity.machines import largest_claim
from windfall.control.round import Round
from windfall.control.state import State


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
