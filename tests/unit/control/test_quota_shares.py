"""Quota shares of a queue of ordinary jobs: declaring them, submitting under them, lending, and giving back."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_job
from tests.gang_builders import a_gang_definition
from tests.unit.control.quota_worlds import a_quota_world, a_share, a_shared_job, delete
from windfall.capacity.environments import JobQueue, Switch
from windfall.capacity.policies import CapacityLimit, SharingStrategy
from windfall.control import events
from windfall.control.commands.policies import CreateQuotaShare, UpdateQuotaShare
from windfall.control.instructions import InterruptAttempt
from windfall.control.why import why
from windfall.jobs.attempts import PREEMPTIONS, StopCause
from windfall.jobs.aws_texts import AwsQuotaReason, host_lost
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.staging import Mark
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED

LEND, BORROW = SharingStrategy.LEND, SharingStrategy.LEND_AND_BORROW


def two_shares(gpus: int = 4, **rules: object) -> TestWorld:
    """`owner` lends its half of the GPUs, `guest` has the other half and borrows."""
    half = gpus // 2
    return a_quota_world(
        a_share("owner", LEND, GPU=half), a_share("guest", BORROW, GPU=half), gpus=gpus, **rules
    )


def a_gpu_job(job_id: str, share: str, gpus: int = 1, priority: int | None = None):
    return a_shared_job(job_id, share, priority).gpus(gpus)


def leaving(world: TestWorld) -> list[str]:
    """Who was given notice in the last round."""
    return [one.token.partition("#")[0] for one in world.asked_for(InterruptAttempt)]


def reasons(world: TestWorld, job_id: str) -> dict[str, str]:
    answer = why(world.state, JobId(job_id), world.state.offers, world.now)
    assert answer is not None
    return dict(answer.reasons)


# ------------------------------------------------------------------------------------------------ declaring


def test_a_share_needs_a_queue_with_a_quota_policy():
    world = a_quota_world()
    with pytest.raises(Invalid, match="has no quota share policy"):
        world.happens(CreateQuotaShare(a_share("a", queue="queue", GPU=1)))
    with pytest.raises(NotFound, match="nowhere does not exist"):
        world.happens(CreateQuotaShare(a_share("a", queue="nowhere", GPU=1)))


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (a_share("a"), "1 to 5 capacityLimits"),
        (a_share("a", **{"ml.m5.large": 1}), "must be one of VCPU, GPU, MEMORY"),
        (a_share("a", GPU=-1), "maxCapacity"),
        (a_share("a", LEND, 10, GPU=1), "LEND_AND_BORROW"),
        (a_share("a", BORROW, -2, GPU=1), "borrowLimit"),
    ],
)
def test_what_makes_no_sense_is_refused(share, words):
    world = a_quota_world()
    with pytest.raises(Invalid, match=words):
        world.happens(CreateQuotaShare(share))
    assert not world.state.quota_shares


def test_a_queue_has_twenty_shares_at_most_and_none_twice():
    world = a_quota_world(*(a_share(f"s{number}", GPU=1) for number in range(20)))
    with pytest.raises(Conflict, match="20 quota shares"):
        world.happens(CreateQuotaShare(a_share("more", GPU=1)))
    with pytest.raises(Conflict, match="already exists"):
        world.happens(CreateQuotaShare(a_share("s3", GPU=1)))


def test_shares_come_back_after_a_restart_and_go_with_their_queue():
    world = two_shares()
    known = dict(world.state.quota_shares)
    assert world.restarted().state.quota_shares == known
    world.happens(events.UpdateJobQueue(QueueName("shared"), switch=Switch.DISABLED))
    world.happens(events.DeleteJobQueue(QueueName("shared")))
    assert not world.state.quota_shares
    assert not world.restarted().state.quota_shares


def test_a_share_is_deleted_with_its_jobs_once_it_is_disabled():
    world = two_shares()
    world.submits(a_gpu_job("a", "owner"), a_gpu_job("b", "guest"), a_gpu_job("c", "owner", 2)).starts(
        "a", "b"
    )
    with pytest.raises(Conflict, match="DISABLED"):
        world.happens(delete("owner"))
    world.happens(UpdateQuotaShare("shared/owner", switch=Switch.DISABLED))
    world.happens(delete("owner"))
    assert world.state_of("c") is FAILED
    assert world.job("a").terminated
    assert not world.job("b").terminated
    with pytest.raises(NotFound, match="no quota share owner"):
        world.happens(delete("owner"))


# ------------------------------------------------------------------------------------------------ submitting


def test_a_job_names_a_share_that_exists_and_is_enabled():
    world = two_shares()
    with pytest.raises(Invalid, match="name one of them in shareIdentifier \\(it has owner, guest\\)"):
        world.submits(a_shared_job("a", None))
    with pytest.raises(NotFound, match="no quota share nobody"):
        world.submits(a_shared_job("a", "nobody"))
    world.happens(UpdateQuotaShare("shared/guest", switch=Switch.DISABLED))
    with pytest.raises(Invalid, match="DISABLED"):
        world.submits(a_shared_job("a", "guest"))
    assert JobId("a") not in world.state.jobs


def test_jobs_of_a_disabled_share_finish():
    world = a_quota_world(a_share("a", VCPU=1))
    world.submits(a_shared_job("one", "a"), a_shared_job("two", "a")).starts("one")
    world.happens(UpdateQuotaShare("shared/a", switch=Switch.DISABLED))
    world.exits("one")
    assert list(world.started()) == ["two"]


# ------------------------------------------------------------------------------------------------ limits


def test_a_share_holds_no_more_than_its_limits_whatever_room_there_is():
    world = a_quota_world(a_share("a", VCPU=2), a_share("b", VCPU=4))
    world.submits(*(a_shared_job(f"a{n}", "a") for n in range(3)))
    assert [world.state_of(f"a{n}") for n in range(3)] == [STARTING, STARTING, RUNNABLE]
    assert "may not borrow" in reasons(world, "a2")["QUOTA_SHARE"]
    world.starts("a0").exits("a0")
    assert list(world.started()) == ["a2"]


def test_an_array_starts_as_many_children_as_its_share_admits():
    world = a_quota_world(a_share("a", BORROW, 50, VCPU=4), a_share("b", LEND, VCPU=8))
    world.submits(a_shared_job("all", "a").array(20))
    assert world.states_of("all").count(STARTING) == 6


def test_idle_capacity_goes_to_whoever_came_first():
    world = a_quota_world(
        *(a_share("a", BORROW, VCPU=1), a_share("b", BORROW, VCPU=1), a_share("c", LEND, VCPU=2))
    )
    world.places = False
    world.submits(a_shared_job("b", "b").array(9), a_shared_job("a", "a").array(9))
    world.places = True
    world.later(1_000)
    assert world.states_of("b").count(STARTING) == 3
    assert world.states_of("a").count(STARTING) == 1


def test_nobody_borrows_what_its_owner_is_waiting_for():
    world = two_shares()
    world.places = False
    world.submits(a_gpu_job("guest", "guest").array(4), a_gpu_job("owner", "owner"))
    world.places = True
    world.later(1_000)
    assert world.state_of("owner") is STARTING
    assert world.states_of("guest").count(STARTING) == 3
    assert not leaving(world)


def test_the_more_urgent_of_a_share_goes_first():
    world = a_quota_world(a_share("a", VCPU=1))
    world.submits(a_shared_job("now", "a"), a_shared_job("low", "a", 1), a_shared_job("high", "a", 9)).starts(
        "now"
    )
    world.exits("now")
    assert list(world.started()) == ["high"]


def test_one_that_its_share_can_never_hold_is_told_so_in_the_words_of_aws():
    world = two_shares()
    world.submits(a_gpu_job("large", "owner", 3))
    answer = why(world.state, JobId("large"), world.state.offers, world.now)
    assert answer is not None
    assert answer.aws_reason == AwsQuotaReason.LIMITS.value
    world.later(6_000)
    assert world.job("large").status_reason == AwsQuotaReason.LIMITS.value


# ------------------------------------------------------------------------------------------------ giving back


def borrowing(world: TestWorld, *jobs: str, gpus: int = 1) -> None:
    """These jobs of the guest run, one after the other, 10 s apart."""
    for job in jobs:
        world.submits(a_gpu_job(job, "guest", gpus).tagged(checkpoint="true")).starts(job)
        world.now += 10_000


def test_an_owner_has_the_cheapest_borrower_leave_who_waits_and_resumes():
    world = two_shares()
    borrowing(world, "g0", "g1", "g2", "g3")
    world.happens(
        events.AttemptProgressed(
            world.token("g1"), world.now, checkpoint=Mark("step-9", world.now, world.now, 1)
        )
    )
    world.submits(a_gpu_job("mine", "owner"))
    assert leaving(world) == ["g1"]
    victim = world.job("g1")
    assert victim.attempts[0].stop_cause is StopCause.PREEMPTED
    assert victim.status_reason == (
        "PREEMPTION_IN_PROGRESS: Cross-share preemption triggered to reclaim borrowed capacity"
    )
    assert "quota share owner takes its place" in reasons(world, "g1")["leaving"]
    assert "others have the rest" in reasons(world, "mine")["QUOTA_SHARE"]
    assert "job g1, of its own queue, leaves it" in reasons(world, "mine")["PLACE_LEFT"]
    world.exits("g1", 143)
    assert list(world.started()) == ["mine"]
    assert world.state_of("g1") is RUNNABLE
    assert world.job("g1").attempts[0].status_reason == PREEMPTIONS[StopCause.PREEMPTED]
    assert world.job("g1").charged_attempts == 0
    assert "interrupted" in reasons(world, "g1")
    world.starts("mine").exits("mine")
    assert list(world.started()) == ["g1"]
    assert (
        why(world.state, JobId("g1"), {}, world.now)
        .reasons[0][1]
        .endswith("attempt 2; its process is being started")
    )


def test_a_preempted_job_is_tried_again_without_keeping_checkpoints_and_without_a_retry_rule():
    world = two_shares()
    world.submits(a_gpu_job("g", "guest").array(4))
    world.starts("g:0", "g:1", "g:2", "g:3")
    world.submits(a_gpu_job("mine", "owner"))
    (victim,) = leaving(world)
    world.exits(victim, 1)
    assert world.state_of(victim) is RUNNABLE
    assert list(world.started()) == ["mine"]


def test_one_that_ends_with_success_while_it_is_asked_to_leave_has_succeeded():
    world = two_shares()
    borrowing(world, "g0", "g1", "g2")
    world.submits(a_gpu_job("mine", "owner", 2))
    (victim,) = leaving(world)
    world.exits(victim, 0)
    assert world.state_of(victim) is SUCCEEDED
    assert list(world.started()) == ["mine"]


@pytest.mark.parametrize(("most", "ends"), [("0", 1), ("2", 3)])
def test_a_tag_limits_how_often_a_job_may_be_preempted(most, ends):
    world = two_shares(gpus=2)
    world.submits(a_gpu_job("g", "guest", 2).tagged(preemptions_max=most)).starts("g")
    for number in range(1, ends + 1):
        world.submits(a_gpu_job(f"mine{number}", "owner"))
        assert leaving(world) == ["g"]
        world.exits("g", 143)
        assert world.state_of("g") is (FAILED if number == ends else RUNNABLE)
        world.starts(f"mine{number}").exits(f"mine{number}")
        if number < ends:
            world.starts("g")
    assert world.job("g").status_reason == PREEMPTIONS[StopCause.PREEMPTED]


def test_a_wrong_number_of_preemptions_is_refused():
    with pytest.raises(Invalid, match="windfall:preemptions-max"):
        two_shares().submits(a_gpu_job("g", "guest").tagged(preemptions_max="often"))


def test_a_host_that_is_lost_meanwhile_is_no_preemption():
    world = two_shares(gpus=2)
    world.submits(a_gpu_job("g", "guest", 2).tagged(preemptions_max="0").retried(2)).starts("g")
    world.submits(a_gpu_job("mine", "owner"))
    world.happens(events.AttemptLost(world.token("g"), world.now))
    first = world.job("g").attempts[0]
    assert first.status_reason == host_lost(first.instance)
    assert world.state_of("g") is RUNNABLE


def test_a_share_is_asked_only_as_far_as_it_is_above_its_limits():
    world = two_shares()
    borrowing(world, "g0", "g1", "g2")
    world.submits(a_gpu_job("mine", "owner"), a_gpu_job("more", "owner"))
    assert len([one for one in world.asked if isinstance(one, InterruptAttempt)]) == 1
    world.submits(a_gpu_job("third", "owner"))
    assert not leaving(world)
    assert "may not borrow" in reasons(world, "third")["QUOTA_SHARE"]


def test_a_share_within_its_limits_is_never_asked():
    world = a_quota_world(a_share("a", GPU=4), a_share("b", GPU=4), gpus=4)
    world.submits(*(a_gpu_job(f"a{n}", "a") for n in range(4)), a_gpu_job("b", "b"))
    assert world.state_of("b") is RUNNABLE
    assert not leaving(world)
    assert "QUOTA_SHARE" not in reasons(world, "b")


def test_one_that_would_borrow_asks_nobody():
    world = a_quota_world(
        a_share("owner", LEND, GPU=2), a_share("a", BORROW, GPU=1), a_share("b", BORROW, GPU=1), gpus=4
    )
    world.submits(*(a_gpu_job(f"a{n}", "a") for n in range(3)), a_gpu_job("b0", "b"), a_gpu_job("b1", "b"))
    assert world.state_of("b1") is RUNNABLE
    assert not leaving(world)
    assert "too little to borrow" in reasons(world, "b1")["QUOTA_SHARE"]


def test_lowered_limits_bring_a_share_to_give_back_when_others_want_theirs():
    world = a_quota_world(a_share("a", GPU=4), a_share("b", LEND, GPU=2), gpus=4)
    world.submits(*(a_gpu_job(f"a{n}", "a") for n in range(4)))
    world.happens(UpdateQuotaShare("shared/a", limits=(CapacityLimit("GPU", 2),)))
    assert not leaving(world)
    world.submits(a_gpu_job("b", "b", 2))
    assert len(leaving(world)) == 2
    for job in leaving(world):
        world.exits(job, 143)
    assert world.state_of("b") is STARTING


def test_nobody_leaves_in_vain_for_one_that_would_not_fit_all_the_same():
    world = a_quota_world(a_share("owner", LEND, GPU=4), a_share("guest", BORROW, GPU=1), gpus=4)
    borrowing(world, "g0", "g1", "g2", "g3")
    world.submits(a_shared_job("wide", "owner").gpus(1).vcpus(65))
    assert not leaving(world)


def test_what_one_leaves_is_kept_for_the_job_that_it_was_asked_for():
    world = two_shares()
    borrowing(world, "g0", "g1", "g2", "g3")
    world.submits(a_gpu_job("mine", "owner"))
    (victim,) = leaving(world)
    world.submits(a_gpu_job("late", "guest"), a_job("beside").gpus(1))
    world.exits(victim, 143)
    assert list(world.started()) == ["mine"]


def test_the_claim_survives_a_restart():
    world = two_shares()
    borrowing(world, "g0", "g1", "g2", "g3")
    world.submits(a_gpu_job("mine", "owner"))
    (victim,) = leaving(world)
    world.restarted()
    world.submits(a_gpu_job("late", "guest"))
    assert not leaving(world)
    world.exits(victim, 143)
    assert list(world.started()) == ["mine"]


@pytest.mark.parametrize("code", [0, 143], ids=["done", "preempted"])
def test_the_claim_of_an_array_survives_a_restart_after_the_first_has_left(code):
    world = two_shares()
    borrowing(world, "g0", "g1", "g2", "g3")
    world.submits(a_gpu_job("mine", "owner", 2).array(2))
    first, second = leaving(world)
    world.exits(first, code)
    world.restarted()
    world.submits(a_gpu_job("late", "guest"))
    assert world.state_of("late") is RUNNABLE
    world.exits(second, 143)
    assert list(world.started()) == ["mine:0"]
    assert not world.state.left_places


# ------------------------------------------------------------------------------------------------ within a share


def test_a_more_urgent_job_takes_the_place_of_a_less_urgent_one_of_its_share():
    world = a_quota_world(a_share("a", within=True, GPU=1), gpus=2)
    world.submits(a_gpu_job("low", "a", priority=1)).starts("low")
    world.submits(a_gpu_job("equal", "a", priority=1))
    assert not leaving(world)
    world.submits(a_gpu_job("high", "a", priority=2))
    assert leaving(world) == ["low"]
    assert world.job("low").attempts[0].stop_cause is StopCause.OUTRANKED
    world.exits("low", 143)
    assert list(world.started()) == ["high"]
    assert world.job("low").attempts[0].status_reason == PREEMPTIONS[StopCause.OUTRANKED]
    world.starts("high").exits("high")
    assert list(world.started()) == ["low"], "it came before the other one of its priority"


def test_where_that_is_not_enabled_it_waits():
    world = a_quota_world(a_share("a", GPU=1), gpus=2)
    world.submits(a_gpu_job("low", "a", priority=1)).starts("low")
    world.submits(a_gpu_job("high", "a", priority=2))
    assert not leaving(world)


def test_a_less_urgent_one_of_another_share_is_not_asked():
    world = a_quota_world(a_share("a", within=True, GPU=2), a_share("b", within=True, GPU=2), gpus=2)
    world.submits(a_gpu_job("a0", "a"), a_gpu_job("a1", "a")).starts("a0", "a1")
    world.submits(a_gpu_job("b0", "b", priority=9))
    assert not leaving(world)


def test_a_borrower_of_higher_priority_takes_the_place_of_a_lower_one_of_its_share():
    world = a_quota_world(a_share("a", BORROW, within=True, GPU=1), a_share("b", LEND, GPU=1), gpus=2)
    world.submits(a_gpu_job("a0", "a"), a_gpu_job("a1", "a")).starts("a0", "a1")
    world.submits(a_gpu_job("high", "a", priority=3))
    assert len(leaving(world)) == 1


def test_an_ordinary_queue_beside_it_is_neither_asked_nor_counted():
    world = two_shares()
    environment = (EnvironmentName("environment"),)
    world.happens(events.CreateJobQueue(JobQueue(QueueName("plain"), 1, environment)))
    world.submits(a_job("plain", "plain").gpus(2)).starts("plain")
    world.submits(a_gpu_job("owner", "owner", 2)).starts("owner")
    world.submits(a_gpu_job("guest", "guest"))
    assert world.state_of("guest") is RUNNABLE
    assert not leaving(world)
    assert world.state_of("plain") is RUNNING


# ------------------------------------------------------------------------------------------------ multi-node jobs


def with_a_gang(world: TestWorld) -> TestWorld:
    """A definition of three nodes, of one vCPU each, exists."""
    world.happens(events.RegisterJobDefinition(a_gang_definition()))
    return world


def test_a_multi_node_job_counts_with_all_its_nodes():
    world = with_a_gang(a_quota_world(a_share("small", VCPU=2), a_share("large", VCPU=3)))
    world.submits(a_shared_job("no", "small").of("gang"), a_shared_job("yes", "large").of("gang"))
    assert world.state_of("no") is RUNNABLE
    assert "it never starts so" in reasons(world, "no")["QUOTA_SHARE"]
    assert world.state_of("yes") is STARTING
    world.submits(a_shared_job("more", "large"))
    assert world.state_of("more") is RUNNABLE


def test_a_multi_node_job_that_borrows_leaves_as_a_whole():
    world = with_a_gang(a_quota_world(a_share("owner", LEND, VCPU=2), a_share("guest", BORROW, VCPU=1)))
    world.submits(a_shared_job("g", "guest").of("gang")).starts("g").starts("g#1", "g#2")
    world.submits(a_shared_job("mine", "owner"))
    assert len(world.asked_for(InterruptAttempt)) == 3
    tokens = sorted(world.state.attempts)
    for token in tokens:
        if token in world.state.attempts:
            world.happens(events.AttemptExited(token, world.now, 143, None, world.now))
    assert world.state_of("mine") is STARTING
    assert world.state_of("g") is RUNNABLE
    assert world.job("g").charged_attempts == 0
