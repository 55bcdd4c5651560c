"""Job queues: four operations.

Decides what a list of compute environments and the limits on blocked heads may look like. Must not know how
jobs are ordered: the core tells the front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import Arns, check_name, environment_name, policy_name, queue_name
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.documents import read_document, write_document
from windfall.aws_api.batch.paging import page
from windfall.aws_api.batch.rejections import (
    client_exception,
    shown,
    unsupported,
)
from windfall.aws_api.batch.service_environments import TRAINING_TYPE
from windfall.aws_api.batch.service_queues import limited_reasons, service_order, service_order_detail
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.environments import JobQueue, StateTimeLimit, Switch
from windfall.control.events import CreateJobQueue, DeleteJobQueue, UpdateJobQueue
from windfall.control.ports import Store
from windfall.jobs.ids import EnvironmentName, QueueName

ENVIRONMENTS_MAX = 3

_QUEUE_TYPES = frozenset({"ECS", "ECS_FARGATE"})
_KEPT = ("jobQueueType", "jobStateTimeLimitActions")
_TIME_LIMIT_MIN_S, _TIME_LIMIT_MAX_S = 600, 86_400


async def create_job_queue(context: BatchContext, call: Call) -> dict[str, Any]:
    """CreateJobQueue."""
    params = call.params
    name = QueueName(check_name(params["jobQueueName"], "jobQueueName"))
    service = service_order(params)
    kind = params.get("jobQueueType", "ECS")
    if service is None and kind not in _QUEUE_TYPES:
        raise unsupported(f"jobQueueType {kind}")
    order = [] if service is not None else _environment_order(params.get("computeEnvironmentOrder", ()))
    document = _document({}, params, order, service, of_services=service is not None)
    queue = JobQueue(
        name=name,
        priority=_priority(params["priority"]),
        environments=_names_in(order),
        switch=Switch(params.get("state", Switch.ENABLED)),
        created_at=context.clock_ms(),
        tags=check_tags(params.get("tags", {})),
        document=write_document(document),
        time_limits=_time_limits(document),
        policy=_policy(params),
        service_environment=None if service is None else service["serviceEnvironment"],
    )
    await context.execute(CreateJobQueue(queue))
    return {"jobQueueName": name, "jobQueueArn": context.arns(call).queue(name)}


async def update_job_queue(context: BatchContext, call: Call) -> dict[str, Any]:
    """UpdateJobQueue."""
    params = call.params
    name = queue_name(params["jobQueue"])
    order, service = None, service_order(params)
    if params.get("computeEnvironmentOrder") or ("computeEnvironmentOrder" in params and service is None):
        order = _environment_order(params["computeEnvironmentOrder"])
    priority = _priority(params["priority"]) if "priority" in params else None
    state = params.get("state")
    async with context.changing:
        current = await context.read(lambda store: queue_named(store, name))
        old_document = {} if current is None else read_document(current.document)
        of_services = current is not None and current.service_environment is not None
        document = _document(old_document, params, order, service, of_services=of_services)
        command = UpdateJobQueue(
            name=name,
            switch=None if state is None else Switch(state),
            priority=priority,
            environments=None if order is None else _names_in(order),
            document=write_document(document),
            time_limits=_time_limits(document),
            policy=_policy(params),
            service_environment=None if service is None else service["serviceEnvironment"],
        )
        await context.execute(command)
    return {"jobQueueName": name, "jobQueueArn": context.arns(call).queue(name)}


async def describe_job_queues(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeJobQueues: all, or those named; unknown ones are left out."""
    queues = await context.read(lambda store: store.queues())
    if references := call.params.get("jobQueues"):
        names = {queue_name(reference) for reference in references}
        queues = [queue for queue in queues if queue.name in names]
    chosen, token = page(queues, lambda queue: (queue.name,), call.params)
    arns = context.arns(call)
    return {"jobQueues": [_detail(queue, arns) for queue in chosen], "nextToken": token}


async def delete_job_queue(context: BatchContext, call: Call) -> dict[str, Any]:
    """DeleteJobQueue."""
    await context.execute(DeleteJobQueue(queue_name(call.params["jobQueue"])))
    return {}


def queue_named(store: Store, name: str) -> JobQueue | None:
    """One queue of the store's."""
    return next((queue for queue in store.queues() if queue.name == name), None)


def _policy(params: Mapping[str, Any]) -> str | None:
    """The scheduling policy that is asked for; tools send an empty text for none."""
    arn = params.get("schedulingPolicyArn")
    return policy_name(arn) if arn else None


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
    document: dict[str, Any],
    params: Mapping[str, Any],
    order: list[dict[str, Any]] | None,
    service: Mapping[str, Any] | None,
    *,
    of_services: bool,
) -> dict[str, Any]:
    """What to keep of a queue's request, on top of what was kept before."""
    for action in params.get("jobStateTimeLimitActions", ()):
        _check_time_limit(action, of_services=of_services)
    document = {**document, **{member: params[member] for member in _KEPT if member in params}}
    if order is not None:
        document["orders"] = {entry["computeEnvironment"]: entry["order"] for entry in order}
    if service is not None:
        document["orders"] = {service["serviceEnvironment"]: service["order"]}
        document["jobQueueType"] = TRAINING_TYPE
    return document


def _check_time_limit(action: Mapping[str, Any], *, of_services: bool) -> None:
    """Refuse what AWS refuses for a queue in front of compute environments, or of a service environment."""
    reason = action["reason"]
    reasons, allowed = limited_reasons(of_services=of_services)
    if reason not in reasons:
        raise client_exception(
            f"reason of jobStateTimeLimitActions must be one of {', '.join(reasons)}, got {shown(reason)}"
        )
    if not _TIME_LIMIT_MIN_S <= action["maxTimeSeconds"] <= _TIME_LIMIT_MAX_S:
        raise client_exception(
            f"maxTimeSeconds of {reason} must be between {_TIME_LIMIT_MIN_S} and {_TIME_LIMIT_MAX_S}"
        )
    if action["action"] != allowed:
        raise client_exception(
            f"action of {reason} must be {allowed}, got {action['action']}: TERMINATE is for queues of service jobs,"
            " CANCEL for others"
        )


def _time_limits(document: Mapping[str, Any]) -> tuple[StateTimeLimit, ...]:
    actions = document.get("jobStateTimeLimitActions", ())
    return tuple(StateTimeLimit(action["reason"], action["maxTimeSeconds"]) for action in actions)


def _detail(queue: JobQueue, arns: Arns) -> dict[str, Any]:
    """A JobQueueDetail; environments are answered as ARNs whatever they were sent as, as AWS does."""
    document = read_document(queue.document)
    orders = document.pop("orders", {})
    return {
        **document,
        "jobQueueName": queue.name,
        "jobQueueArn": arns.queue(queue.name),
        "state": queue.switch.value,
        "status": "VALID",
        "statusReason": "JobQueue Healthy",
        "priority": queue.priority,
        "schedulingPolicyArn": None if queue.policy is None else arns.policy(queue.policy),
        "computeEnvironmentOrder": [
            {"order": orders.get(name, place), "computeEnvironment": arns.environment(name)}
            for place, name in enumerate(queue.environments, 1)
        ],
        "serviceEnvironmentOrder": service_order_detail(queue, orders, arns),
        "tags": dict(queue.tags),
    }
