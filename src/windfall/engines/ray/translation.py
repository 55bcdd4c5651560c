"""What a Ray cluster says, in the words of the fleet and the core. Pure: lines and the time in, machines and ends out.

Ray tells and the link decides (engines/fleet/standing.py): this module only says how much Ray's word weighs, and when.
A machine is named by its address, because a node that joins again has a new id; of two nodes at one address the living
one is meant. Nodes of a group that an autoscaler scales are machines only while one of our holds has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from windfall.capacity.labels import TYPE, check_labels
from windfall.engines.fleet.standing import Provider
from windfall.engines.ray.lines import (
    Groups,
    LaunchableGroup,
    Launches,
    LaunchFailure,
    Node,
    NodesSeen,
    for_people,
)
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import InstanceId
from windfall.jobs.resources import Resources

#: The label that names the instance type of a node or a group; else the group's name is.
TYPE_LABEL = "windfall/type"
GROUP_LABEL = "ray.io/node-group"
#: Says nothing about the machine.
_NODE_ID_LABEL = "ray.io/node-id"
#: Ray's numbers for deaths that somebody wanted: told to end, preempted, idle.
_ORDERLY = frozenset({1, 3, 4})
#: After its deadline, before a drained node counts as gone.
DEADLINE_GRACE_MS = 10_000
#: For a raylet that was killed and may be started again.
RAYLET_GRACE_MS = 30_000
#: For a node to join a head that was started without its memory.
HEAD_GRACE_MS = 600_000
#: A launch that has brought nothing by then has failed.
LAUNCH_WITHIN_MS = 600_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _SeenNode:
    """A node, and when it came into its state."""

    node: Node
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RayMachine:
    """A machine as its cluster sees it."""

    #: Its address.
    name: str
    node: str
    labels: Mapping[str, str]
    group: str
    provider: Provider
    deadline_at: int | None = None
    is_alive: bool = True


class RayNodes:
    """What was last heard of the nodes and groups of one cluster."""

    def __init__(self) -> None:
        self._nodes: dict[str, _SeenNode] = {}
        self.groups: dict[str, LaunchableGroup] = {}

    def on_nodes(self, seen: NodesSeen, now_ms: int) -> None:
        """Nodes have changed. What a new bridge does not know any more has gone while nobody looked."""
        if seen.all:
            there = {node.id for node in seen.nodes}
            for key, entry in self._nodes.items():
                if key not in there and entry.node.state in ("ALIVE", "DRAINING"):
                    gone = Node(id=key, ip=entry.node.ip, labels=entry.node.labels, state="UNKNOWN")
                    self._nodes[key] = _SeenNode(gone, now_ms)
        for node in seen.nodes:
            before = self._nodes.pop(node.id, None)
            same = before is not None and before.node.state == node.state
            self._nodes[node.id] = _SeenNode(node, before.since_ms if before is not None and same else now_ms)

    def on_groups(self, seen: Groups) -> None:
        """The kinds of nodes that can be launched have changed."""
        self.groups = {group.name: group for group in seen.groups}

    def forget(self, name: str) -> None:
        """Nobody needs the dead nodes of an address any more."""
        for key in [key for key, entry in self._nodes.items() if entry.node.ip == name]:
            if self._nodes[key].node.state not in ("ALIVE", "DRAINING"):
                del self._nodes[key]

    def node_at(self, name: str) -> str | None:
        """The id of the living node at an address."""
        at = [entry.node for entry in self._nodes.values() if entry.node.ip == name]
        return next((node.id for node in reversed(at) if node.state in ("ALIVE", "DRAINING")), None)

    def address_of(self, node: str) -> str | None:
        """The address of a node."""
        entry = self._nodes.get(node)
        return None if entry is None else entry.node.ip

    def machines(self, now_ms: int) -> dict[str, RayMachine]:
        """All machines by name, whether an autoscaler's or not. A node without CPUs and GPUs takes no work."""
        machines: dict[str, RayMachine] = {}
        for entry in self._nodes.values():
            node = entry.node
            before = machines.get(node.ip)
            is_alive = node.state in ("ALIVE", "DRAINING")
            if (is_alive and not (node.cpus or node.gpus)) or (
                before is not None and before.is_alive and not is_alive
            ):
                continue
            provider = provider_of(node, entry.since_ms, now_ms)
            machines[node.ip] = RayMachine(
                name=node.ip,
                node=node.id,
                labels=labels_of(node.labels, group_of(node)),
                group=group_of(node),
                provider=provider,
                deadline_at=node.deadline_ms if provider is Provider.DRAINING else None,
                is_alive=is_alive,
            )
        return machines

    def is_launched(self, machine: RayMachine) -> bool:
        """Whether a machine comes and goes with an autoscaler."""
        return machine.group in self.groups


