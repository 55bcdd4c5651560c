"""What is launched for waiting jobs and for minvCpus, and which idle instances go away."""

from __future__ import annotations

import pytest

from tests.unit.scheduling.builders import MINUTE, a_snapshot, an_offer, launched, started
from windfall.capacity.environments import Provisioning
from windfall.capacity.machines import InstanceState
from windfall.jobs.resources import Resources
from windfall.scheduling.explain import explain
from windfall.scheduling.launchable import Bin, pack, times
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Gang, SchedulingClass, Shape

SMALL, LARGE = an_offer("small", vcpus=4, memory_mib=8_000), an_offer("large", vcpus=16, memory_mib=64_000)
GPU = an_offer("gpu", vcpus=8, memory_mib=32_000, gpus=2)


def elastic(*offers, **environment):
    return a_snapshot().with_environment("env", offers=offers or (SMALL,), **environment)


def launches(cluster):
    return [offered for _, offered in launched(plan(cluster.snapshot()))]


# ----------------------------------------------------------------------------------------------- waiting jobs


def test_a_waiting_job_gets_an_instance():
    assert launched(plan(elastic().with_waiting("a").snapshot())) == [("env", "small")]


def test_nothing_is_launched_for_a_job_that_was_placed():
    assert launches(elastic().with_instance("i1").with_waiting("a")) == []


def test_as_many_instances_as_the_jobs_need():
    assert launches(elastic().with_waiting("array", 2, count=5)) == ["small"] * 3


def test_jobs_of_other_shapes_share_an_instance():
    assert launches(elastic().with_waiting("a", 2).with_waiting("b", 1).with_waiting("c", 1)) == ["small"]


def test_the_scarcest_resource_decides_how_many_share_an_instance():
    assert launches(elastic().with_waiting("array", 1, 4_000, count=4)) == ["small"] * 2


def test_offers_are_tried_in_the_given_order():
    assert launches(elastic(LARGE, SMALL).with_waiting("a")) == ["large"]
    assert launches(elastic(SMALL, LARGE).with_waiting("a")) == ["small"]


def test_an_offer_that_is_too_small_is_passed_over():
    assert launches(elastic(SMALL, LARGE).with_waiting("a", 8)) == ["large"]
    assert launches(elastic(SMALL, LARGE, GPU).with_waiting("a", gpus=1)) == ["gpu"]


def test_a_job_too_large_for_all_offers_launches_nothing():
    assert launches(elastic(SMALL, LARGE).with_waiting("a", 17)) == []


def test_no_more_than_the_engine_has():
    few = an_offer("few", vcpus=4, memory_mib=8_000, available=2)
    assert launches(elastic(few).with_waiting("array", 4, count=9)) == ["few"] * 2
    assert launches(elastic(few, LARGE).with_waiting("array", 4, count=9)) == ["few", "few", "large", "large"]


def test_never_beyond_max_vcpus():
    assert launches(elastic(max_vcpus=11).with_waiting("array", 4, count=9)) == ["small"] * 2
    assert launches(elastic(max_vcpus=3).with_waiting("a")) == []


@pytest.mark.parametrize("state", list(InstanceState))
def test_instances_that_exist_count_towards_max_vcpus(state):
    cluster = a_snapshot().with_instance("i1", vcpus=8, state=state).with_waiting("a", gpus=1)
    assert launches(cluster.with_environment("env", offers=(GPU,), max_vcpus=15)) == []
    assert launches(cluster.with_environment("env", offers=(GPU,), max_vcpus=16)) == ["gpu"]


def test_a_smaller_offer_is_taken_when_max_vcpus_leaves_no_room_for_the_first():
    assert launches(elastic(LARGE, SMALL, max_vcpus=8).with_waiting("a")) == ["small"]


def test_environments_are_tried_in_the_queues_order():
    cluster = elastic(max_vcpus=4).with_environment("two", offers=(LARGE,)).with_queue("queue", "env", "two")
    decided = plan(cluster.with_waiting("array", 4, count=3).snapshot())
    assert launched(decided) == [("env", "small"), ("two", "large")]


