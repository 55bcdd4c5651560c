"""The nodes of a multi-node parallel job: how many, which is the main one, and what each of them runs.

Decides which group speaks for a node. Must not know where nodes are placed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.jobs.definitions import ContainerOverrides, ContainerSpec
from windfall.jobs.resources import Resources

NODES_MAX = 1000
GROUPS_MAX = 5


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

    def group(self, index: int) -> NodeGroup:
        """What speaks for a node."""
        for group in reversed(self.groups):
            if group.first <= index <= group.last:
                return group
        raise AssertionError(f"node {index} is in no group of {self}")

    def resources(self, index: int) -> Resources:
        """What a node asks for."""
        return self.group(index).container.resources
