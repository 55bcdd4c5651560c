"""What SubmitJob asks for when its definition has several nodes: which nodes, and what goes with them.

Decides nothing about places. Must not know how nodes are written on the wire.
"""

from __future__ import annotations

from windfall.control.events import SubmitJob
from windfall.control.job_options import GPU_SHARE, JobOptions
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.errors import Invalid
from windfall.jobs.gpus import GpuWish
from windfall.jobs.nodes import Nodes, resolved
from windfall.jobs.resources import Resources


def requested_nodes(definition: JobDefinition, command: SubmitJob) -> Nodes | None:
    """The nodes of a multi-node job, overrides and parameters applied; None for any other."""
    if definition.nodes is None:
        if command.node_overrides is not None:
            raise Invalid(
                f"nodeOverrides are for multi-node parallel jobs, and job definition {definition.key} has no"
                " nodeProperties; use containerOverrides"
            )
        return None
    if command.array_size is not None:
        raise Invalid(
            "A multi-node parallel job cannot be an array job; drop arrayProperties or nodeProperties"
        )
    if command.overrides is not None:
        raise Invalid(
            "containerOverrides are not for multi-node parallel jobs; use nodeOverrides.nodePropertyOverrides"
        )
    if command.nodes is not None:
        return command.nodes
    return resolved(definition.nodes, command.node_overrides, {**definition.parameters, **command.parameters})


def most_gpus(nodes: Nodes) -> Resources:
    """What the node with the most GPUs asks for."""
    return max((group.container.resources for group in nodes.groups), key=lambda resources: resources.gpus)


def check_node_options(nodes: Nodes | None, options: JobOptions) -> None:
    """Refuse what nodes cannot have."""
    if nodes is not None:
        check_gpu_parts(options.gpu_wish)


def check_gpu_parts(wish: GpuWish | None) -> None:
    """Refuse parts of GPUs for a job of several nodes."""
    if wish is not None and wish.share is not None:
        raise Invalid(
            f"{GPU_SHARE} is not for multi-node parallel jobs: each node has its GPUs whole; drop the tag"
        )
