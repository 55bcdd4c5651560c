"""The nodes of a multi-node parallel job: how many, which is the main one, and what each of them runs.

Decides which group speaks for a node, and what a submission makes of a definition's nodes. Must not know where nodes
are placed, nor how ranges are written on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, NodePlan, NodeRange, overridden
from windfall.jobs.errors import Invalid
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Staging

NODES_MAX = 1000
GROUPS_MAX = 5
#: Stands for a node's own name in the variables and files that a group's nodes get.
OWN_NAME = "@windfall-node-name@"
#: The same for its number, which counts from 0.
OWN_NUMBER = "@windfall-node-number@"
#: The same for the network interface that has its address.
OWN_INTERFACE = "@windfall-node-interface@"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """What a range of nodes runs, overrides and parameters applied."""

    first: int
    last: int
    container: ContainerSpec
    #: The only instance type that they may run on, where instances have types.
    instance_type: str | None = None
    #: Consumable resources that each of its nodes holds.
    consumables: tuple[tuple[str, int], ...] = ()
    #: What is brought for each of its nodes, where that is not what the job says.
    staging: Staging | None = None

    @property
    def size(self) -> int:
        """How many nodes its range has."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class GroupOverrides:
    """What a submission changes for the nodes of one range of the definition."""

    first: int
    #: None means the last node.
    last: int | None
    container: ContainerOverrides | None = None
    instance_type: str | None = None
    consumables: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class NodeOverrides:
    """What a submission changes in a definition's nodes."""

    count: int | None = None
    groups: tuple[GroupOverrides, ...] = ()


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes of one job, numbered from 0."""

    count: int
    main: int
    #: Where ranges overlap, the one that comes later speaks for a node.
    groups: tuple[NodeGroup, ...] = field(default=())
    #: Whether all start at once, and the job ends with the last of them or with the first that fails. Otherwise the
    #: main one starts first, and its end is the job's.
    peers: bool = False
    #: Nodes know one another by this and their number counted from 1; None where only addresses are known.
    name_prefix: str | None = None

    def name(self, index: int) -> str | None:
        """What the others call a node."""
        return None if self.name_prefix is None else f"{self.name_prefix}{index + 1}"

    def group(self, index: int) -> NodeGroup:
        """What speaks for a node."""
        for group in reversed(self.groups):
            if group.first <= index <= group.last:
                return group
        raise AssertionError(f"node {index} is in no group of {self}")

    def resources(self, index: int) -> Resources:
        """What a node asks for."""
        return self.group(index).container.resources

    @property
    def others(self) -> Iterator[int]:
        """The numbers of all nodes but the main one."""
        return (number for number in range(self.count) if number != self.main)

    @property
    def consumables(self) -> tuple[tuple[str, int], ...]:
        """The consumable resources that all nodes together hold, by name."""
        totals: dict[str, int] = {}
        if any(group.consumables for group in self.groups):
            for number in range(self.count):
                for name, quantity in self.group(number).consumables:
                    totals[name] = totals.get(name, 0) + quantity
        return tuple(sorted(totals.items()))


def check_plan(plan: NodePlan) -> None:
    """Refuse a definition's nodes unless its ranges name every node, and one inside the other where they overlap."""
    if not 1 <= plan.count <= NODES_MAX:
        raise Invalid(f"numNodes must be between 1 and {NODES_MAX}, got {plan.count}")
    if not 0 <= plan.main < plan.count:
        raise Invalid(f"mainNode must be between 0 and {plan.count - 1}, got {plan.main}")
    if not 1 <= len(plan.ranges) <= GROUPS_MAX:
        raise Invalid(f"nodeRangeProperties must have 1 to {GROUPS_MAX} node ranges, got {len(plan.ranges)}")
    bounds = [_bounds(node_range, plan.count) for node_range in plan.ranges]
    for number, (first, last) in enumerate(bounds):
        if not 0 <= first <= last < plan.count:
            raise Invalid(
                f"Node range {_words(plan.ranges[number])} is not within 0:{plan.count - 1}; numNodes is {plan.count}"
            )
        for other_first, other_last in bounds[:number]:
            apart = last < other_first or other_last < first
            inside = (other_first <= first and last <= other_last) or (
                first <= other_first and other_last <= last
            )
            if (first, last) == (other_first, other_last) or not (apart or inside):
                raise Invalid(
                    f"Node ranges {other_first}:{other_last} and {first}:{last} overlap; one may only lie inside of"
                    " another"
                )
    uncovered = set(range(plan.count)).difference(*(range(first, last + 1) for first, last in bounds))
    if uncovered:
        raise Invalid(
            f"The node ranges must account for all nodes (0:{plan.count - 1}); node {min(uncovered)} is in none"
        )


