"""SecondaryStatusTransitions: a training job's life, from the time stamps of its attempts.

Decides which stage a job is in and since when, with SageMaker's words for each. Stages follow one another
without a gap and never become fewer, because clients print what is new by counting. Pure. Must not know the
wire's form of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from windfall.aws_api.sagemaker.documents import Document
from windfall.aws_api.sagemaker.endings import final_message, final_status
from windfall.jobs.attempts import TAKEN_AWAY, Attempt, StopCause
from windfall.jobs.job import Job

STARTING = "Starting the training job."
NO_CAPACITY = "Insufficient capacity error from EC2 while launching instances, retrying!"
PREPARING = "Preparing the instances for training."
DOWNLOADING = "Downloading input data"
TRAINING = "Training image download completed. Training in progress."
UPLOADING = "Uploading generated training model"
STOPPING = "Stopping the training job"

_ASKED_TO_STOP = frozenset(
    {
        StopCause.TERMINATED,
        StopCause.TIMED_OUT,
        StopCause.RUN_TIME,
        StopCause.WAIT_TIME,
        StopCause.BUDGET,
    }
)


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition: a secondary status, from when to when (None for the present one), and its message."""

    status: str
    since: int
    until: int | None
    message: str


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Why a job that waits has no place, as the scheduler explains it."""

    #: Whether it is for lack of capacity that could be launched.
    for_capacity: bool = False
    text: str | None = None


def stages(job: Job, document: Document, waiting: WaitingReason | None = None) -> list[Transition]:
    """A job's life so far, the present stage last."""
    return list(_in_order(_transitions(job, document, waiting or WaitingReason())))


def is_interrupted(attempt: Attempt) -> bool:
    """Whether an attempt ended, or is ending, because its capacity went away."""
    if attempt.stopped_at is not None:
        return attempt.interrupted
    return attempt.stop_cause in TAKEN_AWAY


def _transitions(job: Job, document: Document, waiting: WaitingReason) -> Iterator[Transition]:
    since = job.created_at
    tries = job.tries
    for attempt in tries:
        yield Transition("Starting", since, attempt.placed_at, _noted(PREPARING, document.capacity_note))
        yield from _attempt(attempt, document)
        since = attempt.stopped_at or since
    if job.finished:
        yield from _end(job, since)
    elif not tries or tries[-1].stopped_at is not None:
        yield Transition(
            "Starting", since, None, _noted(_waiting_message(job, waiting), document.capacity_note)
        )


def _attempt(attempt: Attempt, document: Document) -> Iterator[Transition]:
    """From the place to the end of one attempt."""
    ended = attempt.exited_at or attempt.stopped_at
    asked_at = attempt.stop_at if attempt.stop_cause in _ASKED_TO_STOP else None
    works_until = asked_at if asked_at is not None else ended
    started = attempt.started_at
    downloads_until = started if started is not None else works_until
    yield Transition("Downloading", attempt.placed_at, downloads_until, _download_message(attempt))
    if started is not None:
        yield Transition("Training", started, works_until, _training_message(attempt, document))
    if works_until is None:
        return
    if asked_at is not None:
        yield Transition("Stopping", asked_at, attempt.stopped_at, _stopping_message(attempt))
    elif is_interrupted(attempt):
        yield Transition("Interrupted", works_until, attempt.stopped_at, _interruption_message(attempt))
    elif attempt.exited_at is not None:
        yield Transition("Uploading", attempt.exited_at, attempt.stopped_at, UPLOADING)


def _end(job: Job, since: int) -> Iterator[Transition]:
    at = job.stopped_at or since
    _, secondary = final_status(job)
    last = job.tries[-1] if job.tries else None
    waited = last is None or last.stop_cause not in _ASKED_TO_STOP
    if secondary not in ("Completed", "Failed") and waited:
        # It ended while it waited for a place: nothing had to be stopped.
        yield Transition("Starting", since, at, STARTING)
        yield Transition("Stopping", at, at, STOPPING)
    elif last is None:
        yield Transition("Starting", since, at, STARTING)
    yield Transition(secondary, at, at, final_message(job))


def _in_order(transitions: Iterator[Transition]) -> Iterator[Transition]:
    """The same with times that never go back: they come from clocks of two programs."""
    reached = 0
    for stage in transitions:
        since = max(stage.since, reached)
        until = None if stage.until is None else max(stage.until, since)
        reached = since if until is None else until
        yield replace(stage, since=since, until=until)


def _noted(message: str, note: str | None) -> str:
    return message if note is None else f"{message} Note: {note}."


def _waiting_message(job: Job, waiting: WaitingReason) -> str:
    if waiting.for_capacity:
        return NO_CAPACITY
    last = job.tries[-1] if job.tries else None
    message = STARTING
    if last is not None and not is_interrupted(last):
        message = f"Starting the training job again: {last.reason or last.status_reason or 'it could not be started'}."
    return message if waiting.text is None else f"{message} It waits: {waiting.text}."


def _download_message(attempt: Attempt) -> str:
    if attempt.started_at is None and attempt.stopped_at is None and attempt.doing:
        return f"{DOWNLOADING} ({attempt.doing})"
    return DOWNLOADING


def _training_message(attempt: Attempt, document: Document) -> str:
    # A container has its image, and there is nothing to say about what stands in for it.
    message = _noted(TRAINING, None if attempt.was_container else document.program_note)
    if attempt.restored is not None:
        message += f" Resumed from checkpoint {attempt.restored.name}."
    if attempt.stopped_at is None:
        if attempt.alarm:
            message += f" Checkpoints are not safe: {attempt.alarm}."
        if attempt.stop_cause in TAKEN_AWAY:
            message += f" Its capacity is being taken away{_by(attempt)}."
    return message


def _interruption_message(attempt: Attempt) -> str:
    saved = "; what it had saved is kept" if attempt.checkpoint is not None else ""
    return f"The capacity was taken away{_by(attempt)}{saved}."


def _by(attempt: Attempt) -> str:
    return f" ({attempt.stop_words})" if attempt.stop_words else ""


def _stopping_message(attempt: Attempt) -> str:
    if attempt.stop_cause is StopCause.RUN_TIME:
        return f"{STOPPING}: MaxRuntimeInSeconds is over"
    if attempt.stop_cause is StopCause.WAIT_TIME:
        return f"{STOPPING}: MaxWaitTimeInSeconds is over"
    return STOPPING
