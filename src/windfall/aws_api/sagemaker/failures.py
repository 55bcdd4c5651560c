"""FailureReason: whose fault it was, in SageMaker's classes, and what can be done.

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
    last = job.attempts[-1] if job.attempts else None
    text = (
        _of_attempt(last) if last is not None else f"{CLIENT}{job.status_reason or 'the job never started'}"
    )
    return text[:REASON_MAX]


def _of_attempt(attempt: Attempt) -> str:
    reason = attempt.reason or ""
    if reason.startswith(_CLASSES):
        return reason
    if attempt.exit_code is not None:
        # What the program itself wrote comes first, then what killed it.
        said = attempt.failure or reason
        return _algorithm_error(said, attempt.exit_code)
    if attempt.interrupted:
        return f"{INTERNAL}We encountered an internal error. Please try again. ({attempt.status_reason})"
    return f"{CLIENT}{reason or attempt.status_reason or 'the job could not be started'}"


def _algorithm_error(said: str, exit_code: int) -> str:
    ending = f", exit code: {exit_code}"
    room = REASON_MAX - len(ALGORITHM) - len(ending)
    return f"{ALGORITHM}{said[:room]}{ending}"
