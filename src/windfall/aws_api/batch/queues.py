"""Job queues: four operations, GetJobQueueSnapshot, and what is different about queues of service jobs.

Decides what a list of compute environments, a service environment and the limits on blocked heads may look like, and
how the core's numbers about the front and the shares of a queue read on the wire. Must not know how jobs are ordered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import (
    JOB,
    SERVICE_JOB,
    Arns,
    check_name,
    environment_name,
    policy_name,
    queue_name,
    service_environment_name,
)
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.documents import read_document, write_document
from windfall.aws_api.batch.paging import page
from windfall.aws_api.batch.rejections import (
    client_exception,
    does_not_exist,
    shown,
    unsupported,
)
from windfall.aws_api.batch.service_environments import TRAINING_TYPE
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.environments import JobQueue, StateTimeLimit, Switch
from windfall.control.events import CreateJobQueue, DeleteJobQueue, UpdateJobQueue
from windfall.control.ports import Store
from windfall.control.queue_shares import QueueShares
from windfall.control.service_dispatch import SERVICE_REASONS
from windfall.control.state_limits import LIMITED_REASONS
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.scheduling.fair_share import Amount

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


Entry = Mapping[str, Any]


def service_order(params: Mapping[str, Any]) -> Entry | None:
    """The one entry of a serviceEnvironmentOrder, with a name instead of an ARN; None for other queues."""
    entries: Sequence[Entry] = params.get("serviceEnvironmentOrder") or ()
    kind = params.get("jobQueueType")
    if not entries:
        if kind == TRAINING_TYPE:
            raise client_exception(
                f"serviceEnvironmentOrder must name the service environment of a queue of type {TRAINING_TYPE}"
            )
        return None
    if len(entries) > 1:
        raise client_exception(
            f"serviceEnvironmentOrder must name one service environment, got {len(entries)}"
        )
    if kind not in (None, TRAINING_TYPE):
        raise client_exception(f"A queue with serviceEnvironmentOrder is of type {TRAINING_TYPE}, not {kind}")
    if params.get("computeEnvironmentOrder"):
        raise client_exception(
            "computeEnvironmentOrder and serviceEnvironmentOrder cannot be used together; use two queues"
        )
    name = service_environment_name(entries[0]["serviceEnvironment"])
    return {"order": entries[0]["order"], "serviceEnvironment": name}


def limited_reasons(*, of_services: bool) -> tuple[tuple[str, ...], str]:
    """The reasons that a queue may act upon, and what it then does."""
    return (SERVICE_REASONS, "TERMINATE") if of_services else (LIMITED_REASONS, "CANCEL")


def service_order_detail(
    queue: JobQueue, orders: Mapping[str, int], arns: Arns
) -> list[dict[str, Any]] | None:
    """The serviceEnvironmentOrder of a queue's detail; None where it has none."""
    name = queue.service_environment
    if name is None:
        return None
    return [{"order": orders.get(name, 1), "serviceEnvironment": arns.service_environment(name)}]


SNAPSHOT_JOBS_MAX = 100
SHARES_MAX = 20


async def get_job_queue_snapshot(context: BatchContext, call: Call) -> dict[str, Any]:
    """GetJobQueueSnapshot: the first RUNNABLE jobs in the order in which they would be dispatched, and what is used."""
    name = queue_name(call.params["jobQueue"])
    arns, now = context.arns(call), context.clock_ms()
    queue = await context.read(lambda store: queue_named(store, name))
    if queue is None:
        raise does_not_exist(arns.queue(name))
    kind = JOB if queue.service_environment is None else SERVICE_JOB
    front = (await context.gate.queue_snapshot(name))[:SNAPSHOT_JOBS_MAX]
    jobs = [{"jobArn": arns.of(kind, job_id), "earliestTimeAtPosition": since} for job_id, since in front]
    answer: dict[str, Any] = {"frontOfQueue": {"jobs": jobs, "lastUpdatedAt": now}}
    shares = await context.gate.shares(name)
    if shares is not None:
        answer["queueUtilization"] = {**_utilization(shares), "lastUpdatedAt": now}
        fronts = {share.name: share.front for share in shares.shares if share.front is not None}
        if fronts:
            first = {
                share: [{"jobArn": arns.of(kind, job_id), "earliestTimeAtPosition": since}]
                for share, (job_id, since) in fronts.items()
            }
            answer["frontOfQuotaShares"] = {"quotaShares": first, "lastUpdatedAt": now}
    return answer


def _utilization(shares: QueueShares) -> dict[str, Any]:
    utilization: dict[str, Any] = {"totalCapacityUsage": _usage(shares.held, shares)}
    if shares.is_fair:
        top = [
            {"shareIdentifier": share.name, "capacityUsage": _usage(share.held, shares)}
            for share in shares.shares[:SHARES_MAX]
        ]
        utilization["fairshareUtilization"] = {
            "activeShareCount": len(shares.shares),
            "topCapacityUtilization": top,
        }
    elif shares.shares:
        utilization["quotaShareUtilization"] = {
            "topCapacityUtilization": [
                {"quotaShareName": share.name, "capacityUsage": _by_unit(share.used)}
                for share in shares.shares[:SHARES_MAX]
            ]
        }
    return utilization


def _usage(amount: Amount, shares: QueueShares) -> list[dict[str, Any]]:
    """An amount by unit; AWS counts vCPUs (or instances) alone, and GPUs are told where there are some."""
    gpus = {"GPU": float(amount.gpus)} if shares.total.gpus > 0 else {}
    return _by_unit({shares.unit: amount.vcpus, **gpus})


def _by_unit(amounts: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"capacityUnit": unit, "quantity": float(quantity)} for unit, quantity in amounts.items()]