def two_environments(*, first=SMALL, idle=1, **environment):
    """A queue over two environments: the first has no instance, the second has idle ones."""
    cluster = a_snapshot().with_environment("spot", offers=(first,), kind=Provisioning.SPOT, **environment)
    cluster = cluster.with_environment("demand", offers=(SMALL,)).with_queue("queue", "spot", "demand")
    for number in range(idle):
        cluster = cluster.with_instance(f"i{number}", "demand", vcpus=4, memory_mib=8_000)
    return cluster


def decided(cluster):
    found = plan(cluster.snapshot())
    return started(found), launched(found)


def reasons(cluster, job):
    waits = cluster.job(job)
    found = explain(cluster.snapshot(), waits.queue, waits.shape, waits.waiting, 0)
    return [reason.code for reason in found.reasons]


def test_an_idle_instance_of_a_later_environment_does_not_win_over_an_earlier_one_that_can_launch():
    cluster = two_environments().with_waiting("a", 4)
    assert decided(cluster) == ([], [("spot", "small")])
    assert {"EARLIER_ENVIRONMENT", "LAUNCHES_NEXT"} <= set(reasons(cluster, "a"))


def test_a_job_waits_for_the_instance_that_an_earlier_environment_launches():
    cluster = two_environments(max_vcpus=4).with_waiting("a", 4)
    coming = cluster.with_instance("c", "spot", vcpus=4, memory_mib=8_000, state=InstanceState.LAUNCHING)
    assert decided(coming) == ([], [])
    assert {"EARLIER_ENVIRONMENT", "INSTANCE_LAUNCHING"} <= set(reasons(coming, "a"))


@pytest.mark.parametrize(
    "spot",
    [
        {"trouble": "no credentials"},
        {"short": {"small": 5}},
        {"max_vcpus": 3},
        {"enabled": False},
        {"first": an_offer("few", vcpus=4, memory_mib=8_000, available=0)},
        {"first": an_offer("tiny", vcpus=2, memory_mib=8_000)},
    ],
)
def test_a_later_environment_serves_what_the_earlier_one_cannot_bring(spot):
    cluster = two_environments(**spot).with_waiting("a", 4)
    assert decided(cluster) == ([("a", "i0")], [])
    assert reasons(cluster, "a") == ["STARTS_NEXT"]


def test_only_those_go_on_to_a_later_environment_that_the_earlier_one_has_no_room_for():
    cluster = two_environments(idle=3, max_vcpus=8).with_waiting("array", 4, count=4)
    found = plan(cluster.snapshot())
    assert [placement.job_id for placement in found.placements] == ["array", "array"]
    assert launched(found) == [("spot", "small")] * 2
    assert reasons(cluster, "array") == ["STARTS_NEXT"]


def test_what_others_wait_for_is_not_counted_on_again():
    cluster = two_environments(idle=2, max_vcpus=4).with_waiting("a", 4).with_waiting("b", 3)
    assert decided(cluster) == ([("b", "i0")], [("spot", "small")])
    assert "EARLIER_ENVIRONMENT" in reasons(cluster, "a")
    assert reasons(cluster, "b") == ["STARTS_NEXT"]


def test_the_more_urgent_queue_gets_the_last_instance():
    cluster = elastic(SMALL, GPU, max_vcpus=8).with_queue("queue").with_queue("urgent", "env", priority=9)
    assert launches(cluster.with_waiting("a").with_waiting("b", gpus=1, queue="urgent")) == ["gpu"]


def test_nothing_more_for_jobs_that_a_launching_instance_will_take():
    cluster = elastic().with_instance("i1", vcpus=4, memory_mib=8_000, state=InstanceState.LAUNCHING)
    assert launches(cluster.with_waiting("array", count=4)) == []
    assert launches(cluster.with_waiting("array", count=5)) == ["small"]


