"""Windfall's own operations for interruptions: interrupt a job or instance, and list a job's attempts.

Turns domain values into plain JSON and back; decides nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.events import InterruptInstance, InterruptJob
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.attempts import Attempt
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import InstanceId, JobId
from windfall.jobs.staging import Mark, Progress

NOTICE_MAX_S = 86_400.0


class Interruptions:
    """The handlers, over the control loop."""

    def __init__(self, loop: TenantGateway, notice_s: float) -> None:
        self._loop = loop
        self._notice_s = notice_s

    async def interrupt(self, call: Call) -> dict[str, Any]:
        """Take a job's or an instance's place away, with notice."""
        notice_s = _notice_s(call.params.get("noticeS"), self._notice_s)
        job, instance = call.params.get("jobId"), call.params.get("instance")
        if (not isinstance(job, str) or not job) == (not isinstance(instance, str) or not instance):
            raise ApiError(
                "Invalid", "Either jobId or instance is required (a non-empty string), and not both."
            )
        command: InterruptJob | InterruptInstance
        if isinstance(job, str) and job:
            command = InterruptJob(JobId(job), notice_s)
        else:
            command = InterruptInstance(InstanceId(str(instance)), notice_s)
        try:
            noticed: int = await self._loop.execute(command)
        except Rejected as rejected:
            raise ApiError("Rejected", str(rejected)) from None
        return {"noticed": noticed, "noticeS": notice_s}

    async def attempts(self, call: Call) -> dict[str, Any]:
        """All attempts of a job, with what AWS has no field for."""
        job_id = call.params.get("jobId")
        if not isinstance(job_id, str) or not job_id:
            raise ApiError("Invalid", "jobId is required (a non-empty string).")
        jobs = await self._loop.read(lambda store: store.jobs([JobId(job_id)]))
        if not jobs:
            raise ApiError("NotFound", f"There is no job {job_id}; `windfall jobs --all` lists them.", 404)
        job = jobs[0]
        staging = job.submission.staging
        return {
            "jobId": job.id,
            "checkpointUri": staging.checkpoints.uri if staging and staging.checkpoints else None,
            "attempts": [_attempt(attempt) for attempt in job.attempts],
        }


def _notice_s(value: Any, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= NOTICE_MAX_S:
        raise ApiError(
            "Invalid", f"noticeS must be seconds between 0 and {NOTICE_MAX_S:,.0f}, not {value!r}."
        )
    return float(value)


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "environment": attempt.environment,
        "instance": attempt.instance,
        "instanceType": attempt.instance_type,
        "market": attempt.market,
        "usdHour": attempt.usd_hour,
        "placedAt": attempt.placed_at,
        "preparedAt": attempt.prepared_at,
        "startedAt": attempt.started_at,
        "exitedAt": attempt.exited_at,
        "stoppedAt": attempt.stopped_at,
        "stopAt": attempt.stop_at,
        "stopCause": attempt.stop_cause,
        "stopWords": attempt.stop_words,
        "deadlineAt": attempt.deadline_at,
        "exitCode": attempt.exit_code,
        "reason": attempt.reason,
        "statusReason": attempt.status_reason,
        "doing": attempt.doing,
        "alarm": attempt.alarm,
        "commit": attempt.commit,
        "restored": shown_mark(attempt.restored),
        "checkpoint": shown_mark(attempt.checkpoint),
        "progress": _progress(attempt.progress),
        "leftFiles": None if attempt.left is None else asdict(attempt.left),
    }


def shown_mark(mark: Mark | None) -> dict[str, Any] | None:
    """A checkpoint in plain JSON."""
    if mark is None:
        return None
    return {
        "name": mark.name,
        "at": mark.at,
        "stateAt": mark.state_at,
        "bytes": mark.bytes,
        "step": mark.step,
    }


def _progress(progress: Progress | None) -> dict[str, Any] | None:
    if progress is None:
        return None
    return {
        "at": progress.at,
        "step": progress.step,
        "firstStepAt": progress.first_step_at,
        "restoredStep": progress.restored_step,
        "savedStep": progress.saved_step,
        "stallS": progress.stall_s,
        "stepsRedone": progress.steps_redone,
        "loss": progress.loss,
    }
