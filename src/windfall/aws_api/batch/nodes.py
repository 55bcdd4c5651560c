"""Multi-node parallel jobs on the wire: nodeProperties, nodeOverrides, ranges of nodes, and what a node looks like.

Decides how ranges are written and which node an id `<job>#<number>` means. Must not know how nodes are placed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from windfall.aws_api.batch.consumable_resources import required_tokens
from windfall.aws_api.batch.ecs_properties import container_overrides, main_of, task_container, task_detail
from windfall.aws_api.batch.job_fields import amounts_detail
from windfall.aws_api.batch.rejections import client_exception, shown, unsupported
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, NodePlan, NodeRange
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import node_id
from windfall.jobs.job import Job
from windfall.jobs.nodes import GroupOverrides, NodeGroup, NodeOverrides, Nodes, check_plan
from windfall.jobs.states import FAILED, PLACED, SUCCEEDED

MULTINODE = "multinode"

_RANGE = re.compile(r"([0-9]{0,4})(?:(:)([0-9]{0,4}))?")


def node_range(text: str) -> tuple[int, int | None]:
    """The first and last node that `0:3`, `:3`, `2:`, `:` or `2` means; None is the last one that there is."""
    match = _RANGE.fullmatch(text)
    if match is None or not text:
        raise client_exception(f"targetNodes {shown(text)!r} is not a node range; use 0:3, :3, 2: or 2")
    first = int(match[1] or 0)
    if not match[2]:
        return first, first
    return first, int(match[3]) if match[3] else None


def node_plan(
    sent: Mapping[str, Any], container_of: Callable[[Mapping[str, Any]], ContainerSpec]
) -> NodePlan:
    """The nodes that a registration asks for; `container_of` reads containerProperties."""
    ranges = []
    for entry in sent["nodeRangeProperties"]:
        container = _container(entry)
        first, last = node_range(entry["targetNodes"])
        ranges.append(
            NodeRange(
                first,
                last,
                container_of(container),
                _instance_type(entry, container),
                required_tokens(entry.get("consumableResourceProperties")),
            )
        )
    plan = NodePlan(sent["numNodes"], sent["mainNode"], tuple(ranges))
    try:
        check_plan(plan)
    except Invalid as refusal:
        raise client_exception(str(refusal)) from refusal
    if len({nodes.instance_type for nodes in ranges}) > 1:
        raise client_exception("All nodes of a multi-node parallel job must have the same instanceType")
    return plan


def _container(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The containerProperties of a node range, however they are written."""
    if entry.get("eksProperties"):
        raise unsupported("eksProperties of node ranges (jobs on Amazon EKS)")
    container: Mapping[str, Any] | None = entry.get("container")
    task, nodes = entry.get("ecsProperties"), shown(entry["targetNodes"])
    if container and task:
        raise client_exception(f"Node range {nodes} has both container and ecsProperties; leave one out")
    if task:
        return task_container(task)
    if not container:
        raise client_exception(f"Node range {nodes} has no container properties")
    return container


def _instance_type(entry: Mapping[str, Any], container: Mapping[str, Any] | None) -> str | None:
    """The one instance type of a node range, from the list beside its task or from its container."""
    types: list[str] = entry.get("instanceTypes") or []
    if len(types) > 1:
        raise client_exception(f"instanceTypes of a node range must have one element, got {len(types)}")
    named: str | None = container.get("instanceType") if container else None
    if types and named and types[0] != named:
        raise client_exception(
            f"Node range {shown(entry['targetNodes'])} has two instance types, {shown(types[0])} and {shown(named)}"
        )
    return types[0] if types else named


def main_container(plan: NodePlan) -> ContainerSpec:
    """The container of the main node: that of the smallest range which it is in."""
    last = plan.count - 1
    ends = [(nodes, last if nodes.last is None else nodes.last) for nodes in plan.ranges]
    around = [(end - nodes.first, nodes) for nodes, end in ends if nodes.first <= plan.main <= end]
    return min(around, key=lambda sized: sized[0])[1].container


