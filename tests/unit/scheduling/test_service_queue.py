"""Service jobs in front of a service environment: whose turn it is, what is kept for whom, and who has to leave."""

from __future__ import annotations

from windfall.capacity.policies import INSTANCES, CapacityLimit, QuotaShare, SharingStrategy
from windfall.jobs.aws_texts import MAX_RESOURCE, AwsQuotaReason
from windfall.scheduling.fair_share import Amount, FairShareView, ShareView
from windfall.scheduling.service_queue import front_of, plan_services
from windfall.scheduling.service_views import (
    HoldingService,
    Preempt,
    ServicePlan,
    ServicePreemption,
    ServiceQueueView,
    ServiceView,
    WaitingService,
    needs_of,
)

G5 = "ml.g5.xlarge"


def waits(job_id, instances=1, *, order=None, priority=0, share="", kind=G5):
    order = int(job_id.strip("abcdefghijklmnopqrstuvwxyz") or 0) if order is None else order
    return WaitingService(job_id, order, needs_of({kind: instances}), priority, share)


def holds(job_id, instances=1, *, share="", priority=0, loss=1.0, leaving=False, kind=G5):
    return HoldingService(job_id, needs_of({kind: instances}), priority, share, loss, leaving)


def a_queue(*jobs, name="queue", **more) -> ServiceQueueView:
    waiting = [job for job in jobs if isinstance(job, WaitingService)]
    holding = [job for job in jobs if isinstance(job, HoldingService)]
    return ServiceQueueView(name, waiting, holding, **more)


def plan(*queues, limits=None) -> ServicePlan:
    return plan_services(ServiceView(limits or {INSTANCES: 4.0}, queues))


def a_share(
    name, amount, sharing=SharingStrategy.LEND_AND_BORROW, *, within=False, borrow=-1, unit=G5
) -> QuotaShare:
    return QuotaShare(name, "queue", (CapacityLimit(unit, amount),), sharing, borrow, within)


def test_first_come_first_served_within_the_limit():
    made = plan(a_queue(waits("j1"), waits("j3"), waits("j2", 2), waits("j4"), holds("h")))
    assert made.dispatch == ["j1", "j2"]
    assert made.preempt == []


def test_the_higher_priority_goes_first():
    made = plan(a_queue(waits("j1"), waits("j2", priority=9)), limits={INSTANCES: 1.0})
    assert made.dispatch == ["j2"]


def test_what_the_first_lacks_is_kept_for_it():
    made = plan(a_queue(waits("j1", 3), waits("j2"), holds("h", 2)))
    assert made.dispatch == []


def test_another_type_is_not_held_up():
    limits = {G5: 1.0, "ml.m5.large": 1.0}
    made = plan(a_queue(waits("j1"), waits("j2", kind="ml.m5.large"), holds("h")), limits=limits)
    assert made.dispatch == ["j2"]


def test_what_can_never_start_is_passed_over_and_told():
    made = plan(a_queue(waits("j1", 5), waits("j2")))
    assert (made.dispatch, made.never) == (["j2"], {"j1": MAX_RESOURCE})
    made = plan(a_queue(waits("j1", kind="ml.p5.48xlarge")), limits={G5: 4.0})
    assert made.never == {"j1": MAX_RESOURCE}


def test_a_payload_without_a_type_counts_for_nothing_where_types_are_counted():
    unreadable = WaitingService("j1", 1, needs_of({"": 1}))
    queue = a_queue(unreadable, waits("j2"), holds("h", 3))
    assert plan(queue, limits={G5: 4.0}).dispatch == ["j1", "j2"]
    assert plan(queue).dispatch == ["j1"]


def test_the_queue_of_higher_priority_goes_first_and_keeps_what_it_lacks():
    low, high = a_queue(waits("j1"), name="a"), a_queue(waits("j2", 4), name="b", priority=5)
    assert plan(low, high).dispatch == ["j2"]
    assert plan(low, a_queue(waits("j2", 4), holds("h"), name="b", priority=5)).dispatch == []


def test_the_share_that_used_less_goes_first():
    shares = {"a": ShareView(average=Amount(2.0)), "b": ShareView(average=Amount(1.0))}
    queue = a_queue(
        waits("j1", share="a"),
        waits("j2", share="b"),
        waits("j3", share="b"),
        waits("j4", share="b"),
        fair_share=FairShareView(600, Amount(4.0), shares),
    )
    assert [job.id for job in front_of(queue)] == ["j2", "j1", "j3", "j4"]
    assert plan(queue, limits={INSTANCES: 2.0}).dispatch == ["j2", "j1"]


