"""How long a job still works, by the steps that it counts."""

from __future__ import annotations

from tests.unit.jobs.test_attempts import an_attempt
from windfall.jobs.attempts import Attempt
from windfall.jobs.pace import left_by_steps
from windfall.jobs.staging import Mark, Progress


def a_try(
    step: int | None, *, at: int = 110_000, steps: int | None = 1000, restored: int | None = None, **more
) -> Attempt:
    """A try whose first step was at 10 s."""
    said = Progress(at=at, step=step, steps=steps, first_step_at=10_000, restored_step=restored)
    return an_attempt(started_at=5_000, progress=said, **more)


def seconds(*attempts: Attempt, now: int = 110_000) -> float | None:
    left = left_by_steps(attempts, now)
    return None if left is None else round(left.seconds, 3)


def test_the_rest_takes_as_long_a_step_as_those_that_were_done():
    assert seconds(a_try(101)) == 899.0
    # Ten seconds after it was said, ten seconds less are left, and never less than none.
    assert seconds(a_try(101), now=120_000) == 889.0
    assert seconds(a_try(101), now=10**9) == 0.0


def test_without_steps_in_all_or_a_pace_there_is_no_answer():
    assert seconds() is None
    assert seconds(an_attempt(started_at=1)) is None
    assert seconds(a_try(101, steps=None)) is None
    assert seconds(a_try(None)) is None
    assert seconds(a_try(2)) is None
    assert seconds(a_try(101, at=10_000)) is None


def test_a_resumed_try_counts_its_own_steps():
    assert seconds(a_try(501, restored=400)) == 499.0


def test_between_tries_it_goes_on_from_what_is_saved():
    ended = a_try(101, stopped_at=111_000, checkpoint=Mark("c", 100_000, 100_000, 10, 90))
    assert seconds(ended, now=10**9) == 910.0
    assert seconds(a_try(101, stopped_at=111_000), now=10**9) == 1000.0
    # One that has begun and not yet done a step goes by the pace of the one before.
    assert seconds(ended, an_attempt(started_at=120_000), now=125_000) == 910.0


def test_it_is_sure_from_a_twentieth_of_the_steps_on():
    few, enough = left_by_steps([a_try(50)], 0), left_by_steps([a_try(51)], 0)
    assert few is not None
    assert enough is not None
    assert (few.sure, enough.sure) == (False, True)
