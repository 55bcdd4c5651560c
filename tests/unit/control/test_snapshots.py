"""When the scheduler may count on a place that somebody still has."""

from __future__ import annotations

from tests.builders import a_busy_world, a_job
from windfall.control.interrupting import grace_of
from windfall.control.snapshots import make_snapshot
from windfall.jobs.attempts import StopCause


def test_a_timeout_gives_a_place_back_when_the_grace_after_it_is_over_and_not_before():
    world = a_busy_world()
    world.submits(a_job("a").limited_to(60)).starts("a")
    [promised] = given_back(world)
    attempt = world.job("a").attempt
    assert promised == attempt.started_at + 60_000 + grace_of(world.state, world.job("a")) * 1000
    world.later(60_000)
    assert world.job("a").attempt.stop_cause is StopCause.TIMED_OUT
    assert given_back(world) == [promised], "it has been asked to stop by now, and the promise is the same"


def test_nobody_knows_when_a_job_without_a_timeout_or_without_a_process_ends():
    world = a_busy_world()
    world.submits(a_job("a"), a_job("b").limited_to(60)).starts("a")
    assert given_back(world) == [None, None]


def given_back(world) -> list[int | None]:
    snapshot = make_snapshot(world.state, {}, world.now)
    return [release.at for instance in snapshot.instances for release in instance.releases]