def provider_of(node: Node, since_ms: int, now_ms: int) -> Provider:
    """What Ray's word about a node comes to."""
    if node.state == "ALIVE":
        return Provider.LISTED
    if node.state == "DRAINING":
        is_over = node.deadline_ms is not None and now_ms >= node.deadline_ms + DEADLINE_GRACE_MS
        return Provider.GONE if is_over else Provider.DRAINING
    if node.state == "DEAD" and node.death in _ORDERLY:
        return Provider.GONE
    grace_ms = RAYLET_GRACE_MS if node.state == "DEAD" else HEAD_GRACE_MS
    return Provider.GONE if now_ms >= since_ms + grace_ms else Provider.SILENT


def group_of(node: Node) -> str:
    """The autoscaler's group of a node; empty where nobody scales."""
    return node.group or node.labels.get(GROUP_LABEL, "")


def labels_of(labels: Mapping[str, str], group: str) -> Mapping[str, str]:
    """Ray's labels as those of a machine, with its type; what cannot be a label here is left out."""
    usable: dict[str, str] = {}
    type_ = labels.get(TYPE_LABEL) or group
    pairs = [(key, value) for key, value in sorted(labels.items()) if key not in (_NODE_ID_LABEL, TYPE)]
    for key, value in [(TYPE, type_), *pairs]:
        try:
            usable |= check_labels([(key, value)])
            check_labels(usable.items())
        except Invalid:
            usable.pop(key, None)
    return usable


def resources_of(group: LaunchableGroup) -> Resources | None:
    """What a node of a group will have; None where its configuration does not say."""
    memory_mib = group.memory_bytes // _MIB
    if not memory_mib or not group.cpus:
        return None
    return Resources(group.cpus, memory_mib, int(group.gpus))


def selector_of(group: LaunchableGroup) -> dict[str, str]:
    """The labels by which a hold asks for a node of a group."""
    type_ = group.labels.get(TYPE_LABEL)
    return {TYPE_LABEL: type_} if type_ else {GROUP_LABEL: group.name}


@dataclass(frozen=True, slots=True)
class HeldInstance:
    """An instance that is, or is to be, a node of its own."""

    instance: InstanceId
    group: str
    since_ms: int
    #: The node that its hold has.
    node: str | None = None
    is_ready: bool = False


@dataclass(slots=True)
class HeldInstances:
    """All instances that came, or come, by holds."""

    held: dict[InstanceId, HeldInstance] = field(default_factory=dict)
    #: Launches that failed before anybody asked, or that have ended somebody's wait already.
    _counted: set[LaunchFailure] = field(default_factory=set)

    def want(self, instance: InstanceId, group: str, now_ms: int) -> None:
        """An instance is to have a node of a group."""
        self.held.setdefault(instance, HeldInstance(instance, group, now_ms))

    def got(self, instance: InstanceId, node: str) -> None:
        """A hold has a node."""
        if instance in self.held:
            self.held[instance] = replace(self.held[instance], node=node)

    def ready(self, instance: InstanceId) -> None:
        """Its agent has answered."""
        self.held[instance] = replace(self.held[instance], is_ready=True)

    def nodes(self) -> dict[str, HeldInstance]:
        """Those that have a node, by its id."""
        return {entry.node: entry for entry in self.held.values() if entry.node is not None}

    def failed(self, launches: Launches) -> list[tuple[InstanceId, str]]:
        """Take what the autoscaler says: each new failure ends the wait of the oldest instance of its group."""
        fresh = [failure for failure in launches.failed if failure not in self._counted]
        self._counted = set(launches.failed)
        ends: list[tuple[InstanceId, str]] = []
        for failure in fresh:
            waiting = [entry for entry in self._waiting(failure.group) if entry.instance not in dict(ends)]
            if waiting:
                why = for_people(failure.why) or "Ray does not say why; its monitor.log on the head does"
                text = f"InsufficientInstanceCapacity: Ray could not launch {failure.group}: {why}"
                ends.append((waiting[0].instance, text))
        return ends

    def overdue(self, now_ms: int) -> list[tuple[InstanceId, str]]:
        """The instances that have waited too long."""
        return [
            (
                entry.instance,
                (
                    f"InsufficientInstanceCapacity: Ray has brought no {entry.group} for"
                    f" {LAUNCH_WITHIN_MS // 60_000} minutes; `ray status` on the head shows what it waits for"
                ),
            )
            for entry in self.held.values()
            if entry.node is None and now_ms - entry.since_ms >= LAUNCH_WITHIN_MS
        ]

    def _waiting(self, group: str) -> Iterable[HeldInstance]:
        waiting = [entry for entry in self.held.values() if entry.group == group and entry.node is None]
        return sorted(waiting, key=lambda entry: entry.since_ms)