def resolved(plan: NodePlan, overrides: NodeOverrides | None, parameters: Mapping[str, str]) -> Nodes:
    """What a job's nodes finally run: overrides over definition, parameters in place of their references."""
    count = plan.count
    if overrides is not None and overrides.count is not None:
        count = overrides.count
        _check_count(plan, count)
    ranges = sorted(plan.ranges, key=lambda node_range: _size(node_range, count), reverse=True)
    changes = _matched(plan.ranges, overrides.groups if overrides is not None else (), count)
    groups = []
    for node_range in ranges:
        first, last = _bounds(node_range, count)
        change = changes.get((first, last))
        container = overridden(node_range.container, None if change is None else change.container, parameters)
        instance_type, consumables = node_range.instance_type, node_range.consumables
        if change is not None and change.instance_type is not None:
            instance_type = change.instance_type
        if change is not None and change.consumables is not None:
            consumables = change.consumables
        groups.append(NodeGroup(first, last, container, instance_type, consumables))
    return Nodes(count, plan.main, tuple(groups))


def _check_count(plan: NodePlan, count: int) -> None:
    if not 1 <= count <= NODES_MAX:
        raise Invalid(f"numNodes must be between 1 and {NODES_MAX}, got {count}")
    if count == plan.count:
        return
    if plan.main >= count:
        raise Invalid(f"numNodes must be above the main node's index {plan.main}, got {count}")
    if not any(node_range.last is None and node_range.first < count for node_range in plan.ranges):
        raise Invalid(
            f"numNodes can only be changed to {count} if the job definition has a node range with an open end, such as"
            f" 0:, that begins below {count}"
        )
    for node_range in plan.ranges:
        if _bounds(node_range, count)[1] >= count or node_range.first >= count:
            raise Invalid(
                f"Node range {_words(node_range)} of the job definition is not within 0:{count - 1};"
                f" numNodes is overridden to {count}"
            )


def _matched(
    ranges: Sequence[NodeRange], sent: Sequence[GroupOverrides], count: int
) -> dict[tuple[int, int], GroupOverrides]:
    """Overrides by the bounds of the range that they are for, or AWS's own refusal."""
    bounds = {_bounds(node_range, count) for node_range in ranges}
    unknown = [override for override in sent if _bounds(override, count) not in bounds]
    if unknown:
        targets = ", ".join(
            f"{first}:{last}" for first, last in (_bounds(override, count) for override in unknown)
        )
        raise Invalid(f"NodeOverride targets should match job definition. Non matching targets - {targets}")
    by_bounds = {_bounds(override, count): override for override in sent}
    if len(by_bounds) < len(sent):
        raise Invalid(
            "Each node range can be overridden once; two nodePropertyOverrides have the same targetNodes"
        )
    return by_bounds


def _bounds(bounded: NodeRange | GroupOverrides, count: int) -> tuple[int, int]:
    return bounded.first, count - 1 if bounded.last is None else bounded.last


def _size(node_range: NodeRange, count: int) -> int:
    first, last = _bounds(node_range, count)
    return last - first


def _words(node_range: NodeRange) -> str:
    return f"{node_range.first}:{'' if node_range.last is None else node_range.last}"