def node_overrides(
    sent: Mapping[str, Any] | None,
    registered: Mapping[str, Any],
    overrides_of: Callable[[Mapping[str, Any] | None], tuple[ContainerOverrides | None, str]],
) -> NodeOverrides | None:
    """What a submission changes in its definition's nodes; `overrides_of` reads containerOverrides.

    `registered` is the definition's registration, which is needed only for an ecsPropertiesOverride.
    """
    if not sent:
        return None
    groups = []
    for entry in sent.get("nodePropertyOverrides", ()):
        if entry.get("eksPropertiesOverride"):
            raise unsupported("eksPropertiesOverride of node ranges (jobs on Amazon EKS)")
        first, last = node_range(entry["targetNodes"])
        container = entry.get("containerOverrides")
        if entry.get("ecsPropertiesOverride"):
            if container:
                raise client_exception("Give either containerOverrides or ecsPropertiesOverride, not both")
            task = _task_of(registered, sent.get("numNodes"), first, last)
            container = container_overrides(entry["ecsPropertiesOverride"], task)
        tokens = entry.get("consumableResourcePropertiesOverride")
        groups.append(
            GroupOverrides(
                first,
                last,
                overrides_of(container)[0],
                _instance_type(entry, container),
                required_tokens(tokens) if tokens else None,
            )
        )
    return NodeOverrides(sent.get("numNodes"), tuple(groups))


def _task_of(
    registered: Mapping[str, Any], count: int | None, first: int, last: int | None
) -> Mapping[str, Any] | None:
    """The registered ecsProperties of the range that an override means; `count` is None for as many as registered."""
    nodes = registered.get("nodeProperties") or {}
    highest = (nodes.get("numNodes", 0) if count is None else count) - 1
    for entry in nodes.get("nodeRangeProperties", ()):
        start, end = node_range(entry["targetNodes"])
        if (start, highest if end is None else end) == (first, highest if last is None else last):
            task: Mapping[str, Any] | None = entry.get("ecsProperties")
            return task
    return None


# What is shown ----------------------------------------------------------------------------------------------------


def node_at_rest(gang: Job, number: int) -> Job | None:
    """A node that has no record of its own: the main one, or one that never had a place; None if there is none."""
    nodes = gang.submission.nodes
    if nodes is None or gang.parent is not None or not 0 <= number < nodes.count:
        return None
    node = replace(gang, id=node_id(gang.id, number), parent=gang.id, index=number)
    if number != nodes.main:
        node = replace(node, attempts=[], started_at=None)
    return node


def as_shown(job: Job) -> Job:
    """A job as clients see it: a node that has ended is not RUNNING any more, though its gang goes on."""
    last = job.attempts[-1] if job.attempts else None
    if not job.is_node or job.state not in PLACED or last is None or last.stopped_at is None:
        return job
    return replace(
        job,
        state=SUCCEEDED if last.succeeded else FAILED,
        stopped_at=last.stopped_at,
        status_reason=last.status_reason,
    )


def node_details(job: Job) -> dict[str, Any] | None:
    """The nodeDetails of one node; None for any other job."""
    nodes = job.submission.nodes
    if nodes is None or job.index is None:
        return None
    return {"nodeIndex": job.index, "isMainNode": job.index == nodes.main}


def node_summary(job: Job) -> dict[str, Any] | None:
    """The nodeProperties of a JobSummary."""
    nodes = job.submission.nodes
    if nodes is None:
        return None
    return {"numNodes": nodes.count, **(node_details(job) or {})}


def registered_range(registered: Mapping[str, Any], nodes: Nodes, group: NodeGroup) -> Mapping[str, Any]:
    """What the registration has for a range of nodes: its `container`, or its ecsProperties."""
    for entry in registered.get("nodeProperties", {}).get("nodeRangeProperties", ()):
        first, last = node_range(entry["targetNodes"])
        if (first, nodes.count - 1 if last is None else last) == (group.first, group.last):
            node_entry: Mapping[str, Any] = entry
            return node_entry
    return {}


def node_properties(job: Job, registered: Mapping[str, Any]) -> dict[str, Any] | None:
    """The nodeProperties of a JobDetail, overrides applied; None for any other job, and for one node alone."""
    nodes = job.submission.nodes
    if nodes is None or job.index is not None:
        return None
    ranges = []
    for group in sorted(nodes.groups, key=lambda group: (group.first, -group.last)):
        entry = registered_range(registered, nodes, group)
        task, kind = entry.get("ecsProperties"), group.instance_type
        sent = main_of(task["taskProperties"][0]) if task else entry.get("container", {})
        runs = {
            **amounts_detail(sent, group.container.resources),
            "image": group.container.image,
            "command": list(group.container.command),
            "environment": [
                {"name": key, "value": value} for key, value in group.container.environment.items()
            ],
        }
        shown_range: dict[str, Any] = {"targetNodes": f"{group.first}:{group.last}"}
        if task:
            shown_range |= {
                "ecsProperties": task_detail(task, runs, None),
                "instanceTypes": [kind] if kind else None,
            }
        else:
            shown_range["container"] = {**sent, **runs, **({"instanceType": kind} if kind else {})}
        ranges.append(shown_range)
    return {"numNodes": nodes.count, "mainNode": nodes.main, "nodeRangeProperties": ranges}
