"""News of attempts: what is noted, what is written at once, and what may wait."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_busy_world, a_job
from windfall.control import events
from windfall.control.reactor import handle
from windfall.control.round import Round
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import AttemptToken, JobId
from windfall.jobs.staging import MARKS_MAX, Mark, Progress
from windfall.jobs.storage import StorageLayout


@pytest.fixture
def world() -> TestWorld:
    world = a_busy_world(storage=StorageLayout("s3://bucket"))
    return world.submits(a_job("a").tagged(checkpoint="true")).starts("a")


def written(world: TestWorld, **news) -> bool:
    """Whether a report of this news writes the job."""
    round_ = Round(world.now)
    handle(world.state, events.AttemptProgressed(world.token("a"), world.now, **news), round_)
    return bool(round_.changes)


def known(world: TestWorld) -> Attempt:
    attempt = world.state.jobs[JobId("a")].attempt
    assert attempt is not None
    return attempt


def a_mark(step: int, at: int = 0) -> Mark:
    return Mark(f"step-{step}", at, at, 100, step)


def test_what_lasts_is_written_at_once(world):
    assert written(world, restored=a_mark(1))
    assert written(world, checkpoint=a_mark(2))
    assert written(world, commit="4f2a91c")
    assert written(world, alarm="the object store does not answer")
    assert written(world, exited_at=world.now)
    attempt = known(world)
    assert (attempt.restored, attempt.checkpoint, attempt.commit) == (a_mark(1), a_mark(2), "4f2a91c")
    assert (attempt.exited_at, attempt.alarm) == (world.now, None)


def test_the_same_again_is_not_written(world):
    written(world, checkpoint=a_mark(2))
    assert not written(world, checkpoint=a_mark(2))
    assert not written(world)


def test_progress_is_noted_always_and_written_every_few_seconds(world):
    assert written(world, progress=Progress(1, 1))
    writes = 0
    for second in range(1, 61):
        world.now += 1_000
        writes += written(world, progress=Progress(second + 1, second + 1))
        assert known(world).progress == Progress(second + 1, second + 1)
    assert writes == 12


def test_the_loss_becomes_a_curve_of_a_bounded_number_of_points(world):
    for second in range(1, 5_001):
        world.now += 1_000
        written(world, progress=Progress(second, second, loss=1 / second))
    losses = known(world).losses
    assert 100 <= len(losses) <= MARKS_MAX + 1
    assert losses[0] == (1, 1, 1.0)
    assert losses[-1][0] > 4_990
    assert list(losses) == sorted(losses)


def test_that_something_is_being_done_is_news_and_how_far_it_is_can_wait(world):
    assert written(world, doing="uploading 1 %")
    assert not written(world, doing="uploading 2 %")
    assert known(world).doing == "uploading 2 %"
    assert written(world)
    assert known(world).doing is None


def test_an_older_checkpoint_does_not_replace_a_newer_one(world):
    written(world, checkpoint=a_mark(5, at=50), progress=Progress(50, 5))
    assert not written(world, checkpoint=a_mark(4, at=40), progress=Progress(40, 4))
    assert (known(world).checkpoint, known(world).progress) == (a_mark(5, at=50), Progress(50, 5))


def test_a_superseded_attempt_changes_nothing(world):
    before = world.picture()
    world.happens(events.AttemptProgressed(AttemptToken("a#7"), world.now, checkpoint=a_mark(9)))
    assert world.state == before
    assert not world.instructions


def test_the_end_brings_what_was_last_known(world):
    written(world, checkpoint=a_mark(5, at=50))
    token = world.token("a")
    world.happens(
        events.AttemptExited(
            token,
            world.now + 9,
            1,
            None,
            world.now,
            exited_at=world.now + 4,
            checkpoint=a_mark(6, at=60),
            progress=Progress(60, 6),
            failure="AlgorithmError: out of ideas",
        )
    )
    attempt = world.job("a").attempts[0]
    assert (attempt.exited_at, attempt.stopped_at) == (attempt.placed_at + 4, attempt.placed_at + 9)
    assert (attempt.checkpoint, attempt.failure) == (a_mark(6, at=60), "AlgorithmError: out of ideas")
    assert not world.state.progress_written


def test_when_all_had_been_brought_is_kept(world):
    world.submits(a_job("b").tagged(checkpoint="true"))
    world.happens(events.AttemptStarted(world.token("b"), world.now + 7, None, world.now + 5))
    attempt = world.job("b").attempts[0]
    assert (attempt.prepared_at, attempt.started_at) == (world.now + 5, world.now + 7)