def test_a_compute_reservation_is_left_alone():
    shares = FairShareView(600, Amount(4.0), {"a": ShareView(held=Amount(1.0))}, 50, Amount(2.0))
    queue = a_queue(waits("j1", share="a"), waits("j2", share="a"), holds("h", share="a"), fair_share=shares)
    assert plan(queue).dispatch == ["j1"]


def test_a_share_borrows_what_others_leave_unused():
    shares = [
        a_share("a", 2),
        a_share("b", 2, SharingStrategy.LEND),
        a_share("c", 2, SharingStrategy.RESERVE),
    ]
    queue = a_queue(*(waits(f"j{n}", share="a") for n in range(1, 7)), quota_shares=shares)
    assert plan(queue, limits={G5: 6.0}).dispatch == ["j1", "j2", "j3", "j4"]


def test_owners_go_before_borrowers_that_came_earlier():
    shares = [a_share("a", 1), a_share("b", 1)]
    queue = a_queue(
        waits("j1", share="a"), waits("j2", share="a"), waits("j3", share="b"), quota_shares=shares
    )
    assert plan(queue, limits={G5: 2.0}).dispatch == ["j1", "j3"]


def test_lent_capacity_is_taken_back_from_who_loses_the_least():
    shares = [a_share("a", 1), a_share("b", 2)]
    running = [holds("h1", share="b", loss=5), holds("h2", share="b", loss=1), holds("h3", share="b", loss=9)]
    queue = a_queue(waits("j1", share="a"), *running, quota_shares=shares)
    made = plan(queue, limits={G5: 3.0})
    assert made.dispatch == []
    assert made.preempt == [Preempt("h2", "j1", ServicePreemption.CROSS_SHARE)]


def test_nobody_within_its_limits_is_asked_to_leave():
    shares = [a_share("a", 2), a_share("b", 2)]
    queue = a_queue(waits("j1", 2, share="a"), holds("h1", 2, share="b"), quota_shares=shares)
    made = plan(queue, limits={G5: 3.0})
    assert (made.dispatch, made.preempt) == ([], [])


def test_nothing_is_preempted_that_would_not_let_the_job_start():
    shares = [a_share("a", 2), a_share("b", 1)]
    # One of two is borrowed; the other belongs to b, so two instances cannot be had.
    running = [holds("h1", share="b"), holds("h2", share="b"), holds("h3", share="a")]
    queue = a_queue(waits("j1", 2, share="a"), *running, quota_shares=shares)
    assert plan(queue, limits={G5: 3.0}).preempt == []


def test_nobody_is_asked_twice_for_the_same_place():
    shares = [a_share("a", 1), a_share("b", 1)]
    running = [holds("h1", share="b", leaving=True), holds("h2", share="b")]
    queue = a_queue(waits("j1", share="a"), *running, quota_shares=shares)
    assert plan(queue, limits={G5: 2.0}).preempt == []


def test_a_more_urgent_job_takes_the_place_of_a_lesser_one_of_its_share():
    running = [holds("h1", share="a", priority=3, loss=1), holds("h2", share="a", priority=1, loss=7)]
    urgent = waits("j1", share="a", priority=2)
    enabled = a_queue(urgent, *running, quota_shares=[a_share("a", 2, SharingStrategy.RESERVE, within=True)])
    assert plan(enabled, limits={G5: 2.0}).preempt == [Preempt("h2", "j1", ServicePreemption.IN_SHARE)]
    disabled = a_queue(urgent, *running, quota_shares=[a_share("a", 2, SharingStrategy.RESERVE)])
    assert plan(disabled, limits={G5: 2.0}).preempt == []


def test_what_is_idle_is_borrowed_before_anybody_is_preempted():
    shares = [a_share("a", 1, within=True), a_share("b", 1)]
    queue = a_queue(waits("j1", share="a", priority=5), holds("h1", share="a"), quota_shares=shares)
    made = plan(queue, limits={G5: 2.0})
    assert (made.dispatch, made.preempt) == (["j1"], [])


def test_what_a_share_can_never_hold_is_told():
    shares = [a_share("a", 1, SharingStrategy.RESERVE), a_share("b", 2, borrow=50)]
    queue = a_queue(
        waits("j1", 2, share="a"),
        waits("j2", 4, share="b"),
        waits("j3", share="a", kind="ml.m5.large"),
        waits("j4", share="gone"),
        quota_shares=shares,
    )
    made = plan(queue, limits={G5: 9.0, "ml.m5.large": 9.0})
    assert made.dispatch == []
    assert made.never["j1"] == made.never["j3"] == AwsQuotaReason.LIMITS
    assert made.never["j2"] == AwsQuotaReason.BORROW_LIMITS
    assert made.never["j4"].startswith("Quota share gone does not exist")