def test_a_launching_instance_of_an_environment_tried_later_counts_too():
    cluster = elastic().with_environment("two").with_queue("queue", "env", "two")
    cluster = cluster.with_instance("i1", "two", state=InstanceState.LAUNCHING)
    assert launches(cluster.with_environment("env", trouble="no credentials").with_waiting("a")) == []
    # Not instead of what an environment can bring that comes before it.
    assert launched(plan(cluster.with_waiting("a").snapshot())) == [("env", "small")]


@pytest.mark.parametrize(
    "environment",
    [{"enabled": False}, {"trouble": "no credentials"}],
)
def test_environments_that_launch_nothing(environment):
    assert launches(elastic(min_vcpus=4, **environment).with_waiting("a")) == []


def test_no_gpu_instance_is_launched_for_gpu_jobs_on_fargate():
    assert launches(elastic(GPU, kind=Provisioning.FARGATE).with_waiting("a", gpus=1)) == []


def test_a_share_of_a_machine_too_small_for_the_job_is_not_launched():
    cluster = elastic(an_offer("share", machine="host")).with_machine("host", vcpus=2)
    assert launches(cluster.with_waiting("a", 4)) == []
    assert launches(cluster.with_waiting("a", 2)) == ["share"]


def test_jobs_held_back_by_a_reservation_get_instances_of_their_own():
    cluster = elastic().with_instance("i1", vcpus=8).with_running("i1", 6)
    cluster = cluster.with_waiting("big", 8, waited_ms=2 * MINUTE).with_waiting("small", 2)
    decided = plan(cluster.snapshot())
    assert [one.job_id for one in decided.reservations] == ["big"]
    assert started(decided) == []
    assert launched(decided) == [("env", "small")]


# -------------------------------------------------------------------------------------------------- min vCPUs


def test_min_vcpus_are_kept_with_nothing_waiting():
    assert launches(elastic(min_vcpus=7)) == ["small"] * 2


def test_instances_that_stay_count_towards_min_vcpus():
    cluster = elastic(min_vcpus=8).with_instance("i1", vcpus=4, state=InstanceState.LAUNCHING)
    assert launches(cluster) == ["small"]
    assert launches(cluster.with_instance("i2", vcpus=4)) == []
    assert launches(cluster.with_instance("i2", vcpus=4, state=InstanceState.TERMINATING)) == ["small"]


def test_instances_launched_for_jobs_count_towards_min_vcpus():
    assert launches(elastic(min_vcpus=4).with_waiting("a")) == ["small"]


def test_min_vcpus_do_not_override_max_vcpus():
    assert launches(elastic(min_vcpus=8, max_vcpus=7)) == ["small"]


def test_an_offer_without_vcpus_does_not_help():
    assert launches(elastic(an_offer("none", vcpus=0), SMALL, min_vcpus=1)) == ["small"]


# --------------------------------------------------------------------------------------------- idle instances


def gone(cluster):
    return list(plan(cluster.snapshot()).terminations)


def test_an_instance_idle_too_long_goes_away():
    assert gone(elastic().with_instance("i1", idle_ms=5 * MINUTE)) == ["i1"]
    assert gone(elastic().with_instance("i1", idle_ms=5 * MINUTE - 1)) == []


def test_how_long_is_a_rule():
    assert gone(elastic().with_rules(idle_after_ms=10).with_instance("i1", idle_ms=10)) == ["i1"]


def test_an_instance_at_work_stays():
    assert gone(elastic().with_instance("i1", idle_ms=9 * MINUTE).with_running("i1")) == []


def test_the_environment_stays_at_min_vcpus():
    cluster = elastic(min_vcpus=8)
    for name, idle in (("i1", 6), ("i2", 8), ("i3", 7)):
        cluster = cluster.with_instance(name, vcpus=4, idle_ms=idle * MINUTE)
    assert gone(cluster) == ["i2"]


def test_nothing_is_launched_for_what_goes_away_in_the_same_plan():
    decided = plan(elastic(min_vcpus=3).with_instance("i1", vcpus=4, idle_ms=9 * MINUTE).snapshot())
    assert (decided.launches, decided.terminations) == ((), ())


def test_instances_of_a_disabled_environment_go_at_once():
    cluster = (
        elastic(enabled=False, min_vcpus=8).with_instance("i1", idle_ms=0).with_instance("i2", idle_ms=0)
    )
    assert gone(cluster.with_running("i2")) == ["i1"]


