"""How long a job still works by its own count: the steps that are left, at the pace of those that were done.

What a program says of itself is believed only as far as it goes: without steps in all, or before it has done a few,
there is no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windfall.jobs.attempts import Attempt

#: A pace of fewer steps than this says nothing yet.
_LEAST_STEPS = 3
#: From this part of all steps on, the pace says more than a person could.
_SURE_FROM = 0.05


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """What is left by the steps."""

    seconds: float
    #: Whether enough steps were done for their pace to be that of the rest.
    sure: bool


def left_by_steps(attempts: Sequence[Attempt], now: int) -> WorkLeft | None:
    """The work that is left of a job; None when its steps do not say."""
    newest_first = attempts[::-1]
    steps = next(
        (attempt.progress.steps for attempt in newest_first if attempt.progress and attempt.progress.steps),
        None,
    )
    paced = next(((pace, attempt) for attempt in newest_first if (pace := _pace(attempt)) is not None), None)
    if steps is None or paced is None:
        return None
    (done, step_s), by = paced
    seconds = max(0, steps - _stands_at(attempts)) * step_s
    if by is attempts[-1] and by.stopped_at is None and by.progress is not None:
        seconds -= max(0, (by.exited_at or now) - by.progress.at) / 1000
    return WorkLeft(max(0.0, seconds), sure=done >= steps * _SURE_FROM)


def _pace(attempt: Attempt) -> tuple[int, float] | None:
    """The steps that an attempt has done since its first, and the seconds of each."""
    progress = attempt.progress
    if progress is None or progress.step is None or progress.first_step_at is None:
        return None
    done = progress.step - (progress.restored_step or 0) - 1
    took_ms = progress.at - progress.first_step_at
    return (done, took_ms / 1000 / done) if done >= _LEAST_STEPS and took_ms > 0 else None


def _stands_at(attempts: Sequence[Attempt]) -> int:
    """The step that a job goes on from: where it runs, or what is saved."""
    last = attempts[-1]
    if last.stopped_at is None and last.progress is not None and last.progress.step is not None:
        return last.progress.step
    saved = [
        mark.step
        for attempt in attempts
        for mark in (attempt.restored, attempt.checkpoint)
        if mark is not None
    ]
    return max((step for step in saved if step is not None), default=0)
