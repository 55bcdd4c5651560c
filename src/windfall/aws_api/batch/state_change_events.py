"""Events as EventBridge sends them: AWS's envelope around the job as DescribeJobs shows it.

Decides how an event reads. Must not know when one is sent, nor where to.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from windfall.aws_api.batch import service_job_views
from windfall.aws_api.batch.arns import SERVICE_JOB, Arns
from windfall.aws_api.batch.job_details import detail_of
from windfall.control.outbox import EventKind, OutboxEvent
from windfall.control.ports import Store

_SOURCE = "aws.batch"
_encode = msgspec.json.Encoder().encode


def event_line(outbox_event: OutboxEvent, store: Store, arns: Arns) -> bytes:
    """An event as JSON in one line, without the end of the line."""
    return _encode(event(outbox_event, store, arns))


def event(outbox_event: OutboxEvent, store: Store, arns: Arns) -> dict[str, Any]:
    """An event in EventBridge's envelope; the store is asked for the job's definition."""
    resources, detail = _about(outbox_event, store, arns)
    return {
        "version": "0",
        "id": outbox_event.id,
        "detail-type": outbox_event.kind.value,
        "source": _SOURCE,
        "account": arns.account_id,
        "time": datetime.fromtimestamp(outbox_event.at // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": arns.region,
        "resources": resources,
        "detail": _without_none(detail),
    }


def _about(outbox_event: OutboxEvent, store: Store, arns: Arns) -> tuple[list[str], dict[str, Any]]:
    if outbox_event.service_job is not None:
        job = outbox_event.service_job
        return [arns.of(SERVICE_JOB, job.id)], service_job_views.detail(job, arns)
    assert outbox_event.job is not None, (
        f"event {outbox_event.id} ({outbox_event.kind}) names neither a job nor a service job"
    )
    resources = [arns.job(outbox_event.job.id)]
    if outbox_event.kind is EventKind.QUEUE_BLOCKED:
        resources.append(arns.queue(outbox_event.job.submission.queue))
    return resources, detail_of(store, outbox_event.job, arns)


def _without_none(value: Any) -> Any:
    """Members that are None do not reach the wire, as in any answer."""
    if isinstance(value, dict):
        return {name: _without_none(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_none(member) for member in value]
    return value
