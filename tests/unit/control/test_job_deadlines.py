"""Jobs with a deadline: where they may run, when they move, what they are told."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tests.builders import ADMIN, Submitted, TestWorld, a_definition, a_job, a_world
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import Offer
from windfall.control import events, job_deadlines
from windfall.control.instructions import InterruptAttempt
from windfall.control.why import why
from windfall.deadlines.market import rates_of
from windfall.deadlines.public_prior import public_prior
from windfall.deadlines.solving import solve
from windfall.jobs.attempts import Market, StopCause
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Mark, Progress
from windfall.jobs.states import RUNNABLE, RUNNING, STARTING, SUCCEEDED

MINUTE_MS = 60_000
SPOT, STEADY = EnvironmentName("spot"), EnvironmentName("steady")
ONE = Offer("big", Resources(8, 32_768), 4)


def a_mixed_world(*kinds: tuple[EnvironmentName, Provisioning], **rules) -> TestWorld:
    """A queue whose jobs take spot capacity first, and on-demand capacity else; each instance is a machine."""
    world = a_world(**rules)
    both = kinds or ((SPOT, Provisioning.SPOT), (STEADY, Provisioning.EC2))
    world.offers = {name: (ONE,) for name, _ in both}
    world.happens(
        *(events.CreateComputeEnvironment(ComputeEnvironment(name, kind, 0, 64)) for name, kind in both),
        events.CreateJobQueue(JobQueue(QueueName("queue"), 1, tuple(name for name, _ in both))),
        events.RegisterJobDefinition(a_definition()),
    )
    return world


def due(deadline: str, work: str | None = "2h", job_id: str = "job") -> Submitted:
    job = a_job(job_id).by(ADMIN).tagged(deadline=deadline, checkpoint="file:///checkpoints")
    return job if work is None else job.tagged(work=work)


def reasons(world: TestWorld) -> dict[str, str]:
    answer = why(world.state, world.job("job").id, world.state.offers, world.now)
    assert answer is not None
    return dict(answer.reasons)


def no_spot(world: TestWorld) -> TestWorld:
    world.offers = {**world.offers, SPOT: (replace(ONE, available=0),)}
    return world


def test_with_slack_it_takes_spot_capacity():
    world = a_mixed_world().submits(due("8h")).ready()
    assert world.job("job").attempt.environment == SPOT
    assert "slack 6 h 0 min" in reasons(world)["deadline"]


def test_with_slack_it_waits_for_spot_capacity_although_there_is_other():
    world = no_spot(a_mixed_world()).submits(due("8h")).ready()
    assert world.state_of("job") is RUNNABLE
    assert not world.state.instances
    assert "on spot capacity while slack is more than two changeovers of 4 min" in reasons(world)["deadline"]


def test_one_without_a_deadline_takes_what_there_is():
    world = no_spot(a_mixed_world()).submits(a_job("job")).ready()
    assert world.job("job").attempt.environment == STEADY


def test_when_its_slack_is_used_up_it_pays():
    world = no_spot(a_mixed_world()).submits(due("2h10m")).ready()
    assert world.state_of("job") is RUNNABLE
    # Behind steady progress at once, and without slack for two changeovers soon.
    world.later(2 * MINUTE_MS).ready()
    assert world.job("job").attempt.environment == STEADY
    assert world.job("job").market is Market.ON_DEMAND


def test_the_shield_alone_keeps_a_deadline_without_spot_capacity():
    world = no_spot(a_mixed_world()).submits(due("8h"))
    deadline = world.job("job").submission.deadline
    while world.state_of("job") is RUNNABLE:
        world.later(MINUTE_MS).ready()
    world.starts("job")
    assert world.now + 2 * 60 * MINUTE_MS <= deadline.at


def test_a_job_whose_spot_place_goes_at_the_last_moment_goes_on_demand_at_once():
    world = a_mixed_world().submits(due("2h10m")).ready().starts("job")
    world.later(10 * MINUTE_MS)
    token = world.token("job")
    assert world.job("job").attempt.environment == SPOT
    # Nothing was saved, so ten minutes are lost: no slack is left.
    world.happens(events.AttemptLost(token, world.now))
    assert world.job("job").market is Market.ON_DEMAND
    world.ready()
    assert world.job("job").attempt.environment == STEADY


def test_work_that_takes_longer_moves_it_to_on_demand_capacity_at_no_cost():
    world = a_mixed_world(changeover_s=10.0).submits(due("20m", "10m")).ready().starts("job")
    while world.job("job").attempt.stop_cause is None and world.now < world.job("job").submission.deadline.at:
        world.later(2_000)
    attempt = world.job("job").attempt
    assert attempt.stop_cause is StopCause.MIGRATED
    assert [notice.token for notice in world.asked_for(InterruptAttempt)] == [attempt.token]
    assert "less than two changeovers" in attempt.stop_words
    saved = Mark("0001", world.now, world.now, 10)
    world.happens(replace(world.exit_of("job", 143), checkpoint=saved))
    job = world.job("job")
    assert (job.market, job.charged_attempts) == (Market.ON_DEMAND, 0)
    world.ready()
    assert world.job("job").attempt.environment == STEADY


def test_back_on_spot_capacity_when_it_is_ahead():
    world = no_spot(a_mixed_world(changeover_s=10.0)).submits(due("60m", "20m"))
    while world.state_of("job") is RUNNABLE:
        world.later(10_000).ready()
    world.starts("job")
    world.offers = {**world.offers, SPOT: (ONE,)}
    for _ in range(150):
        world.later(2_000)
        if world.job("job").attempt.stop_cause is not None:
            break
    assert world.job("job").attempt.stop_cause is StopCause.MIGRATED
    assert world.job("job").market is Market.SPOT


def test_a_deadline_is_kept_in_mind_over_a_restart():
    world = no_spot(a_mixed_world()).submits(due("2h10m")).restarted()
    world.places = True
    world.later(3 * MINUTE_MS).ready()
    assert world.job("job").attempt.environment == STEADY


def test_one_that_is_done_is_looked_at_no_more():
    world = a_mixed_world().submits(due("8h")).ready().starts("job").exits("job")
    assert world.state_of("job") is SUCCEEDED
    world.later(60 * MINUTE_MS)
    assert not world.state.deadline_heap
    assert not world.state.deadline_looks


def test_on_one_kind_of_capacity_a_deadline_changes_nothing():
    world = a_mixed_world((STEADY, Provisioning.EC2)).submits(due("8h")).ready()
    assert world.state_of("job") is STARTING
    assert world.job("job").market is None


def test_a_late_job_is_said_to_be_late():
    world = a_mixed_world().submits(due("2h10m")).ready().starts("job")
    world.happens(events.AttemptLost(world.token("job"), world.now))
    world.ready()
    world.later(60 * MINUTE_MS)
    assert "cannot be kept any more" in reasons(world)["deadline_late"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (due("2h"), "The earliest one that can is"),
        (due("8h", None), "Say it with windfall:work"),
        (due("8"), "windfall:deadline must be a time with its zone"),
        (due("2026-11-20T08:00:00"), "windfall:deadline must be a time with its zone"),
        (due("1e400h"), "windfall:deadline must be a time with its zone"),
        (due("8h", "long"), "windfall:work must be how long the job works"),
        (due("8h").array(3), "is for single jobs"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_nothing_changed(job, words):
    world = a_mixed_world()
    with pytest.raises(Invalid, match=words):
        world.submits(job)
    assert not world.state.jobs
    assert not world.state.deadline_heap


def test_spot_capacity_alone_keeps_no_deadline():
    with pytest.raises(Invalid, match="needs a queue with an on-demand compute environment"):
        a_mixed_world((SPOT, Provisioning.SPOT)).submits(due("8h"))


def test_the_length_of_earlier_runs_counts_when_nobody_says():
    world = a_mixed_world().submits(a_job("earlier")).ready().starts("earlier")
    world.later(90 * MINUTE_MS)
    world.exits("earlier")
    world.submits(due("8h", None)).ready()
    assert "about 90 min of work left" in reasons(world)["deadline"]


@cache
def _table(terms):
    return solve(rates_of(None, public_prior()), replace(terms, work_ticks=12, slack_ticks=24))


def test_a_solved_table_decides_and_says_what_the_deadline_costs():
    world = no_spot(a_mixed_world(policy_tables=_table)).submits(due("8h"))
    assert "its deadline costs it about" in reasons(world)["deadline_cost"]
    assert world.state_of("job") is RUNNABLE


def test_running_jobs_are_explained_too():
    world = a_mixed_world().submits(due("8h")).ready().starts("job")
    assert world.state_of("job") is RUNNING
    assert list(reasons(world)) == ["running", "deadline"]


def test_the_tags_of_a_live_job_cannot_change_its_deadline():
    world = a_mixed_world().submits(due("8h"))
    before = world.job("job").submission
    with pytest.raises(Invalid, match="windfall:deadline is fixed when a job is submitted"):
        world.happens(events.TagResource("job", "job", {"windfall:deadline": "9h"}, ()))
    assert world.job("job").submission == before


def test_one_round_looks_at_some_of_very_many_jobs_and_a_late_one_is_looked_at_less_often(monkeypatch):
    monkeypatch.setattr(job_deadlines, "LOOKS_OF_A_ROUND", 3)
    world = no_spot(a_mixed_world()).submits(*(due("10m", "1s", f"job-{n}") for n in range(5)))
    first = min(world.state.deadline_looks.values())
    world.later(first - world.now)
    assert sum(at == first for at in world.state.deadline_looks.values()) == 2, "they are due still"
    world.later(3_600_000)
    world.later(1_000)
    assert min(world.state.deadline_looks.values()) >= world.now + 50_000


def test_steps_that_it_counts_say_more_than_what_was_said():
    world = a_mixed_world().submits(due("8h", "2h")).ready().starts("job")
    world.later(10 * MINUTE_MS)
    began = world.now - 10 * MINUTE_MS
    counted = Progress(at=world.now, step=1001, steps=31_001, first_step_at=began)
    world.happens(events.AttemptProgressed(world.token("job"), world.now, progress=counted))
    # Too few of them yet, so the longer of both counts: 30,000 steps at 0.6 s each.
    assert "about 5 h 0 min of work left" in reasons(world)["deadline"]
    world.happens(
        events.AttemptProgressed(
            world.token("job"), world.now, progress=replace(counted, at=world.now + 1, steps=2001)
        )
    )
    assert "about 10 min of work left" in reasons(world)["deadline"]
