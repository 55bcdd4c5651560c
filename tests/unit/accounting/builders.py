"""Attempts and jobs with the stamps that a test names, in seconds after the job's creation."""

from __future__ import annotations

from typing import Any

from windfall.jobs.attempts import Attempt, Market, StopCause
from windfall.jobs.ids import JobId, attempt_token, task_id
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.staging import Mark, Progress
from windfall.jobs.states import JobState

START = 1_700_000_000_000
_STAMPS = ("placed", "prepared", "started", "exited", "stopped", "stop")


def at(seconds: float) -> int:
    return START + round(seconds * 1000)


def a_mark(state: float, committed: float | None = None, step: int | None = None) -> Mark:
    return Mark(f"step-{step}", at(state if committed is None else committed), at(state), 1024, step)


def progress(step: int | None = None, first_step: float | None = None, stall_s: float = 0.0) -> Progress:
    return Progress(at(0), step, None if first_step is None else at(first_step), stall_s=stall_s)


def an_attempt(number: int = 1, **stamps: Any) -> Attempt:
    """`an_attempt(placed=10, started=12, stopped=60, exit_code=0)`; stamps are seconds after START."""
    token = attempt_token(JobId("job"), number)
    placed = at(stamps.pop("placed", 0))
    times = {f"{name}_at": at(stamps.pop(name)) for name in _STAMPS if name in stamps}
    return Attempt(number, token, task_id(token, placed), "ce", "i-1", (), "log", placed, **times, **stamps)


def an_interrupted(number: int = 1, **stamps: Any) -> Attempt:
    """An attempt on the spot market that lost its place."""
    ended = {"exit_code": 143, "stop_cause": StopCause.INTERRUPTED, "market": Market.SPOT}
    return an_attempt(number, **ended | stamps)


def a_job(*attempts: Attempt, stopped: float | None = None, **submission: Any) -> Job:
    """A job created at START: finished when `stopped` is given, else live."""
    resources = submission.pop("resources", Resources(4, 1024))
    queue = submission.pop("queue", "queue")
    return Job(
        JobId(submission.pop("id", "job")),
        Submission("train", queue, "work:1", resources, RetryStrategy(), **submission),
        JobState.RUNNING if stopped is None else JobState.SUCCEEDED,
        START,
        stopped_at=None if stopped is None else at(stopped),
        attempts=list(attempts),
    )
