"""The engine of a Ray cluster: its nodes are machines, and its autoscaled groups are types that can be launched.

Lets the fleet follow what the cluster says (translation.py), and makes an instance of a group a hold: an actor that has
the node, for which the autoscaler launches one. Letting go of it returns the node. Decides nothing about attempts,
which are the fleet's, and keeps nothing durable: holds are named by their instances and outlive bridge and daemon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.settings import AgentSettings
from windfall.capacity import labels as machine_labels
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import InstanceState, Offer
from windfall.control.events import InstanceLaunchFailed, InstanceReady
from windfall.control.instructions import Instruction, LaunchInstance, TerminateInstance
from windfall.control.ports import Holdings, Sink
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.settings import FleetSettings
from windfall.engines.fleet.standing import Provider, Standing
from windfall.engines.ray.bridge_client import BridgeSettings, RayBridge
from windfall.engines.ray.lines import (
    ClusterLine,
    Gone,
    Groups,
    Head,
    Held,
    Hello,
    LaunchableGroup,
    Launches,
    NodesSeen,
    Unheld,
    for_people,
)
from windfall.engines.ray.reach import DoorReach, DoorShell
from windfall.engines.ray.translation import (
    HeldInstances,
    RayMachine,
    RayNodes,
    labels_of,
    resources_of,
    selector_of,
)
from windfall.jobs.ids import InstanceId, MachineId

log = logging.getLogger(__name__)

#: How often graces and deadlines are looked at while the cluster says nothing.
_FOLLOW_S = 1.0


@dataclass(frozen=True, slots=True)
class RaySettings:
    """How the cluster is reached, how its machines are judged, and what their agents are told."""

    bridge: BridgeSettings
    fleet: FleetSettings
    agent: AgentSettings


class RayEngine(FleetEngine):
    """The machines of one Ray cluster."""

    def __init__(
        self,
        sink: Sink,
        files: AttemptDirectory,
        epoch: int,
        settings: RaySettings,
        clock_ms: Callable[[], int],
        *,
        leased: bool = False,
    ) -> None:
        super().__init__(sink, files, epoch, settings.fleet, leased=leased)
        self._ray = settings
        self._clock_ms = clock_ms
        self._cluster = RayNodes()
        self._held = HeldInstances()
        self._bridge = RayBridge(settings.bridge, self._on_line)
        self._shell = DoorShell(self._bridge, self._cluster.node_at)
        #: What the fleet last heard about each machine.
        self._followed: dict[str, RayMachine] = {}
        self._removing: dict[str, asyncio.Task[None]] = {}
        self._silent_groups: set[str] = set()

    # What the core asks ---------------------------------------------------------------------------------

    @property
    def away(self) -> str | None:
        """Why the cluster cannot be used, or which of its machines do not answer."""
        if not self._bridge.stands.is_set():
            return self._bridge.trouble or "the bridge to the Ray cluster is being started"
        return super().away

    def adopt(self, holdings: Holdings) -> None:
        """Know again which instances came by holds; those that were being launched go on waiting."""
        super().adopt(holdings)
        for instance in holdings.instances:
            if not instance.is_share:
                self._held.want(instance.id, instance.type, self._clock_ms())
                if instance.state is not InstanceState.LAUNCHING:
                    self._held.ready(instance.id)

    def offers(self, environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """Machines that nobody launched, and the groups that can be launched."""
        own = {name for name, machine in self._followed.items() if self._cluster.is_launched(machine)}
        shared = [
            offer
            for offer in super().offers(environment)
            if (member := self._machines.member_of(offer.machine)) is not None and member.name not in own
        ]
        groups = [
            offer
            for group in self._cluster.groups.values()
            if machine_labels.chooses(environment, labels_of(group.labels, group.name))
            if (offer := self._offer_of(group)) is not None
        ]
        return (*shared, *groups)

    def _offer_of(self, group: LaunchableGroup) -> Offer | None:
        resources = resources_of(group)
        if resources is None:
            if group.name not in self._silent_groups:
                self._silent_groups.add(group.name)
                log.warning(
                    "the Ray node group %s cannot be used: its configuration does not say its CPU and memory;"
                    " add both to its resources (memory in bytes)",
                    group.name,
                )
            return None
        taken = sum(1 for entry in self._held.held.values() if entry.group == group.name)
        available = None if group.most is None else max(0, group.most - taken)
        return Offer(group.name, resources, available)

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Make and release holds; the rest is the fleet's."""
        rest: list[Instruction] = []
        for instruction in instructions:
            if isinstance(instruction, LaunchInstance) and instruction.offer.machine is None:
                self._hold(instruction.instance, instruction.offer.type)
            else:
                rest.append(instruction)
                if isinstance(instruction, TerminateInstance):
                    self._release(instruction.instance)
        super().carry_out(rest)

    # Holds ----------------------------------------------------------------------------------------------

    def _hold(self, instance: InstanceId, group: str) -> None:
        if group not in self._cluster.groups and self._bridge.stands.is_set():
            self._fail(instance, f"InvalidParameterValue: the Ray cluster has no node group {group} any more")
            return
        self._held.want(instance, group, self._clock_ms())
        self._send_hold(instance)

    def _send_hold(self, instance: InstanceId) -> None:
        entry = self._held.held[instance]
        group = self._cluster.groups.get(entry.group)
        if entry.is_ready:
            # A node that has gone is not to be launched again for it.
            self._bridge.send("watch", hold=instance)
        elif group is not None:
            self._bridge.send(
                "hold", hold=instance, cpus=group.cpus, gpus=group.gpus, selector=selector_of(group)
            )

    def _fail(self, instance: InstanceId, reason: str) -> None:
        self._held.held.pop(instance, None)
        self._bridge.send("release", hold=instance)
        self._sink(InstanceLaunchFailed(instance, reason))

    def _release(self, instance: InstanceId) -> None:
        """Return the node of an instance: its agent ends first."""
        entry = self._held.held.pop(instance, None)
        if entry is None:
            return
        name = None if entry.node is None else self._cluster.address_of(entry.node)
        if name in self._machines.members:
            self._remove(name)
        else:
            self._bridge.send("release", hold=instance)
            return
        self._removing[name].add_done_callback(lambda _: self._bridge.send("release", hold=instance))

    def _lose(self, machine: MachineId) -> None:
        lost = [instance for instance in self._machines.instances_on(machine) if instance in self._held.held]
        super()._lose(machine)
        for instance in lost:
            del self._held.held[instance]
            self._bridge.send("release", hold=instance)

    # What the cluster says ------------------------------------------------------------------------------

    def _on_line(self, line: ClusterLine) -> None:
        now = self._clock_ms()
        if isinstance(line, NodesSeen):
            self._cluster.on_nodes(line, now)
        elif isinstance(line, Groups):
            self._cluster.on_groups(line)
            self._offers.clear()
            for instance in self._held.held:
                self._send_hold(instance)
        elif isinstance(line, Launches):
            for instance, reason in self._held.failed(line):
                self._fail(instance, reason)
        elif isinstance(line, Held):
            self._held.got(InstanceId(line.hold), line.node)
        elif isinstance(line, Unheld):
            self._on_unheld(InstanceId(line.hold), for_people(line.why))
        elif isinstance(line, Head):
            log.warning(
                "the head of the Ray cluster %s",
                "answers again" if line.answers else "does not answer; jobs run on",
            )
        elif isinstance(line, Hello):
            # Holds that no instance knows were left by launches that the store never had.
            self._bridge.send("keep", holds=list(self._held.held))
            for instance in self._held.held:
                self._send_hold(instance)
        else:
            assert isinstance(line, Gone)
        self._follow()

    def _on_unheld(self, instance: InstanceId, why: str) -> None:
        entry = self._held.held.get(instance)
        if entry is not None and not entry.is_ready:
            self._fail(instance, f"InsufficientInstanceCapacity: Ray has let go of {entry.group}: {why}")

    def _follow(self) -> None:
        """Let the fleet have the machines that the cluster has."""
        now = self._clock_ms()
        for instance, reason in self._held.overdue(now):
            self._fail(instance, reason)
        held_names = {self._cluster.address_of(node) for node in self._held.nodes()}
        for name, machine in self._cluster.machines(now).items():
            before = self._followed.get(name)
            if name in self._removing:
                continue
            if before is None:
                wanted = not self._cluster.is_launched(machine) or name in held_names
                if wanted and machine.provider in (Provider.LISTED, Provider.DRAINING):
                    reach = DoorReach(self._shell, name, self._ray.bridge.daemon, self._ray.agent)
                    self.add(name, reach, machine.labels)
                    self._tell(name, machine)
            elif before != machine:
                self._tell(name, machine)
            elif machine.provider is Provider.GONE and self._is_over(name):
                self._remove(name)

    def _tell(self, name: str, machine: RayMachine) -> None:
        self._followed[name] = machine
        if machine.provider is Provider.DRAINING:
            self.drain(name, machine.deadline_at)
        else:
            self.provided(name, machine.provider)

    def _is_over(self, name: str) -> bool:
        member = self.member(name)
        return member.machine is None or member.standing is Standing.LOST

    def _remove(self, name: str) -> None:
        """Have a machine no more, in the background: its agent is told to end."""
        self._followed.pop(name, None)
        task = self._removing[name] = asyncio.create_task(self.remove(name), name=f"remove {name}")

        def removed(_: asyncio.Task[None]) -> None:
            del self._removing[name]
            self._cluster.forget(name)

        task.add_done_callback(removed)

    # What agents say ------------------------------------------------------------------------------------

    def _introduce(self, name: str, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        super()._introduce(name, inventory, results)
        machine = self.member(name).machine
        assert machine is not None
        for node, entry in self._held.nodes().items():
            if self._cluster.address_of(node) == name and not entry.is_ready:
                self._held.ready(entry.instance)
                self._machines.place(entry.instance, machine.id)
                self._sink(InstanceReady(entry.instance, machine))

    # The whole ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the bridge and all agents until told to close."""
        companions = [
            asyncio.create_task(self._bridge.run(), name="bridge to Ray"),
            asyncio.create_task(self._follow_time(), name="machines of Ray"),
        ]
        try:
            await super().run()
        finally:
            for task in [*companions, *self._removing.values()]:
                task.cancel()
            await asyncio.gather(*companions, return_exceptions=True)

    async def _follow_time(self) -> None:
        while True:
            await asyncio.sleep(_FOLLOW_S)
            self._follow()
