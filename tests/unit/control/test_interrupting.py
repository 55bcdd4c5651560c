"""Capacity that is taken away: who gets notice, how the end is read, and what the next attempt begins with."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_busy_world, a_job, a_machine, a_world
from windfall.capacity.environments import Provisioning
from windfall.capacity.machines import InstanceState, Offer
from windfall.control import events
from windfall.control.instructions import (
    InterruptAttempt,
    LaunchInstance,
    RecommendRebalance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.control.rebuild import instructions_after_restart
from windfall.control.why import why
from windfall.jobs.attempts import StopCause
from windfall.jobs.aws_texts import host_lost
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import InstanceId, JobId
from windfall.jobs.resources import Resources
from windfall.jobs.retry import Action, ExitRule
from windfall.jobs.staging import Mark
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED
from windfall.jobs.storage import StorageLayout

ROOT = "s3://bucket"


@pytest.fixture
def world() -> TestWorld:
    return a_busy_world(a_machine(gpus=2), storage=StorageLayout(ROOT))


def interrupted(world: TestWorld, job_id: str = "a", notice_s: float = 120) -> InterruptAttempt:
    assert world.happens(events.InterruptJob(JobId(job_id), notice_s)) >= 1
    return world.asked_for(InterruptAttempt)[0]


def test_a_drill_gives_notice_with_a_deadline(world):
    world.submits(a_job("a")).starts("a")
    notice = interrupted(world)
    attempt = world.job("a").attempts[0]
    assert notice == InterruptAttempt(attempt.token, attempt.instance, world.now + 120_000, "drill")
    assert (attempt.stop_cause, attempt.stop_at) == (StopCause.INTERRUPTED, world.now)
    assert (attempt.deadline_at, attempt.stop_words) == (world.now + 120_000, "drill")
    assert world.state_of("a") is RUNNING


def test_exit_code_0_within_the_notice_is_success(world):
    world.submits(a_job("a")).starts("a")
    interrupted(world)
    world.exits("a", 0)
    assert world.state_of("a") is SUCCEEDED


@pytest.mark.parametrize("code", [143, 137, 1])
def test_any_other_end_is_a_lost_host_and_uses_up_an_attempt(world, code):
    world.submits(a_job("a").retried(2)).starts("a")
    interrupted(world)
    world.exits("a", code)
    first = world.job("a").attempts[0]
    assert first.status_reason == host_lost(first.instance)
    assert first.interrupted
    assert list(world.started()) == ["a"]
    assert world.job("a").status_reason is None  # it has a new place, of which there is nothing to say
    world.starts("a")
    interrupted(world)
    world.exits("a", code)
    assert world.state_of("a") is FAILED


def test_a_job_that_keeps_checkpoints_loses_no_attempt(world):
    world.submits(a_job("a").tagged(checkpoint="true"))
    for number in range(1, 5):
        world.starts("a")
        interrupted(world)
        world.exits("a", 143)
        assert [start.token for start in world.asked_for(StartAttempt)] == [f"a#{number + 1}"]
    assert world.job("a").charged_attempts == 1
    world.starts("a").exits("a", 1)
    assert world.state_of("a") is FAILED


def test_a_lost_host_without_notice_is_free_for_it_too(world):
    world.submits(a_job("a").tagged(checkpoint="true")).starts("a")
    world.happens(events.AttemptLost(world.token("a"), world.now))
    assert world.state_of("a") is STARTING
    assert world.job("a").attempts[0].interrupted


def test_retry_rules_see_a_lost_host_and_nothing_of_the_process(world):
    rules = (ExitRule(Action.EXIT, on_exit_code="143"), ExitRule(Action.RETRY, on_status_reason="Host EC2*"))
    world.submits(a_job("a").retried(3, *rules)).starts("a")
    interrupted(world)
    world.exits("a", 143)
    assert world.state_of("a") is STARTING
    assert world.job("a").attempts[0].exit_code == 143


def test_an_attempt_that_is_starting_is_interrupted_too(world):
    world.submits(a_job("a").tagged(checkpoint="true"))
    interrupted(world)
    world.happens(events.AttemptExited(world.token("a"), world.now, None, "stopped while it was prepared"))
    assert world.job("a").attempts[0].status_reason == host_lost(world.job("a").attempts[0].instance)
    assert world.state_of("a") is STARTING


def test_a_second_notice_only_makes_the_deadline_earlier(world):
    world.submits(a_job("a")).starts("a")
    interrupted(world, notice_s=60)
    assert world.happens(events.InterruptJob(JobId("a"), 90)) == 1
    assert not world.asked_for(InterruptAttempt)
    assert interrupted(world, notice_s=10).deadline_at == world.now + 10_000
    assert world.job("a").attempts[0].deadline_at == world.now + 10_000


def test_a_job_that_is_terminated_meanwhile_stays_so(world):
    world.submits(a_job("a").retried(3)).starts("a")
    interrupted(world)
    world.happens(events.TerminateJob(JobId("a"), "enough"))
    assert world.asked_for(StopAttempt)
    assert world.happens(events.InterruptJob(JobId("a"), 5)) == 0
    world.exits("a", 143)
    assert (world.state_of("a"), world.job("a").status_reason) == (FAILED, "enough")


def test_a_timeout_during_the_notice_does_not_end_the_job(world):
    world.submits(a_job("a").retried(2).limited_to(60)).starts("a")
    interrupted(world)
    world.later(61_000)
    assert not world.asked_for(StopAttempt)
    world.exits("a", 143)
    assert world.state_of("a") is STARTING


def test_the_children_of_an_array_get_notice_together(world):
    world.submits(a_job("a").array(3)).starts("a:0", "a:1")
    assert world.happens(events.InterruptJob(JobId("a"), 5)) == 3
    assert world.happens(events.InterruptJob(JobId("a:1"), 5)) == 1


def test_drills_that_make_no_sense_are_refused(world):
    world.places = False
    world.submits(a_job("a"), a_job("many").array(2))
    assert world.happens(events.InterruptJob(JobId("a"), 5)) == 0
    assert world.happens(events.InterruptJob(JobId("many:1"), 5)) == 0
    for command in (
        events.InterruptJob(JobId("nobody"), 5),
        events.InterruptInstance(InstanceId("i-nothing"), 5),
    ):
        with pytest.raises(NotFound, match="does not exist"):
            world.happens(command)
    with pytest.raises(Invalid, match="seconds"):
        world.happens(events.InterruptJob(JobId("a"), -1))


# ------------------------------------------------------------------------------------------------- instances


def in_the_cloud(**rules) -> TestWorld:
    world = a_world(storage=StorageLayout(ROOT), **rules)
    world.offers["spot"] = (Offer("g.large", Resources(4, 8_192, 1), usd_hour=1.0, on_demand_usd_hour=4.0),)
    world.declared().with_environment("spot")
    world.submits(a_job("a", "spot").tagged(checkpoint="true"), a_job("b", "spot").retried(2)).ready()
    return world.starts("a", "b")


def test_an_instance_with_notice_takes_nothing_new_and_goes_when_it_is_empty():
    world = in_the_cloud()
    instance, deadline_at = world.instance_of("a"), world.now + 30_000
    world.happens(events.InterruptionNoticed(InstanceId(instance), deadline_at), a_job("c", "spot"))
    assert {one.token for one in world.asked_for(InterruptAttempt)} == {"a#1", "b#1"}
    assert {one.deadline_at for one in world.asked_for(InterruptAttempt)} == {deadline_at}
    assert world.state.instances[instance].state is InstanceState.TERMINATING
    assert world.store.small["instances"][instance].reclaim_at == deadline_at
    assert world.state_of("c") is RUNNABLE
    world.exits("a", 143)
    assert not world.asked_for(TerminateInstance)
    world.exits("b", 143)
    assert world.asked_for(TerminateInstance) == [TerminateInstance(InstanceId(instance))]
    assert instance not in world.state.instances
    assert not world.state.machines
    assert not world.store.small["machines"]
    assert not world.state.occupancy.machines
    assert world.store.small["instances"].keys() == world.state.instances.keys()


def test_what_is_left_at_the_deadline_is_lost_with_the_instance():
    world = in_the_cloud()
    instance = InstanceId(world.instance_of("a"))
    world.happens(events.InterruptionNoticed(instance, world.now + 30_000))
    world.now += 30_000
    world.happens(events.InstanceLost(instance))
    assert {world.state_of("a"), world.state_of("b")} == {RUNNABLE}
    assert world.job("b").attempts[0].status_reason == host_lost(instance)
    assert world.asked_for(LaunchInstance)
    world.happens(events.InstanceLost(instance))


def test_a_machine_that_is_gone_is_not_learned_again_from_a_late_word():
    world = in_the_cloud()
    (machine,) = world.state.machines.values()
    world.happens(events.InstanceLost(InstanceId(world.instance_of("a"))))
    world.happens(events.AgentConnected(machine))
    assert machine.id not in world.state.machines
    world.later(61_000)
    assert not world.state.gone_machines


def test_a_shared_machine_stays_when_an_instance_goes(world):
    world.submits(a_job("a")).starts("a")
    instance = InstanceId(world.instance_of("a"))
    assert world.happens(events.InterruptInstance(instance, 5)) == 1
    world.exits("a", 0)
    assert instance not in world.state.instances
    assert world.machine.id in world.state.machines


def test_an_instance_without_attempts_goes_at_once(world):
    (instance,) = world.state.instances
    assert world.happens(events.InterruptInstance(instance, 60)) == 0
    assert world.asked_for(TerminateInstance) == [TerminateInstance(instance)]


def test_ready_said_again_does_not_take_a_notice_back():
    world = in_the_cloud()
    instance = InstanceId(world.instance_of("a"))
    (machine,) = world.state.machines.values()
    world.happens(events.InterruptionNoticed(instance, world.now + 30_000))
    world.happens(events.InstanceReady(instance, machine))
    assert world.state.instances[instance].state is InstanceState.TERMINATING
    world.happens(events.InterruptionNoticed(instance, world.now + 60_000))
    assert world.state.instances[instance].reclaim_at == world.now + 30_000
    world.happens(events.InterruptionNoticed(instance, world.now + 10_000))
    assert {one.deadline_at for one in world.asked_for(InterruptAttempt)} == {world.now + 10_000}


def test_a_rebalance_recommendation_reaches_what_runs():
    world = in_the_cloud()
    instance = InstanceId(world.instance_of("a"))
    world.happens(events.RebalanceRecommended(instance))
    assert world.asked_for(RecommendRebalance) == [
        RecommendRebalance(world.token("a"), instance, world.now),
        RecommendRebalance(world.token("b"), instance, world.now),
    ]
    world.happens(events.RebalanceRecommended(InstanceId("i-unknown")))
    assert not world.instructions


# --------------------------------------------------------------------------------------- agents and restarts


def test_the_notice_is_given_again_with_the_same_deadline_when_the_agent_comes_back(world):
    world.submits(a_job("a")).starts("a")
    notice = interrupted(world)
    world.now += 20_000
    world.connected(("a",))
    assert world.asked_for(InterruptAttempt) == [notice]


def test_the_notice_is_given_again_after_a_restart(world):
    world.submits(a_job("a")).starts("a")
    notice = interrupted(world)
    world.now += 20_000
    assert instructions_after_restart(world.restarted().state) == [notice]
    world.connected(("a",))
    assert world.asked_for(InterruptAttempt) == [notice]


def test_an_agent_that_never_heard_of_an_attempt_with_notice_is_told_to_stop_it(world):
    world.submits(a_job("a").tagged(checkpoint="true"))
    interrupted(world)
    world.connected()
    assert not world.asked_for(StartAttempt)
    assert [one.token for one in world.asked_for(StopAttempt)] == ["a#1"]


def test_a_notice_for_an_attempt_that_ended_in_the_same_round_is_not_sent(world):
    world.submits(a_job("a")).starts("a")
    world.happens(events.InterruptJob(JobId("a"), 5), world.exit_of("a", 0))
    assert not world.asked_for(InterruptAttempt)
    assert world.state_of("a") is SUCCEEDED


# ------------------------------------------------------------------------------------------------------- why


def said(world: TestWorld, job_id: str) -> dict[str, str]:
    answer = why(world.state, JobId(job_id), {}, world.now)
    assert answer is not None
    return dict(answer.reasons)


def test_why_tells_who_has_notice_and_what_comes_after(world):
    world.submits(a_job("a").tagged(checkpoint="true")).starts("a")
    mark = Mark("step-7", world.now, world.now, 10, 7)
    world.happens(events.AttemptProgressed(world.token("a"), world.now, checkpoint=mark))
    interrupted(world)
    assert "has notice to leave its place by" in said(world, "a")["leaving"]
    assert "drill; unless it ends with success, it waits again" in said(world, "a")["leaving"]
    world.places = False
    world.exits("a", 143)
    assert said(world, "a")["interrupted"] == (
        "attempt 1 was interrupted: drill; it goes on from checkpoint step-7"
    )


def test_reclaiming_is_told_on_both_sides():
    world = a_world(a_machine(gpus=1), storage=StorageLayout(ROOT)).declared().with_environment("spot")
    world.submits(a_job("first"), a_job("spare", "spot").gpus(1).tagged(checkpoint="true")).ready()
    world.starts("first", "spare").exits("first", 0)
    world.submits(a_job("train").gpus(1))
    (notice,) = world.asked_for(InterruptAttempt)
    assert (notice.token, notice.deadline_at) == ("spare#1", world.now + 120_000)
    assert notice.words == "job train (name-of-train) of queue queue takes its place back"
    assert world.job("spare").attempts[0].stop_for == "train"
    assert notice.words in said(world, "spare")["leaving"]
    assert "job spare, on reclaimable capacity, leaves it at" in said(world, "train")["PLACE_LEFT"]
    world.later(1_000).later(1_000)
    assert not world.asked_for(InterruptAttempt)
    world.restarted().exits("spare", 143)
    assert list(world.started()) == ["train"]
    assert world.state_of("spare") is RUNNABLE
    assert notice.words in said(world, "spare")["interrupted"]
    assert "ROOM_TAKEN" in said(world, "spare")
    world.starts("train").exits("train", 0)
    assert list(world.started()) == ["spare"]


def test_a_more_urgent_spot_job_does_not_snatch_what_was_left_for_another():
    world = a_world(a_machine(gpus=2)).declared().with_environment("spot", Provisioning.SPOT, priority=50)
    world.submits(
        a_job("first"), a_job("one", "spot").gpus(1).retried(5), a_job("two", "spot").gpus(1).retried(5)
    )
    world.ready().starts("first", "one", "two").exits("first", 0)
    world.submits(a_job("train").gpus(2))
    assert len(world.asked_for(InterruptAttempt)) == 2
    world.exits("one", 143)
    assert not list(world.started())
    world.later(5_000)
    assert not list(world.started())
    world.exits("two", 143)
    assert list(world.started()) == ["train"]
    assert not world.state.left_places
