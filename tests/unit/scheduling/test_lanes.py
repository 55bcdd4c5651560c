"""Whose turn it is in queues with shares: the lowest score, then priority, then first come first; and until when."""

from __future__ import annotations

import pytest

from tests.unit.scheduling.builders import NOW, Cluster, a_cluster, a_snapshot, an_offer, started
from windfall.scheduling.assign import assign
from windfall.scheduling.dispatch_order import Turns, Until, dispatch_order, jobs_ahead
from windfall.scheduling.explain import explain
from windfall.scheduling.fair_share import NONE, Amount, FairShareView, ShareView
from windfall.scheduling.planning import plan
from windfall.scheduling.share_reasons import ComputeReserved, ShareTurn
from windfall.scheduling.snapshot import SchedulingClass

EIGHT = Amount(8)


def shares(total: Amount = EIGHT, kept: Amount = NONE, percent: int = 0, **used: float) -> FairShareView:
    """Shares of weight 1 that hold so many vCPUs now."""
    return FairShareView(
        600, total, {name: ShareView(held=Amount(amount)) for name, amount in used.items()}, percent, kept
    )


def of(share: str, priority: int = 0) -> SchedulingClass:
    return SchedulingClass(share, priority)


def order(cluster: Cluster) -> list[str]:
    return [job_id for job_id, _ in dispatch_order(cluster.snapshot().queues[0], 100)]


def explained(cluster: Cluster, name: str):
    snapshot, job = cluster.snapshot(), cluster.job(name)
    view = snapshot.queues[0]
    ahead = jobs_ahead(view, job.waiting, job.scheduling_class)
    return explain(snapshot, job.queue, job.shape, job.waiting, ahead, job.scheduling_class)


def test_the_share_that_used_least_goes_first_and_then_they_alternate():
    cluster = a_cluster().with_fair_share(shares(a=2, b=0))
    for name in ("a1", "a2", "a3", "b1", "b2", "b3", "b4"):
        cluster = cluster.with_waiting(name, scheduling_class=of(name[0]))
    assert order(cluster) == ["b1", "b2", "a1", "b3", "a2", "b4", "a3"]
    assert [job for job, _ in started(plan(cluster.snapshot()))] == order(cluster)


def test_equal_scores_are_decided_by_who_came_first():
    cluster = a_cluster().with_fair_share(shares(a=0, b=0))
    for name in ("b1", "a1", "b2", "a2"):
        cluster = cluster.with_waiting(name, scheduling_class=of(name[0]))
    assert order(cluster) == ["b1", "a1", "b2", "a2"]


def test_within_a_share_the_more_urgent_goes_first_whatever_its_shape():
    cluster = a_cluster().with_fair_share(shares(a=0))
    cluster = cluster.with_waiting("low", scheduling_class=of("a"))
    cluster = cluster.with_waiting("high", 2, scheduling_class=of("a", 9)).with_waiting(
        "high2", scheduling_class=of("a", 9)
    )
    assert order(cluster) == ["high", "high2", "low"]
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["high", "high2", "low"]


def test_priority_means_nothing_between_shares():
    cluster = a_cluster().with_fair_share(shares(a=4, b=0))
    cluster = cluster.with_waiting("urgent", scheduling_class=of("a", 9999)).with_waiting(
        "calm", scheduling_class=of("b")
    )
    assert order(cluster) == ["calm", "urgent"]


def test_a_large_job_is_charged_for_all_that_it_takes():
    cluster = a_cluster().with_fair_share(shares(a=0, b=0))
    cluster = cluster.with_waiting("large", 4, scheduling_class=of("a")).with_waiting(
        "later", scheduling_class=of("a")
    )
    for name in ("b1", "b2", "b3", "b4"):
        cluster = cluster.with_waiting(name, scheduling_class=of("b"))
    placed = [job for job, _ in started(plan(cluster.snapshot()))]
    assert placed == ["large", "b1", "b2", "b3", "b4"]
    # At 4 to 4 it would be the turn of the one that came first; but nothing is free any more.
    assert order(cluster) == [*placed, "later"]


def test_the_children_of_an_array_take_turns_with_others():
    cluster = a_cluster().with_fair_share(shares(a=0, b=0))
    cluster = cluster.with_waiting("array", count=6, scheduling_class=of("a"))
    cluster = cluster.with_waiting("many", count=6, scheduling_class=of("b"))
    placed = [job for job, _ in started(plan(cluster.snapshot()))]
    assert placed == ["array", "many"] * 4
    assert order(cluster) == ["array", "many"]


