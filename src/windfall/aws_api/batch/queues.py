"""Job queues: four operations and the snapshot of a queue's front.

Decides what a list of compute environments and the limits on blocked heads may look like. Must not know how
jobs are ordered: the core tells the front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import Arns, check_name, environment_name, queue_name
from windfall.aws_api.batch.desk import Desk
from windfall.aws_api.batch.documents import read_document, write_document
from windfall.aws_api.batch.paging import page
from windfall.aws_api.batch.rejections import (
    client_exception,
    does_not_exist,
    refuse_unsupported,
    shown,
    unsupported,
)
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.environments import JobQueue, StateTimeLimit, Switch
from windfall.control.events import CreateJobQueue, DeleteJobQueue, UpdateJobQueue
from windfall.control.ports import Store
from windfall.control.state_limits import LIMITED_REASONS
from windfall.jobs.ids import EnvironmentName, QueueName

ENVIRONMENTS_MAX = 3
SNAPSHOT_JOBS_MAX = 100

_QUEUE_TYPES = frozenset({"ECS", "ECS_FARGATE"})
_KEPT = ("jobQueueType", "jobStateTimeLimitActions")
_TIME_LIMIT_MIN_S, _TIME_LIMIT_MAX_S = 600, 86_400


async def create_job_queue(desk: Desk, call: Call) -> dict[str, Any]:
    """CreateJobQueue."""
    params = call.params
    refuse_unsupported(call.operation, params)
    name = QueueName(check_name(params["jobQueueName"], "jobQueueName"))
    kind = params.get("jobQueueType", "ECS")
    if kind not in _QUEUE_TYPES:
        raise unsupported(f"jobQueueType {kind}")
    order = _environment_order(params.get("computeEnvironmentOrder", ()))
    document = _document({}, params, order)
    queue = JobQueue(
        name=name,
        priority=_priority(params["priority"]),
        environments=_names_in(order),
        switch=Switch(params.get("state", Switch.ENABLED)),
        created_at=desk.clock_ms(),
        tags=check_tags(params.get("tags", {})),
        document=write_document(document),
        time_limits=_time_limits(document),
    )
    await desk.execute(CreateJobQueue(queue))
    return {"jobQueueName": name, "jobQueueArn": desk.arns(call).queue(name)}


async def update_job_queue(desk: Desk, call: Call) -> dict[str, Any]:
    """UpdateJobQueue."""
    params = call.params
    refuse_unsupported(call.operation, params)
    name = queue_name(params["jobQueue"])
    order = None
    if "computeEnvironmentOrder" in params:
        order = _environment_order(params["computeEnvironmentOrder"])
    priority = _priority(params["priority"]) if "priority" in params else None
    state = params.get("state")
    async with desk.changing:
        current = await desk.read(lambda store: queue_named(store, name))
        kept = {} if current is None else read_document(current.document)
        document = _document(kept, params, order)
        command = UpdateJobQueue(
            name=name,
            switch=None if state is None else Switch(state),
            priority=priority,
            environments=None if order is None else _names_in(order),
            document=write_document(document),
            time_limits=_time_limits(document),
        )
        await desk.execute(command)
    return {"jobQueueName": name, "jobQueueArn": desk.arns(call).queue(name)}


async def describe_job_queues(desk: Desk, call: Call) -> dict[str, Any]:
    """DescribeJobQueues: all, or those named; unknown ones are left out."""
    found = await desk.read(lambda store: store.queues())
    if asked := call.params.get("jobQueues"):
        names = {queue_name(reference) for reference in asked}
        found = [queue for queue in found if queue.name in names]
    chosen, token = page(found, lambda queue: (queue.name,), call.params)
    arns = desk.arns(call)
    return {"jobQueues": [_detail(queue, arns) for queue in chosen], "nextToken": token}


async def delete_job_queue(desk: Desk, call: Call) -> dict[str, Any]:
    """DeleteJobQueue."""
    await desk.execute(DeleteJobQueue(queue_name(call.params["jobQueue"])))
    return {}


async def get_job_queue_snapshot(desk: Desk, call: Call) -> dict[str, Any]:
    """GetJobQueueSnapshot: the first RUNNABLE jobs in the order in which they would be dispatched."""
    name = queue_name(call.params["jobQueue"])
    arns = desk.arns(call)
    if await desk.read(lambda store: queue_named(store, name)) is None:
        raise does_not_exist(arns.queue(name))
    front = (await desk.gate.queue_snapshot(name))[:SNAPSHOT_JOBS_MAX]
    jobs = [{"jobArn": arns.job(job_id), "earliestTimeAtPosition": since} for job_id, since in front]
    return {"frontOfQueue": {"jobs": jobs, "lastUpdatedAt": desk.clock_ms()}}


def queue_named(store: Store, name: str) -> JobQueue | None:
    """One queue of the store's."""
    return next((queue for queue in store.queues() if queue.name == name), None)


