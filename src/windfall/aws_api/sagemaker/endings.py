"""How a training job ended, in SageMaker's words: its final status, its last message, the reason for a failure.

The core says why (control/training_ends.py); this says it as SageMaker does, also for the core where clients compare
such words with their rules. Pure. Must not know the wire's form.
"""

from __future__ import annotations

from dataclasses import dataclass

from windfall.control.training_ends import TrainingEnd, end_of
from windfall.jobs.attempts import ML_ROOT_ELSEWHERE, Attempt, StopCause
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED

REASON_MAX = 1024
#: What AWS Batch puts before SageMaker's words. Rules of the SageMaker SDK lack the blank, so it does not count there.
RECEIVED = "Received status from SageMaker: "
RUN_TIME, WAIT_TIME, PENDING_TIME = "MaxRuntimeExceeded", "MaxWaitTimeExceeded", "MaxPendingTimeExceeded"
ALGORITHM, CLIENT, INTERNAL = "AlgorithmError: ", "ClientError: ", "InternalServerError: "
_CLASSES = (ALGORITHM, CLIENT, INTERNAL)
_LIMIT_WORDS = {
    StopCause.RUN_TIME: RUN_TIME,
    StopCause.WAIT_TIME: WAIT_TIME,
    StopCause.PENDING_TIME: PENDING_TIME,
}
#: Older records tell a limit by its word alone, and a spent budget by how the core's words for it begin.
_BY_WORD = {
    RUN_TIME: TrainingEnd.RUN_TIME,
    WAIT_TIME: TrainingEnd.WAIT_TIME,
    PENDING_TIME: TrainingEnd.PENDING_TIME,
}
_BUDGET = "Budget of "
_STATUSES = {
    TrainingEnd.COMPLETED: ("Completed", "Completed"),
    TrainingEnd.RUN_TIME: ("Stopped", RUN_TIME),
    TrainingEnd.WAIT_TIME: ("Stopped", WAIT_TIME),
    TrainingEnd.FAULT: ("Failed", "Failed"),
}
_STOPPED = ("Stopped", "Stopped")
_MESSAGES = {
    TrainingEnd.COMPLETED: "Training job completed",
    TrainingEnd.RUN_TIME: "Training job runtime exceeded MaxRuntimeInSeconds provided",
    TrainingEnd.WAIT_TIME: "Training job wait time exceeded MaxWaitTimeInSeconds provided",
    TrainingEnd.PENDING_TIME: "Training job stopped: no capacity within MaxPendingTimeInSeconds",
    TrainingEnd.FAULT: "Training job failed",
    TrainingEnd.STOPPED: "Training job stopped",
}


@dataclass(frozen=True, slots=True)
class SageMakerTexts:
    """What the core says of training jobs, as SageMaker and the queues in front of it say it."""

    def limit_reached(self, cause: StopCause) -> str:
        """The secondary status that stands for a limit."""
        return _LIMIT_WORDS[cause]

    def training_ended(self, training: Job) -> str:
        """The reason for a failure, or the last message."""
        words = failure_reason(training) if has_failed(training) else final_message(training)
        return f"{RECEIVED}{words}"

    def training_refused(self, reason: str) -> str:
        """The refusal, as an answer of SageMaker."""
        return f"{RECEIVED}{reason}"

    def comparable(self, text: str) -> str:
        """The text with the blank after the prefix left out, so that rules with and without it match."""
        bare = RECEIVED.rstrip()
        return f"{bare}{text.removeprefix(bare).lstrip()}" if text.startswith(bare) else text


def final_status(job: Job) -> tuple[str, str]:
    """TrainingJobStatus and SecondaryStatus of a job that has ended."""
    return _STATUSES.get(_end(job), _STOPPED)


def final_message(job: Job) -> str:
    """The last sentence that SageMaker says about a job."""
    end = _end(job)
    return f"Training job stopped: {job.status_reason}" if end is TrainingEnd.BUDGET else _MESSAGES[end]


def has_failed(job: Job) -> bool:
    """Whether a job ended by a fault, its own or ours."""
    return job.state is FAILED and _end(job) is TrainingEnd.FAULT


def failure_reason(job: Job) -> str:
    """Why a job failed, in at most 1,024 characters."""
    if not job.attempts:
        return f"{CLIENT}{job.status_reason or 'the job never started'}"[:REASON_MAX]
    last = job.tries[-1]
    seen = _seen(last)
    return _of_attempt(last, REASON_MAX - len(seen)) + seen


def _end(job: Job) -> TrainingEnd:
    end, word = end_of(job), job.status_reason or ""
    if end is not TrainingEnd.FAULT:
        return end
    return TrainingEnd.BUDGET if word.startswith(_BUDGET) else _BY_WORD.get(word, end)


def _of_attempt(attempt: Attempt, room: int) -> str:
    reason = attempt.reason or ""
    if reason.startswith(_CLASSES):
        return reason[:room]
    if attempt.is_unstored:
        return f"{CLIENT}{reason}"[:room]
    if attempt.exit_code is not None:
        # What the program itself wrote comes first, then what killed it.
        said = attempt.failure or reason or _ml_root_missing(attempt)
        return _algorithm_error(said, attempt.exit_code, room)
    if attempt.interrupted:
        text = f"{INTERNAL}We encountered an internal error. Please try again. ({attempt.status_reason})"
    else:
        text = f"{CLIENT}{reason or attempt.status_reason or 'the job could not be started'}"
    return text[:room]


def _ml_root_missing(attempt: Attempt) -> str:
    """What may be wrong with a program that says nothing, where /opt/ml could not be made; its agent's words say so."""
    if ML_ROOT_ELSEWHERE not in (attempt.isolation or ""):
        return ""
    return (
        "no sandbox can be made on this machine, so /opt/ml is not there (SAGEMAKER_BASE_DIR says where its files are);"
        " install bubblewrap, permit namespaces, or run the job in a container of its image"
    )


def _seen(attempt: Attempt) -> str:
    """The diagnosis, for a program that has not said itself why it failed."""
    diagnosis = attempt.diagnosis
    if diagnosis is None or attempt.failure:
        return ""
    if diagnosis.evidence in (attempt.reason or ""):
        return f" ({diagnosis.cause})"
    return f" ({diagnosis.cause}: {diagnosis.evidence})"


def _algorithm_error(said: str, exit_code: int, room: int) -> str:
    ending = f", exit code: {exit_code}"
    return f"{ALGORITHM}{said[: room - len(ALGORITHM) - len(ending)]}{ending}"