def test_instances_of_an_environment_that_is_gone_go_at_once():
    assert gone(a_snapshot().with_instance("i1", "removed", idle_ms=0)) == ["i1"]


def test_the_owner_of_an_unmanaged_environment_keeps_his_instances():
    assert gone(elastic(kind=Provisioning.UNMANAGED).with_instance("i1", idle_ms=99 * MINUTE)) == []


def test_an_instance_that_gets_a_job_stays():
    assert gone(elastic().with_instance("i1", idle_ms=9 * MINUTE).with_waiting("a")) == []


@pytest.mark.parametrize("state", [InstanceState.LAUNCHING, InstanceState.TERMINATING])
def test_only_ready_instances_are_terminated(state):
    assert gone(elastic().with_instance("i1", state=state, idle_ms=9 * MINUTE)) == []


def sharing_a_full_machine():
    return (
        elastic()
        .with_environment("other")
        .with_machine("host")
        .with_instance("i1", "env", machine="host", idle_ms=9 * MINUTE)
        .with_instance("i2", "other", machine="host")
        .with_running("i2", 8)
    )


def test_an_idle_instance_stays_while_a_job_waits_for_its_machine():
    assert gone(sharing_a_full_machine().with_waiting("a")) == []
    assert gone(sharing_a_full_machine().with_waiting("too large", 9)) == ["i1"]


def test_an_idle_machine_goes_when_a_multi_node_job_lacks_another_that_has_no_room_beside_it():
    gang = SchedulingClass(gang=Gang(((Shape(Resources(1, 1_000)), 1), (Shape(Resources(1, 1_000, 1)), 1))))
    cluster = elastic(SMALL, GPU, max_vcpus=8).with_waiting("a", 1, 1_000, scheduling_class=gang)
    assert launches(cluster) == ["gpu"]
    beside = cluster.with_instance("i1", vcpus=4, idle_ms=9 * MINUTE)
    assert (launches(beside), gone(beside)) == ([], ["i1"])
    # A share of a machine would be there again at once, and takes nothing from anybody.
    assert gone(cluster.with_instance("i1", vcpus=4, idle_ms=9 * MINUTE, is_share=True)) == []


def test_a_reserved_instance_stays():
    cluster = sharing_a_full_machine().with_environment("env").with_waiting("a", waited_ms=2 * MINUTE)
    decided = plan(cluster.snapshot())
    assert [one.instance for one in decided.reservations] == ["i1"]
    assert decided.terminations == ()


# ---------------------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Resources(1, 1_000), 4),
        (Resources(1, 3_000), 2),
        (Resources(0.25, 100), 16),
        (Resources(1, 100, 1), 2),
        (Resources(1, 100, 3), 0),
        (Resources(0, 0), None),
    ],
)
def test_how_often_a_need_fits(wanted, expected):
    assert times(Shape(wanted), Resources(4, 8_000, 2)) == expected


def test_packing_fills_whole_instances_and_begins_one():
    bins = [Bin(Resources(4, 8_000), 3)]
    assert pack(bins, Shape(Resources(2, 1_000)), 3) == 0
    left = sorted((one.left.vcpus, one.instances) for one in bins if one.instances)
    assert left == [(0, 1), (2, 1), (4, 1)]


def test_packing_says_how_many_found_no_room():
    bins = [Bin(Resources(4, 8_000), 2), Bin(Resources(1, 8_000), 1)]
    assert pack(bins, Shape(Resources(2, 1_000)), 7) == 3


def test_what_is_left_of_a_begun_instance_is_packed_next():
    bins = [Bin(Resources(4, 8_000), 1)]
    assert pack(bins, Shape(Resources(3, 1_000)), 1) == 0
    assert pack(bins, Shape(Resources(1, 1_000)), 2) == 1


def test_jobs_that_need_nothing_always_find_room():
    assert pack([Bin(Resources(1, 1), 1)], Shape(Resources(0, 0)), 1_000) == 0