def test_gpus_count_beside_vcpus():
    total = Amount(8, 2)
    view = FairShareView(600, total, {"a": ShareView(held=Amount(1, 1)), "b": ShareView(held=Amount(3))})
    cluster = a_cluster(gpus=2).with_fair_share(view)
    cluster = cluster.with_waiting("a1", scheduling_class=of("a")).with_waiting(
        "b1", scheduling_class=of("b")
    )
    assert order(cluster) == ["b1", "a1"]


def test_what_does_not_fit_lets_others_of_its_share_and_other_shares_pass():
    cluster = a_cluster(vcpus=2).with_fair_share(shares(a=0, b=1))
    cluster = cluster.with_waiting("huge", 4, scheduling_class=of("a", 5)).with_waiting(
        "small", scheduling_class=of("a")
    )
    cluster = cluster.with_waiting("other", scheduling_class=of("b"))
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["small", "other"]


def test_a_fair_share_queue_stands_among_equal_queues_with_the_order_of_its_next_job():
    cluster = a_cluster(vcpus=3).with_queue("plain").with_fair_share(shares(a=4, b=0))
    cluster = cluster.with_waiting("a1", scheduling_class=of("a"))
    cluster = cluster.with_waiting("p1", queue="plain").with_waiting("b1", scheduling_class=of("b"))
    cluster = cluster.with_waiting("p2", queue="plain")
    # b's turn comes before a's, so the queue stands behind p1.
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["p1", "b1", "a1"]


def test_shares_of_a_quota_queue_go_by_priority_inside_and_by_order_between():
    cluster = a_cluster()
    cluster = cluster.with_waiting("a1", scheduling_class=of("a")).with_waiting(
        "b1", scheduling_class=of("b")
    )
    cluster = cluster.with_waiting("a9", scheduling_class=of("a", 9))
    assert order(cluster) == ["b1", "a9", "a1"]
    assert Turns(cluster.snapshot().queues).stride > 1


def test_a_pass_ends_at_the_very_turn_of_a_job():
    cluster = a_cluster().with_fair_share(shares(a=2, b=0))
    for name in ("a1", "a2", "b1", "b2", "b3"):
        cluster = cluster.with_waiting(name, scheduling_class=of(name[0]))
    job, snapshot = cluster.job("a2"), cluster.snapshot()
    until = Until.turn_of(snapshot.queues[0], job.shape, job.scheduling_class, job.waiting)
    before = [one.job_id for one in assign(snapshot, until).placements]
    assert before == order(cluster)[: order(cluster).index("a2")]


def test_a_pass_ends_where_somebody_before_the_job_in_its_line_finds_no_place():
    cluster = a_cluster(vcpus=1).with_fair_share(shares(a=0, b=0))
    for name in ("a1", "a2", "a3", "b1"):
        cluster = cluster.with_waiting(name, scheduling_class=of(name[0]))
    job, snapshot = cluster.job("a3"), cluster.snapshot()
    assignment = assign(
        snapshot, Until.turn_of(snapshot.queues[0], job.shape, job.scheduling_class, job.waiting)
    )
    # After a1 it is b's turn, who has found no room; then a2, and with it the line of a3.
    assert [one.job_id for one in assignment.placements] == ["a1"]
    assert [(left.head.job_id, left.count) for left in assignment.blocked] == [("b1", 1), ("a2", 1)]


def test_jobs_ahead_are_those_of_the_share():
    cluster = a_cluster().with_fair_share(shares(a=0, b=0))
    cluster = cluster.with_waiting("b1", scheduling_class=of("b")).with_waiting(
        "a1", count=3, scheduling_class=of("a")
    )
    cluster = cluster.with_waiting("a9", scheduling_class=of("a", 9)).with_waiting(
        "a2", scheduling_class=of("a")
    )
    view = cluster.snapshot().queues[0]
    ahead = {job.waiting.job_id: jobs_ahead(view, job.waiting, job.scheduling_class) for job in cluster.jobs}
    assert ahead == {"b1": 0, "a9": 0, "a1": 1, "a2": 4}