def _priority(priority: int) -> int:
    if priority < 0:
        raise client_exception("priority must not be negative")
    return priority


def _environment_order(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries of a computeEnvironmentOrder by ascending order, names instead of ARNs."""
    if not 1 <= len(entries) <= ENVIRONMENTS_MAX:
        raise client_exception(
            f"computeEnvironmentOrder must name 1 to {ENVIRONMENTS_MAX} compute environments,"
            f" got {len(entries)}"
        )
    order = sorted(
        (
            {"order": entry["order"], "computeEnvironment": environment_name(entry["computeEnvironment"])}
            for entry in entries
        ),
        key=lambda entry: entry["order"],
    )
    if len({entry["order"] for entry in order}) < len(order):
        raise client_exception("computeEnvironmentOrder must not use the same order twice")
    if len(set(_names_in(order))) < len(order):
        raise client_exception("computeEnvironmentOrder must not name the same compute environment twice")
    return order


def _names_in(order: Sequence[Mapping[str, Any]]) -> tuple[EnvironmentName, ...]:
    return tuple(EnvironmentName(entry["computeEnvironment"]) for entry in order)


def _document(
    kept: dict[str, Any], params: Mapping[str, Any], order: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """What to keep of a queue's request, on top of what was kept before."""
    for action in params.get("jobStateTimeLimitActions", ()):
        _check_time_limit(action)
    kept = {**kept, **{member: params[member] for member in _KEPT if member in params}}
    if order is not None:
        kept["orders"] = {entry["computeEnvironment"]: entry["order"] for entry in order}
    return kept


def _check_time_limit(action: Mapping[str, Any]) -> None:
    """Refuse what AWS refuses for a queue in front of compute environments."""
    reason = action["reason"]
    if reason not in LIMITED_REASONS:
        raise client_exception(
            f"reason of jobStateTimeLimitActions must be one of {', '.join(LIMITED_REASONS)}, got {shown(reason)}"
        )
    if not _TIME_LIMIT_MIN_S <= action["maxTimeSeconds"] <= _TIME_LIMIT_MAX_S:
        raise client_exception(
            f"maxTimeSeconds of {reason} must be between {_TIME_LIMIT_MIN_S} and {_TIME_LIMIT_MAX_S}"
        )
    if action["action"] != "CANCEL":
        raise client_exception(
            f"action of {reason} must be CANCEL, got {action['action']}: TERMINATE is for queues of service jobs"
        )


def _time_limits(document: Mapping[str, Any]) -> tuple[StateTimeLimit, ...]:
    actions = document.get("jobStateTimeLimitActions", ())
    return tuple(StateTimeLimit(action["reason"], action["maxTimeSeconds"]) for action in actions)


def _detail(queue: JobQueue, arns: Arns) -> dict[str, Any]:
    """A JobQueueDetail; environments are answered as ARNs whatever they were sent as, as AWS does."""
    kept = read_document(queue.document)
    orders = kept.pop("orders", {})
    return {
        **kept,
        "jobQueueName": queue.name,
        "jobQueueArn": arns.queue(queue.name),
        "state": queue.switch.value,
        "status": "VALID",
        "statusReason": "JobQueue Healthy",
        "priority": queue.priority,
        "computeEnvironmentOrder": [
            {"order": orders.get(name, place), "computeEnvironment": arns.environment(name)}
            for place, name in enumerate(queue.environments, 1)
        ],
        "tags": dict(queue.tags),
    }
