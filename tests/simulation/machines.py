"""The simulated engine: it launches machines, shares the host, takes capacity away, and speaks to the agents.

A small spot market of two types: what is launched there goes away after a notice now and then, or suddenly, and
sometimes cannot be had at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation.agents import HOST, Agent, a_machine
from tests.simulation.gpus import devices_of
from tests.simulation.post_commit_tasks import POST_COMMIT_TASKS
from tests.simulation.store import BrokenPromise
from windfall.capacity.environments import RECLAIMABLE, ComputeEnvironment
from windfall.capacity.machines import GpuDevice, Offer
from windfall.control.events import (
    AgentConnected,
    DevicesChanged,
    InstanceLaunchFailed,
    InstanceLost,
    InstanceReady,
    InterruptionNoticed,
    RebalanceRecommended,
)
from windfall.control.instructions import (
    Instruction,
    LaunchInstance,
    TerminateInstance,
)
from windfall.jobs.gpus import held_part
from windfall.jobs.ids import AttemptToken, InstanceId, MachineId
from windfall.jobs.resources import NOTHING, Resources

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["HOST", "Agent", "Engine"]

HOST_SIZE = Resources(4, 8192, 2)
#: Type, size, price on demand and how safe it is on the spot market.
TYPES = (
    ("cloud.large", Resources(4, 8192, 1), 360.0, 1.0),
    ("cloud.small", Resources(2, 4096, 0), 120.0, 3.0),
)
SPOT_FACTOR = 0.25


class Engine:
    """Launches machines for cloud environments, shares the host among the others, and remembers what was lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.agents: dict[MachineId, Agent] = {}
        #: Where each instance that exists is.
        self.places: dict[InstanceId, MachineId] = {}
        self.lost: list[InstanceId] = []
        #: Launches that are under way.
        self.coming: set[InstanceId] = set()
        #: Which agent spoke of an attempt last, for instructions that name no instance.
        self.spoke: dict[AttemptToken, Agent] = {}
        #: What the daemon has last heard of each machine's devices.
        self._told_devices: dict[MachineId, tuple[GpuDevice, ...]] = {}
        self.trouble = False
        #: Instances that have notice, and until when.
        self.noticed: dict[InstanceId, int] = {}
        self.sizes: dict[InstanceId, Resources] = {}

    def add_host(self) -> None:
        """The machine that is always there."""
        self.agents[HOST] = self.world.parts.agent(self.world, a_machine(HOST, HOST_SIZE))
        self.agents[HOST].connect()

    def offers(self, environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """A share of the host, or machines of its own."""
        if environment.name.startswith("cloud"):
            factor = SPOT_FACTOR if environment.provisioning in RECLAIMABLE else 1.0
            left = max(0, 3 - len(self.places)) if self.trouble else None
            return tuple(
                Offer(
                    name,
                    size,
                    left,
                    None,
                    price * factor,
                    price,
                    safety,
                    devices_of(name, int(size.gpus)),
                )
                for name, size, price, safety in TYPES
            )
        return (Offer("host", HOST_SIZE, 1, HOST),)

    def carry_out(self, instructions: list[Instruction]) -> None:
        """Begin to do these."""
        for instruction in instructions:
            self.world.note("  ->", instruction)
            if isinstance(instruction, LaunchInstance):
                self._launch(instruction)
            elif isinstance(instruction, TerminateInstance):
                self._terminate(instruction.instance)
            elif isinstance(instruction, POST_COMMIT_TASKS):
                self.world.post_commit_tasks.carry_out(instruction)
            else:
                agent = self._agent_for(instruction)
                if agent is not None:
                    agent.down(instruction)

    def _agent_for(self, instruction: Any) -> Agent | None:
        if instruction.instance is not None:
            machine = self.places.get(instruction.instance)
            return None if machine is None else self.agents[machine]
        return self.spoke.get(instruction.token)

    def _launch(self, launch: LaunchInstance) -> None:
        if launch.instance in self.places:
            self._ready(launch.instance)
        elif launch.instance not in self.coming:
            self.coming.add(launch.instance)
            self.sizes[launch.instance] = launch.offer.resources
            self.world.after(self.world.delay(50, 3000), lambda: self._launched(launch))

    def _launched(self, launch: LaunchInstance) -> None:
        if launch.instance not in self.coming:
            return
        self.coming.discard(launch.instance)
        if self.world.fault(0.2):
            self.world.daemon.report(InstanceLaunchFailed(launch.instance, "simulated shortage"))
            return
        machine = HOST
        if launch.environment.startswith("cloud"):
            machine = MachineId(f"m-{launch.instance}")
            size = self.sizes[launch.instance]
            self.agents[machine] = self.world.parts.agent(self.world, a_machine(machine, size))
            self.agents[machine].connect()
        self.places[launch.instance] = machine
        self._ready(launch.instance)

    def _ready(self, instance: InstanceId) -> None:
        self.world.daemon.report(InstanceReady(instance, self.agents[self.places[instance]].machine))

    def _terminate(self, instance: InstanceId) -> None:
        self.coming.discard(instance)
        machine = self.places.pop(instance, None)
        if machine is not None and machine != HOST:
            if any(self.world.processes_on(machine)):
                raise BrokenPromise(f"instance {instance} was terminated while a job ran on it")
            self.agents[machine].lose_machine()

    def give_notice(self, instance: InstanceId) -> None:
        """The market wants an instance back: what is still there at the deadline is lost."""
        if instance in self.noticed or instance not in self.places or self.places[instance] == HOST:
            return
        if self.world.rng.random() < 0.3:
            self.world.daemon.report(RebalanceRecommended(instance))
        self.noticed[instance] = deadline_at = self.world.now + self.world.delay(0, 8000)
        self.world.note("notice to", instance)
        self.world.daemon.report(InterruptionNoticed(instance, deadline_at))
        self.world.at(deadline_at, lambda: self.lose(instance) if instance in self.places else None)

    def sicken_or_heal(self, agent: Agent) -> None:
        """A device of a machine falls ill, badly or not, or gets well again."""
        if agent.machine.gpus:
            gpu = self.world.rng.choice(agent.machine.gpus)
            fence = "XID 79 (simulated)" if gpu.fence is None else None
            sick = replace(gpu, fence=fence, evacuate=fence is not None and self.world.rng.random() < 0.5)
            self._change(agent, tuple(sick if one is gpu else one for one in agent.machine.gpus))

    def heal_all(self) -> None:
        """Every device is well."""
        for agent in self.agents.values():
            self._change(agent, tuple(replace(gpu, fence=None, evacuate=False) for gpu in agent.machine.gpus))

    def _change(self, agent: Agent, gpus: tuple[GpuDevice, ...]) -> None:
        if gpus != agent.machine.gpus:
            self.world.disturbances += 1
            agent.machine = replace(agent.machine, gpus=gpus)
            agent.tell_devices()

    def lose(self, instance: InstanceId) -> None:
        """An instance goes away by itself; a shared host reboots, and all its instances with it."""
        machine = self.places[instance]
        self.world.disturbances += 1
        self.agents[machine].lose_machine()
        gone = [one for one, place in self.places.items() if place == machine]
        for one in gone:
            del self.places[one]
            self.lost.append(one)
            self.world.after(self.world.delay(0, 2000), self._telling_loss(one))
        if machine == HOST:
            self.world.after(self.world.delay(500, 3000), self._reboot_host)

    def _telling_loss(self, instance: InstanceId) -> Callable[[], None]:
        def tell() -> None:
            self.world.disturbances += 1
            self.world.daemon.report(InstanceLost(instance))

        return tell

    def _reboot_host(self) -> None:
        host = self.agents[HOST]
        if host.machine_alive:
            return
        if self.world.fault(0.5):
            self.world.note("the disk of", HOST, "is lost, and the journal with it")
            self.world.ran.difference_update(AttemptToken(token) for token in host.journal)
            host.journal.clear()
        host.boot()

    def on_report(self, agent: Agent, report: Any) -> None:
        """Pass on what an agent says."""
        if isinstance(report, AgentConnected):
            self._hear_of_devices(report.machine.id, report.machine.gpus)
            for part in (*report.running, *report.ended):
                self.spoke[part.token] = agent
        elif isinstance(report, DevicesChanged):
            self._hear_of_devices(report.machine, report.gpus)
        else:
            self.spoke[report.token] = agent
        self.world.daemon.report(report)

    def on_repeated(self, _agent: Agent, report: Any) -> None:
        """Pass on what an agent has said before, late."""
        self.world.daemon.report(report)

    def instances(self) -> dict[InstanceId, MachineId]:
        """The instances that exist, and where."""
        return self.places

    def lasting_machines(self) -> set[MachineId]:
        """The machines that the daemon may know without an instance on them."""
        return {HOST}

    def _hear_of_devices(self, machine: MachineId, gpus: tuple[GpuDevice, ...]) -> None:
        """What the daemon has planned for a device that fell ill while the connection was broken comes to nothing."""
        if self._told_devices.get(machine) != gpus:
            self._told_devices[machine] = gpus
            self.world.disturbances += 1

    def on_daemon_started(self) -> None:
        """Say again what exists and what was lost: the reports may have died with the daemon."""
        self.spoke.clear()
        for instance in self.lost:
            self.world.daemon.report(InstanceLost(instance))
        for instance in self.places:
            self._ready(instance)
            if instance in self.noticed:
                self.world.daemon.report(InterruptionNoticed(instance, self.noticed[instance]))
        for agent in self.agents.values():
            agent.connection = None
            self.world.after(self.world.delay(0, 500), agent.connect)

    def used_on(self, machine: MachineId) -> Resources:
        """What the processes on a machine really use."""
        used = NOTHING
        for start in self.world.processes_on(machine):
            share = start.gpu_share
            used = used + (
                start.resources if share is None else replace(start.resources, gpus=held_part(share))
            )
        return used