def test_a_wait_is_explained_with_the_numbers_of_the_share():
    view = FairShareView(
        3600,
        Amount(8),
        {
            "a": ShareView(2.0, Amount(2.5), Amount(4)),
            "b": ShareView(1.0, Amount(1), Amount(1)),
            "c": ShareView(1.0, Amount(8), Amount(8)),
        },
    )
    cluster = a_cluster(vcpus=4).with_running("i1", 4).with_fair_share(view)
    for name in ("a1", "a2", "b1", "c1"):
        cluster = cluster.with_waiting(name, scheduling_class=of(name[0]))
    [turn] = [one for one in explained(cluster, "a2").reasons if isinstance(one, ShareTurn)]
    assert (turn.score, turn.before, turn.ahead) == (2 * 6.5 / 8, (("b", 0.25),), 1)
    assert turn.text() == (
        "its share a of queue queue holds 4 vCPUs and held 2.5 vCPUs on average over the last 3,600 s, of 8 vCPUs: with"
        " weight 2 its score is 1.625; before it go b (0.25); ahead of it in its own share: 1 job"
    )


def test_nobody_before_it_is_said_too():
    cluster = a_cluster(vcpus=4).with_running("i1", 4).with_fair_share(shares(a=0, b=4))
    cluster = cluster.with_waiting("a1", scheduling_class=of("a")).with_waiting(
        "b1", scheduling_class=of("b")
    )
    [turn] = [one for one in explained(cluster, "a1").reasons if isinstance(one, ShareTurn)]
    assert "its score is 0, and no share that waits has a lower one" in turn.text()
    names = [f"s{number}" for number in range(5)]
    crowd = (
        a_cluster(vcpus=4).with_running("i1", 4).with_fair_share(shares(late=4, **dict.fromkeys(names, 1.0)))
    )
    for name in names:
        crowd = crowd.with_waiting(f"{name}-job", scheduling_class=of(name))
    crowd = crowd.with_waiting("late-job", scheduling_class=of("late"))
    [turn] = [one for one in explained(crowd, "late-job").reasons if isinstance(one, ShareTurn)]
    assert "s0 (0.125), s1 (0.125), s2 (0.125) and 2 others" in turn.text()


def test_the_reservation_keeps_active_shares_from_a_part_of_the_capacity():
    view = shares(Amount(8, 2), Amount(4, 1), 50, a=1)
    cluster = a_cluster(gpus=2).with_fair_share(view).with_waiting("a1", count=5, scheduling_class=of("a"))
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["a1"] * 3
    gpu = a_cluster(gpus=2).with_fair_share(view).with_waiting("g", gpus=1, count=2, scheduling_class=of("a"))
    assert [job for job, _ in started(plan(gpu.snapshot()))] == ["g"]


def test_nothing_is_launched_for_those_whom_the_reservation_bars():
    cluster = a_cluster(vcpus=4).with_fair_share(shares(Amount(8), Amount(4), 50, a=4))
    cluster = cluster.with_waiting("a1", scheduling_class=of("a"))
    assert plan(cluster.snapshot()).placements == ()
    assert plan(cluster.snapshot()).launches == ()


def test_no_more_is_launched_than_the_reservation_lets_start():
    cluster = a_snapshot().with_environment(offers=(an_offer(vcpus=1, available=99),)).with_queue()
    cluster = cluster.with_fair_share(shares(Amount(8), Amount(5), 62, a=0))
    cluster = cluster.with_waiting("a1", count=20, scheduling_class=of("a"))
    assert len(plan(cluster.snapshot()).launches) == 3


def test_the_reservation_is_explained_with_its_numbers():
    cluster = (
        a_cluster()
        .with_fair_share(shares(Amount(8), Amount(4), 50, a=4))
        .with_waiting("a1", scheduling_class=of("a"))
    )
    first = explained(cluster, "a1").reasons[0]
    assert isinstance(first, ComputeReserved)
    assert first.text() == (
        "queue queue keeps 4 vCPUs of 8 vCPUs for shares that are not active (computeReservation 50, 1 active share):"
        " the active ones may use 4 vCPUs, and 4 vCPUs are in use; lower computeReservation to let it start"
    )
    large = (
        a_cluster()
        .with_fair_share(shares(Amount(8), Amount(4), 50, a=0))
        .with_waiting("x", 5, scheduling_class=of("a"))
    )
    assert "so that it can never start" in explained(large, "x").reasons[0].text()


@pytest.mark.parametrize("waited_ms", [0, 600_000])
def test_a_job_whose_turn_it_is_starts_next(waited_ms):
    cluster = (
        a_cluster()
        .with_fair_share(shares(a=0))
        .with_waiting("a1", waited_ms=waited_ms, scheduling_class=of("a"))
    )
    assert [reason.code for reason in explained(cluster, "a1").reasons] == ["STARTS_NEXT"]
    assert cluster.now == NOW
