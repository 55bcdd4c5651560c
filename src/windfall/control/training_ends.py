"""How a training job ended: its final status and the reason for a failure, in SageMaker's words and classes.

Decides from the job's own record. The wire shows it, and the retry rules of service jobs are compared with it, so it
is the core's. Must not know the wire's form.
"""

from __future__ import annotations

from windfall.control.limits import PENDING_TIME, RUN_TIME, WAIT_TIME
from windfall.jobs.attempts import Attempt, StopCause
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED, SUCCEEDED

REASON_MAX = 1024
ALGORITHM, CLIENT, INTERNAL = "AlgorithmError: ", "ClientError: ", "InternalServerError: "
CAPACITY = "CapacityError: "
_CLASSES = (ALGORITHM, CLIENT, INTERNAL, CAPACITY)
#: How the core's words for a spent budget begin.
_BUDGET = "Budget of "


def final_status(job: Job) -> tuple[str, str]:
    """TrainingJobStatus and SecondaryStatus of a job that has ended."""
    if job.state is SUCCEEDED:
        return "Completed", "Completed"
    last = job.tries[-1] if job.tries else None
    cause = None if last is None else last.stop_cause
    if job.status_reason == RUN_TIME or cause is StopCause.RUN_TIME:
        return "Stopped", RUN_TIME
    if job.status_reason == WAIT_TIME or cause is StopCause.WAIT_TIME:
        return "Stopped", WAIT_TIME
    if job.terminated or job.cancelled or cause is StopCause.TERMINATED:
        return "Stopped", "Stopped"
    if job.status_reason == PENDING_TIME or is_budget_spent(job):
        return "Stopped", "Stopped"
    return "Failed", "Failed"


def final_message(job: Job) -> str:
    """The last sentence that SageMaker says about a job."""
    secondary = final_status(job)[1]
    if secondary == "Completed":
        return "Training job completed"
    if secondary == RUN_TIME:
        return "Training job runtime exceeded MaxRuntimeInSeconds provided"
    if secondary == WAIT_TIME:
        return "Training job wait time exceeded MaxWaitTimeInSeconds provided"
    if secondary == "Failed":
        return "Training job failed"
    if job.status_reason == PENDING_TIME:
        return "Training job stopped: no capacity within MaxPendingTimeInSeconds"
    return f"Training job stopped: {job.status_reason}" if is_budget_spent(job) else "Training job stopped"


def is_budget_spent(job: Job) -> bool:
    """Whether it ended because it had spent what its tag allows."""
    return job.status_reason is not None and job.status_reason.startswith(_BUDGET)


def has_failed(job: Job) -> bool:
    """Whether a job ended by a fault, its own or ours."""
    return job.state is FAILED and final_status(job)[0] == "Failed"


def lacked_capacity(job: Job) -> bool:
    """Whether a job ended because it had no instances, and so through no fault of its own."""
    if has_failed(job):
        return failure_reason(job).startswith(CAPACITY)
    return job.state is FAILED and not job.attempts


def failure_reason(job: Job) -> str:
    """Why a job failed, in at most 1,024 characters."""
    if not job.attempts:
        return f"{CLIENT}{job.status_reason or 'the job never started'}"[:REASON_MAX]
    last = job.tries[-1]
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
