"""CancelJob, TerminateJob and their bulk forms.

Decides what a job may be called and which answer each one of many gets. What a stop means in each state is
the core's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from windfall.aws_api.batch.arns import job_reference
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.events import CancelJob, Command, TerminateJob
from windfall.jobs.ids import JobId

REASON_MAX = 1024
BULK_MAX = 50

Stop = Callable[[JobId, str], Command]


async def cancel_job(context: BatchContext, call: Call) -> dict[str, Any]:
    """CancelJob; unknown, started and finished jobs are left alone without an error."""
    return await _stop(context, call, CancelJob)


async def terminate_job(context: BatchContext, call: Call) -> dict[str, Any]:
    """TerminateJob; unknown and finished jobs are left alone without an error."""
    return await _stop(context, call, TerminateJob)


async def cancel_jobs(context: BatchContext, call: Call) -> dict[str, Any]:
    """CancelJobs: each job by itself, and one answer for all."""
    return await stop_many(context, call, CancelJob)


async def terminate_jobs(context: BatchContext, call: Call) -> dict[str, Any]:
    """TerminateJobs: each job by itself, and one answer for all."""
    return await stop_many(context, call, TerminateJob)


async def _stop(context: BatchContext, call: Call, stop: Stop) -> dict[str, Any]:
    reason = stop_reason(call)
    reference = call.params["jobId"]
    if not reference:
        raise client_exception("'jobId' is a required field (cannot be an empty string)")
    job_id = job_reference(reference)
    if job_id is None and reference.startswith("arn:"):
        raise client_exception(f"Invalid ARN {shown(reference)}")
    if job_id is not None:
        await context.execute(stop(job_id, reason))
    return {}


async def stop_many(
    context: BatchContext, call: Call, stop: Stop, id_of: Callable[[str], JobId | None] = job_reference
) -> dict[str, Any]:
    """Stop up to fifty jobs, each by itself; `id_of` reads what a job is called."""
    reason = stop_reason(call)
    references = call.params["jobs"]
    if not 1 <= len(references) <= BULK_MAX:
        raise client_exception(f"jobs must name 1 to {BULK_MAX} jobs, got {len(references)}")

    async def one(reference: str) -> ApiError | None:
        job_id = id_of(reference)
        if job_id is None:
            return ApiError("ValidationException", f"{shown(reference)!r} is not the id of a job")
        try:
            await context.execute(stop(job_id, reason))
        except ApiError as refusal:
            return refusal
        return None

    # Together, so that they share one commit.
    outcomes = await asyncio.gather(*(one(reference) for reference in references))
    answers = list(zip(references, outcomes, strict=True))
    return {
        "successful": [reference for reference, refusal in answers if refusal is None],
        "errors": [
            {"job": reference, "code": refusal.code, "message": refusal.message}
            for reference, refusal in answers
            if refusal is not None
        ],
    }


def stop_reason(call: Call) -> str:
    """Why, in the caller's words."""
    reason: str = call.params["reason"]
    if not reason:
        raise client_exception("'reason' is a required field (cannot be an empty string)")
    if len(reason) > REASON_MAX:
        raise client_exception(f"reason must have at most {REASON_MAX} characters, got {len(reason)}")
    return reason
