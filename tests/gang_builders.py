"""Builders for multi-node jobs: `a_gang_definition(nodes=3)`, `a_world_of_gangs()`."""

from __future__ import annotations

from typing import Any

from tests.builders import TestWorld, a_busy_world, a_definition, a_machine
from windfall.control import events
from windfall.jobs.definitions import ContainerSpec, JobDefinition, NodePlan, NodeRange
from windfall.jobs.resources import Resources


def a_container(vcpus: float = 1, gpus: int = 0, **changes: Any) -> ContainerSpec:
    """A container that needs little."""
    return ContainerSpec("image", Resources(vcpus, 1024, gpus), ("true",), **changes)


def a_gang_definition(
    name: str = "gang", nodes: int = 3, main: int = 0, *ranges: NodeRange, **changes: Any
) -> JobDefinition:
    """A definition with so many equal nodes of one vCPU each, or with these ranges."""
    plan = NodePlan(nodes, main, ranges or (NodeRange(0, None, a_container()),))
    return a_definition(name, nodes=plan, **changes)


def a_world_of_gangs(definition: JobDefinition | None = None, vcpus: float = 4, **rules: Any) -> TestWorld:
    """A world whose host has so many vCPUs and that knows a definition with several nodes."""
    world = a_busy_world(a_machine(vcpus), **rules)
    world.happens(events.RegisterJobDefinition(definition or a_gang_definition()))
    return world
