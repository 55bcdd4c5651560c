"""Service jobs: submitted, listed, given another priority, and terminated.

Decides how a request reads and what AWS refuses in it. As on AWS, a payload is not validated before its turn: only the
number of instances and the names of its training jobs are read from it, which never fails. Must not know which job is
next, nor whether a payload makes a valid training job.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windfall.aws_api.batch.arns import SERVICE_JOB, check_job_name, queue_name, service_job_reference
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.job_fields import (
    ATTEMPTS_MAX,
    RULES_MAX,
    retry_action,
    scheduling_priority,
    timeout_s,
)
from windfall.aws_api.batch.listing import milliseconds
from windfall.aws_api.batch.paging import PAGE_MAX, invalid_token, page_size, position_in, token_of
from windfall.aws_api.batch.queues import queue_named
from windfall.aws_api.batch.rejections import client_exception, does_not_exist, shown
from windfall.aws_api.batch.service_job_views import detail, summary
from windfall.aws_api.batch.stopping import stop_many, stop_reason
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.control.commands.service_jobs import SubmitServiceJob, TerminateServiceJob, UpdateServiceJob
from windfall.control.ports import ServiceJobFilter, Store
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.retry import ONCE, ExitRule, RetryStrategy
from windfall.jobs.service_jobs import NAME_DIGITS, UNKNOWN_TYPE, ServiceJob, ServiceState

REQUEST_SIZE_MAX = 30 * 1024
PAYLOAD_SIZE_MAX = 10 * 1024
_PATTERN_MAX = 512
_PRINTABLE = re.compile(r"[\x20-\x7e\t\r\n]*\*?")


async def submit_service_job(context: BatchContext, call: Call) -> dict[str, Any]:
    """SubmitServiceJob."""
    params = call.params
    if call.size >= REQUEST_SIZE_MAX:
        raise client_exception(f"Job size must be less than 30 KiB, got {-(-call.size // 1024)} KiB")
    payload = params["serviceRequestPayload"]
    if len(payload.encode()) > PAYLOAD_SIZE_MAX:
        raise client_exception("serviceRequestPayload must have at most 10 KiB")
    preemption = params.get("preemptionConfiguration", {}).get("preemptionRetriesBeforeTermination")
    if preemption is not None and preemption < -1:
        raise client_exception(
            "preemptionRetriesBeforeTermination must not be below -1, which means no limit"
        )
    job = ServiceJob(
        id=_job_id(context, call),
        name=check_job_name(params["jobName"]),
        queue=queue_name(params["jobQueue"]),
        payload=payload,
        priority=scheduling_priority(params.get("schedulingPriority"), "schedulingPriority") or 0,
        share=params.get("shareIdentifier"),
        quota_share=params.get("quotaShareName"),
        preemptions_max=None if preemption == -1 else preemption,
        timeout_s=timeout_s(params.get("timeoutConfig")),
        retry=_retry(params.get("retryStrategy")),
        client_token=params.get("clientToken"),
        tags=check_tags(params.get("tags", {})),
        submitter=call.caller.submitter,
        region=call.region,
        instances=instances_of(payload),
        name_prefix=name_prefix_of(payload),
    )
    async with context.changing:
        if await context.read(lambda store: store.service_jobs([job.id])):
            raise client_exception(
                f"The same request with this clientToken has been accepted already, as service job {job.id}"
            )
        await context.execute(SubmitServiceJob(job))
    return {"jobArn": context.arns(call).of(SERVICE_JOB, job.id), "jobName": job.name, "jobId": job.id}


async def describe_service_job(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeServiceJob."""
    job = await context.read(lambda store: service_job_named(store, call.params["jobId"]))
    if job is None:
        raise does_not_exist(f"Service job {call.params['jobId']}")
    return detail(job, context.arns(call))


async def list_service_jobs(context: BatchContext, call: Call) -> dict[str, Any]:
    """ListServiceJobs."""
    params = call.params
    if not params.get("jobQueue"):
        raise client_exception("jobQueue must be specified")
    queue, arns = queue_name(params["jobQueue"]), context.arns(call)
    wanted = _filter(queue, params)
    limit, token = page_size(params, PAGE_MAX), params.get("nextToken")
    after = position_in(token) if token else None

    def look(store: Store) -> tuple[Sequence[ServiceJob], str | None]:
        try:
            page = store.list_service_jobs(wanted, limit, after)
        except ValueError:
            # The store's own word for a position that no page has given.
            raise invalid_token() from None
        if not page.jobs and queue_named(store, queue) is None:
            raise does_not_exist(arns.queue(queue))
        return page.jobs, None if page.next_after is None else token_of(page.next_after)

    jobs, following = await context.read(look)
    return {"jobSummaryList": [summary(job, arns) for job in jobs], "nextToken": following}


async def update_service_job(context: BatchContext, call: Call) -> dict[str, Any]:
    """UpdateServiceJob: the priority, at any time before the job has ended."""
    job_id = _required(call.params["jobId"])
    priority = scheduling_priority(call.params["schedulingPriority"], "schedulingPriority") or 0
    job: ServiceJob = await context.execute(UpdateServiceJob(job_id, priority))
    return {"jobArn": context.arns(call).of(SERVICE_JOB, job.id), "jobName": job.name, "jobId": job.id}


async def terminate_service_job(context: BatchContext, call: Call) -> dict[str, Any]:
    """TerminateServiceJob; unknown and finished jobs are left alone without an error."""
    reason = stop_reason(call)
    await context.execute(TerminateServiceJob(_required(call.params["jobId"]), reason))
    return {}


