"""FailureReason: whose fault it was, in SageMaker's classes, and what the agent saw of it.

Decides class and text from how the last attempt ended. Pure. Must not know statuses.
"""

from __future__ import annotations

from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job

REASON_MAX = 1024
ALGORITHM, CLIENT, INTERNAL = "AlgorithmError: ", "ClientError: ", "InternalServerError: "
_CLASSES = (ALGORITHM, CLIENT, INTERNAL, "CapacityError: ")


def failure_reason(job: Job) -> str:
    """Why a job failed, in at most 1,024 characters."""
    if not job.attempts:
        return f"{CLIENT}{job.status_reason or 'the job never started'}"[:REASON_MAX]
    last = job.attempts[-1]
    seen = _seen(last)
    return _of_attempt(last, REASON_MAX - len(seen)) + seen


def _of_attempt(attempt: Attempt, room: int) -> str:
    reason = attempt.reason or ""
    if reason.startswith(_CLASSES):
        return reason[:room]
    if attempt.exit_code is not None:
        # What the program itself wrote comes first, then what killed it.
        said = attempt.failure or reason
        return _algorithm_error(said, attempt.exit_code, room)
    if attempt.interrupted:
        text = f"{INTERNAL}We encountered an internal error. Please try again. ({attempt.status_reason})"
    else:
        text = f"{CLIENT}{reason or attempt.status_reason or 'the job could not be started'}"
    return text[:room]


def _seen(attempt: Attempt) -> str:
    """The diagnosis, for a program that has not said itself why it failed."""
    found = attempt.diagnosis
    if found is None or attempt.failure:
        return ""
    if found.evidence in (attempt.reason or ""):
        return f" ({found.cause})"
    return f" ({found.cause}: {found.evidence})"


def _algorithm_error(said: str, exit_code: int, room: int) -> str:
    ending = f", exit code: {exit_code}"
    return f"{ALGORITHM}{said[: room - len(ALGORITHM) - len(ending)]}{ending}"
