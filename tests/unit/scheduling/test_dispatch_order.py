"""The order in which waiting jobs of a queue get their turn, and how many are ahead of one."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.scheduling.builders import a_cluster
from windfall.capacity.policies import CapacityLimit, QuotaShare, SharingStrategy
from windfall.scheduling.dispatch_order import by_priority, dispatch_order, jobs_ahead
from windfall.scheduling.quota_gate import QuotaGate
from windfall.scheduling.snapshot import QuotaView, SchedulingClass


def the_queue(cluster):
    (view,) = cluster.snapshot().queues
    return view


def four_jobs():
    cluster = a_cluster().with_waiting("a", 1).with_waiting("b", 2).with_waiting("c", 1, count=5)
    return cluster.with_waiting("d", 2)


def test_jobs_of_all_shapes_in_one_order():
    assert [job_id for job_id, _ in dispatch_order(the_queue(four_jobs()), 100)] == ["a", "b", "c", "d"]


def test_the_first_few():
    assert [job_id for job_id, _ in dispatch_order(the_queue(four_jobs()), 2)] == ["a", "b"]
    assert dispatch_order(the_queue(four_jobs()), 0) == []
    assert dispatch_order(the_queue(four_jobs()), -1) == []


def test_the_entry_comes_with_its_id():
    ((job_id, entry),) = dispatch_order(the_queue(a_cluster().with_waiting("a", count=7)), 1)
    assert (job_id, entry.job_id, entry.count) == ("a", "a", 7)


def test_an_entry_without_waiting_children_is_left_out():
    view = the_queue(a_cluster().with_waiting("spent", count=0).with_waiting("a"))
    assert [job_id for job_id, _ in dispatch_order(view, 9)] == ["a"]


def test_an_empty_queue():
    assert dispatch_order(the_queue(a_cluster()), 9) == []


def test_those_who_would_borrow_come_after_all_who_need_not():
    shares = tuple(
        QuotaShare(name, "queue", (CapacityLimit("VCPU", 2),), SharingStrategy.LEND_AND_BORROW)
        for name in ("a", "b")
    )
    cluster = a_cluster()
    for job, share, vcpus in (("a1", "a", 1), ("a2", "a", 1), ("b1", "b", 2), ("a3", "a", 1), ("b2", "b", 1)):
        cluster = cluster.with_waiting(job, vcpus, scheduling_class=SchedulingClass(share=share))
    snapshot = replace(cluster.snapshot(), quotas={"queue": QuotaView(shares, {"a": {"VCPU": 1.0}})})
    (view,) = snapshot.queues
    found = dispatch_order(view, 9, QuotaGate(snapshot))
    assert [job_id for job_id, _ in found] == ["a1", "b1", "a2", "a3", "b2"]


def test_children_ahead_are_counted_one_by_one():
    cluster = four_jobs()
    ahead = {job.waiting.job_id: jobs_ahead(the_queue(cluster), job.waiting) for job in cluster.jobs}
    assert ahead == {"a": 0, "b": 1, "c": 2, "d": 7}


def test_levels_of_equal_priority_by_name():
    cluster = (
        a_cluster().with_queue("z", priority=5).with_queue("b", priority=5).with_queue("low", priority=0)
    )
    levels = [[view.queue.name for view in level] for level in by_priority(cluster.snapshot().queues)]
    assert levels == [["b", "z"], ["queue"], ["low"]]