async def terminate_service_jobs(context: BatchContext, call: Call) -> dict[str, Any]:
    """TerminateServiceJobs: each job by itself, and one answer for all."""
    return await stop_many(context, call, TerminateServiceJob, service_job_reference)


def service_job_named(store: Store, reference: str) -> ServiceJob | None:
    """The service job that an id or ARN means."""
    job_id = service_job_reference(reference)
    jobs = [] if job_id is None else store.service_jobs([job_id])
    return jobs[0] if jobs else None


def service_job_tags(store: Store, name: str) -> Mapping[str, str] | None:
    """The tags of one; None when there is none with this id."""
    job = service_job_named(store, name)
    return None if job is None else job.tags


def _job_id(context: BatchContext, call: Call) -> JobId:
    """A new id; with a clientToken the same request has the same one, so that it is known when it comes again."""
    token = call.params.get("clientToken")
    if token is None:
        return JobId(context.new_id())
    text = msgspec.json.encode([call.caller.tenant, call.params], order="deterministic")
    return JobId(str(uuid.UUID(bytes=hashlib.blake2b(text, digest_size=16).digest(), version=4)))


def _required(reference: str) -> JobId:
    job_id = service_job_reference(reference)
    if job_id is None:
        raise client_exception(f"{shown(reference)!r} is not the id of a service job")
    return job_id


def _retry(sent: Mapping[str, Any] | None) -> RetryStrategy:
    if not sent:
        return ONCE
    attempts, rules = sent["attempts"], sent.get("evaluateOnExit", ())
    if not 1 <= attempts <= ATTEMPTS_MAX:
        raise client_exception(f"RetryAttempts must be between 1 and {ATTEMPTS_MAX}, got {attempts}")
    if len(rules) > RULES_MAX:
        raise client_exception(f"evaluateOnExit cannot have more than {RULES_MAX} rules, got {len(rules)}")
    return RetryStrategy(attempts, tuple(_rule(rule) for rule in rules))


def _rule(sent: Mapping[str, str]) -> ExitRule:
    action, pattern = sent.get("action"), sent.get("onStatusReason")
    if action is None or pattern is None:
        raise client_exception("A rule of evaluateOnExit must have an action and an onStatusReason")
    if len(pattern) > _PATTERN_MAX or _PRINTABLE.fullmatch(pattern) is None or "*" in pattern[:-1]:
        raise client_exception(
            f"onStatusReason {shown(pattern)!r} is not valid: use up to {_PATTERN_MAX} printable characters, and an"
            " asterisk at the end only"
        )
    return ExitRule(retry_action(action), on_status_reason=pattern)


def _filter(queue: QueueName, params: Mapping[str, Any]) -> ServiceJobFilter:
    filters, status = params.get("filters"), params.get("jobStatus")
    if not filters:
        return ServiceJobFilter(queue, _states(status or ServiceState.RUNNING))
    if len(filters) > 1:
        raise client_exception("Only one filter can be used at a time")
    name, values = filters[0].get("name", ""), filters[0].get("values", [])
    if len(values) != 1:
        raise client_exception(f"Filter {shown(name)} must have exactly one value, got {len(values)}")
    value: str = values[0]
    # With a filter by share the status counts too; other filters look at jobs of every status.
    states = None if status is None else _states(status)
    match name:
        case "JOB_NAME":
            return ServiceJobFilter(queue, name=value.removesuffix("*"), name_is_prefix=value.endswith("*"))
        case "BEFORE_CREATED_AT":
            return ServiceJobFilter(queue, created_before=milliseconds(name, value))
        case "AFTER_CREATED_AT":
            return ServiceJobFilter(queue, created_after=milliseconds(name, value))
        case "SHARE_IDENTIFIER":
            return ServiceJobFilter(queue, states, share=value)
        case "QUOTA_SHARE_NAME":
            return ServiceJobFilter(queue, states, quota_share=value)
    raise client_exception(
        f"Filter {shown(name)!r} is not valid; use JOB_NAME, BEFORE_CREATED_AT, AFTER_CREATED_AT, SHARE_IDENTIFIER or"
        " QUOTA_SHARE_NAME"
    )


def _states(status: str) -> tuple[ServiceState, ...]:
    """The states that a status means; no service job is ever PENDING here."""
    return tuple(state for state in ServiceState if state == status)


#: SageMaker's bound on names, and what of it is taken up by the words around the caller's own.
NAME_MAX = 63
PREFIX = "AWSBatch"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]")


def instances_of(payload: str) -> dict[str, int]:
    """How many instances of which type it asks for; one of an unknown type when that cannot be read."""
    resources = _member(_read(payload), "ResourceConfig")
    groups = resources.get("InstanceGroups")
    entries = groups if isinstance(groups, list) and groups else [resources]
    counts: dict[str, int] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        kind, count = entry.get("InstanceType"), entry.get("InstanceCount")
        whole = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1
        name = kind if isinstance(kind, str) else UNKNOWN_TYPE
        counts[name] = counts.get(name, 0) + whole
    return counts or {UNKNOWN_TYPE: 1}


def name_prefix_of(payload: str) -> str:
    """What the names of its training jobs begin with; the core adds digits of its own."""
    wanted = _read(payload).get("TrainingJobName")
    own = _NOT_IN_NAMES.sub("-", wanted) if isinstance(wanted, str) else ""
    return f"{PREFIX}{own[: NAME_MAX - len(PREFIX) - NAME_DIGITS]}"


def _read(payload: str) -> dict[str, Any]:
    try:
        read = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _member(request: dict[str, Any], name: str) -> dict[str, Any]:
    value = request.get(name)
    return value if isinstance(value, dict) else {}
