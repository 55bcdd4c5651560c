"""What a job may spend, and how long a training job may wait and run, over all its attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TestWorld, a_busy_world, a_job, a_machine, a_world
from tests.unit.control.trainings import a_training
from windfall.accounting.ledger import spent_usd
from windfall.accounting.prices import Rates
from windfall.capacity.machines import Offer
from windfall.control import events
from windfall.control.instructions import InterruptAttempt, StopAttempt
from windfall.control.timekeeping import next_due
from windfall.jobs.attempts import Market, StopCause
from windfall.jobs.errors import Invalid
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED
from windfall.jobs.storage import StorageLayout

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> TestWorld:
    """A GPU of this host costs 6 dollars an hour: ten cents a minute."""
    rates = Rates(usd_gpu_hour=6.0, usd_vcpu_hour=0.6)
    return a_busy_world(a_machine(gpus=2), rates=rates, storage=StorageLayout("s3://bucket"))


# ---------------------------------------------------------------------------------------------------- budget


def test_a_job_that_has_spent_its_budget_saves_first_and_then_ends(world):
    world.submits(a_job("a").gpus(1).tagged(budget_usd="0.1", checkpoint="true")).starts("a")
    assert next_due(world.state) == world.now + 60_000
    world.later(59_000)
    assert not world.asked_for(InterruptAttempt)
    world.later(1_000)
    (notice,) = world.asked_for(InterruptAttempt)
    assert notice.deadline_at == world.now + 120_000
    assert world.job("a").attempts[0].stop_cause is StopCause.BUDGET
    assert next_due(world.state) is None
    world.exits("a", 143)
    text = "Budget of $0.10 spent (windfall:budget-usd); its last checkpoint is kept"
    assert (world.state_of("a"), world.job("a").status_reason) == (FAILED, text)
    assert not world.job("a").attempts[0].interrupted


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_budget_without_a_price_is_refused_with_what_to_do(gpus):
    world = a_busy_world(a_machine(gpus=2), unpriced_engines=frozenset({None, "local"}))
    option = "--usd-gpu-hour" if gpus else "--usd-vcpu-hour"
    with pytest.raises(Invalid, match=option):
        world.submits(a_job("a").gpus(gpus).tagged(budget_usd="1"))
    assert "a" not in world.state.jobs
    world.submits(a_job("a").gpus(gpus))
    with pytest.raises(Invalid, match=option):
        world.happens(events.TagResource("job", "a", {"windfall:budget-usd": "1"}, ()))
    assert world.job("a").submission.budget_usd is None
    with pytest.raises(Invalid, match="usd_vcpu_hour"):
        world.happens(a_training("t", tags={"windfall:budget-usd": "1"}))


def test_a_budget_is_taken_where_there_is_a_price(world):
    rules = replace(world.state.rules, unpriced_engines=frozenset({None, "local"}))
    world.state.rules = rules
    world.submits(a_job("a").gpus(1).tagged(budget_usd="1"))
    assert world.job("a").submission.budget_usd == 1


def test_a_job_that_ends_well_within_the_notice_of_its_budget_has_succeeded(world):
    world.submits(a_job("a").gpus(1).tagged(budget_usd="0.1")).starts("a").later(60_000)
    world.exits("a", 0)
    assert world.state_of("a") is SUCCEEDED


def test_the_budget_is_for_all_attempts_together(world):
    world.submits(a_job("a").gpus(1).retried(3).tagged(budget_usd="0.1")).starts("a")
    world.later(40_000).exits("a", 1)
    assert world.state_of("a") is STARTING
    assert next_due(world.state) == world.now + 20_000
    assert spent_usd(world.job("a"), world.state.rules.rates, world.now) == pytest.approx(4 / 60)
    world.starts("a").later(20_000)
    assert world.asked_for(InterruptAttempt)
    world.exits("a", 1)
    assert world.job("a").status_reason == "Budget of $0.10 spent (windfall:budget-usd)"


def test_a_job_is_not_tried_again_with_a_spent_budget(world):
    world.submits(a_job("a").gpus(1).retried(3).tagged(budget_usd="0.1")).starts("a")
    world.now += 70_000
    world.exits("a", 1)
    assert world.state_of("a") is FAILED
    assert "Budget of $0.10" in (world.job("a").status_reason or "")


def test_a_job_that_waits_with_a_spent_budget_ends(world):
    world.submits(a_job("a").gpus(1).retried(9).tagged(budget_usd="0.1", checkpoint="true")).starts("a")
    world.later(59_999)
    world.places = False
    world.happens(events.AttemptLost(world.token("a"), world.now))
    assert world.state_of("a") is RUNNABLE
    world.places = True
    world.happens(events.TimePassed())
    world.later(1)
    world.exits("a", 143)
    assert world.state_of("a") is FAILED


def test_without_a_price_there_is_nothing_to_spend():
    world = a_busy_world()
    world.submits(a_job("a").tagged(budget_usd="0.01")).starts("a")
    world.later(HOUR_MS)
    assert not world.asked_for(InterruptAttempt)
    assert next_due(world.state) is None


def test_an_attempt_pays_for_its_share_of_a_priced_instance():
    world = a_world()
    size = Resources(8, 16_384, 4)
    world.offers["spot"] = (Offer("g.large", size, usd_hour=4.0, on_demand_usd_hour=10.0),)
    world.declared().with_environment("spot")
    world.submits(a_job("gpu", "spot").gpus(1), a_job("cpu", "spot").vcpus(2).tagged(budget_usd="1")).ready()
    gpu, cpu = world.job("gpu").attempts[0], world.job("cpu").attempts[0]
    assert (gpu.instance_type, gpu.market) == ("g.large", Market.SPOT)
    assert (gpu.usd_hour, gpu.on_demand_usd_hour) == (1.0, 2.5)
    assert (cpu.usd_hour, cpu.on_demand_usd_hour) == (1.0, 2.5)
    assert next_due(world.state) == cpu.placed_at + HOUR_MS


def test_a_budget_can_be_raised_and_taken_away_while_the_job_lives(world):
    world.submits(a_job("a").gpus(1).tagged(budget_usd="0.1")).starts("a")
    with pytest.raises(Invalid, match="US dollars"):
        world.happens(events.TagResource("job", "a", {"windfall:budget-usd": "more"}))
    world.happens(events.TagResource("job", "a", {"windfall:budget-usd": "0.2"}))
    world.later(60_000)
    assert not world.asked_for(InterruptAttempt)
    assert next_due(world.state) == world.now + 60_000
    world.happens(events.TagResource("job", "a", remove=("windfall:budget-usd",)))
    world.later(60_000)
    assert not world.asked_for(InterruptAttempt)


def test_limits_are_watched_again_after_a_restart(world):
    world.submits(a_job("a").gpus(1).tagged(budget_usd="0.1")).starts("a")
    due = next_due(world.state)
    assert next_due(world.restarted().state) == due
    world.later(60_000)
    assert world.asked_for(InterruptAttempt)
    assert next_due(world.restarted().state) is None


# ---------------------------------------------------------------------------------------------- training jobs


def test_the_running_time_is_summed_over_attempts(world):
    world.happens(a_training("t", run_s=100))
    world.ready().starts("training-t").later(60_000)
    world.happens(events.AttemptLost(world.token("training-t"), world.now))
    world.later(500_000).starts("training-t").later(39_000)
    assert not world.asked_for(StopAttempt)
    world.later(1_000)
    (stop,) = world.asked_for(StopAttempt)
    assert stop.grace_s == 120
    assert world.job("training-t").attempts[1].stop_cause is StopCause.RUN_TIME
    world.exits("training-t", 0)
    assert (world.state_of("training-t"), world.job("training-t").status_reason) == (
        FAILED,
        "MaxRuntimeExceeded",
    )


def test_saving_after_the_end_is_no_running_time(world):
    world.happens(a_training("t", run_s=100))
    world.ready().starts("training-t").later(50_000)
    token = world.token("training-t")
    world.happens(events.AttemptProgressed(token, world.now, "uploading", exited_at=world.now))
    world.later(500_000)
    assert not world.asked_for(StopAttempt)
    world.exits("training-t", 0)
    assert world.state_of("training-t") is SUCCEEDED


def test_waiting_and_running_together_are_bounded(world):
    world.happens(a_training("t", wait_s=100))
    world.ready().later(90_000).starts("training-t").later(10_000)
    assert world.job("training-t").attempts[0].stop_cause is StopCause.WAIT_TIME
    world.exits("training-t", 143)
    assert world.job("training-t").status_reason == "MaxWaitTimeExceeded"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"wait_s": 100}, "MaxWaitTimeExceeded"), ({"pending_s": 100}, "MaxPendingTimeExceeded")],
)
def test_a_job_that_waits_too_long_ends_at_once(world, limits, reason):
    world.happens(a_training("t", gpus=9, **limits))
    world.later(99_999)
    assert world.state_of("training-t") is RUNNABLE
    world.later(1)
    assert (world.state_of("training-t"), world.job("training-t").status_reason) == (FAILED, reason)
    assert not world.job("training-t").attempts


def test_only_waiting_counts_as_pending(world):
    world.happens(a_training("t", pending_s=100))
    world.later(60_000).ready().starts("training-t").later(500_000)
    assert world.state_of("training-t") is RUNNING
    world.places = False
    world.happens(events.AttemptLost(world.token("training-t"), world.now))
    world.later(39_000)
    assert world.state_of("training-t") is RUNNABLE
    world.later(1_001)
    assert world.job("training-t").status_reason == "MaxPendingTimeExceeded"
