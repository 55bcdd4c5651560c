"""Reserve and backfill: who gets a reservation, where, for when, and who may still start there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.scheduling.builders import MINUTE, NOW, a_cluster, a_snapshot, an_offer, started
from windfall.capacity.machines import InstanceState
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Reservation

LONG = 2 * MINUTE


def reserved(cluster):
    return list(plan(cluster.snapshot()).reservations)


def busy(ends_in_s=None, vcpus=8):
    """One instance of 8 vCPUs of which 6 are held by one attempt."""
    return a_cluster(vcpus=vcpus).with_running("i1", 6, ends_in_s=ends_in_s)


# ----------------------------------------------------------------------------------------------- who and when


def test_a_job_passed_over_too_long_gets_a_reservation():
    assert reserved(busy().with_waiting("big", 4, waited_ms=LONG)) == [Reservation("big", "i1", None)]


def test_a_job_that_came_just_now_gets_none():
    assert reserved(busy().with_waiting("big", 4, waited_ms=MINUTE)) == []


def test_the_time_after_which_one_is_made_is_a_rule():
    cluster = busy().with_waiting("big", 4, waited_ms=5_000)
    assert reserved(cluster.with_rules(reserve_after_ms=5_000)) == []
    assert reserved(cluster.with_rules(reserve_after_ms=4_999)) == [Reservation("big", "i1", None)]


def test_a_job_that_fits_needs_none():
    assert reserved(busy().with_waiting("small", 2, waited_ms=LONG)) == []


def test_a_job_that_can_never_fit_gets_none_and_leaves_it_to_the_next():
    cluster = busy().with_waiting("never", 9, waited_ms=LONG).with_waiting("big", 4, waited_ms=LONG)
    assert [one.job_id for one in reserved(cluster)] == ["big"]


def test_a_set_of_environments_has_one_reservation():
    cluster = busy().with_instance("i2").with_running("i2", 7)
    cluster = cluster.with_waiting("first", 4, waited_ms=LONG).with_waiting("second", 5, waited_ms=LONG)
    assert [one.job_id for one in reserved(cluster)] == ["first"]


def test_the_more_urgent_queue_has_it():
    cluster = busy().with_queue("urgent", "env", priority=9)
    cluster = cluster.with_waiting("a", 4, waited_ms=LONG).with_waiting(
        "b", 5, queue="urgent", waited_ms=LONG
    )
    assert [one.job_id for one in reserved(cluster)] == ["b"]


def test_other_sets_of_environments_have_their_own():
    cluster = (
        busy()
        .with_environment("other")
        .with_queue("q2", "other")
        .with_instance("i2", "other")
        .with_running("i2", 6)
    )
    cluster = cluster.with_waiting("a", 4, waited_ms=LONG).with_waiting("b", 4, queue="q2", waited_ms=LONG)
    assert [(one.job_id, one.instance) for one in reserved(cluster)] == [("a", "i1"), ("b", "i2")]


def test_a_machine_is_reserved_once():
    cluster = (
        a_snapshot()
        .with_environment("one")
        .with_environment("two")
        .with_machine("host")
        .with_instance("i1", "one", machine="host")
        .with_instance("i2", "two", machine="host")
        .with_running("i1", 7)
        .with_queue("q1", "one")
        .with_queue("q2", "two")
    )
    cluster = cluster.with_waiting("a", 4, queue="q1", waited_ms=LONG)
    assert [one.job_id for one in reserved(cluster.with_waiting("b", 4, queue="q2", waited_ms=LONG))] == ["a"]


def test_no_reservation_while_an_instance_for_it_is_launching():
    cluster = busy().with_instance("i2", state=InstanceState.LAUNCHING).with_waiting("big", 4, waited_ms=LONG)
    assert reserved(cluster) == []


def test_no_reservation_while_an_instance_for_it_can_be_launched():
    cluster = busy().with_environment("env", offers=(an_offer(),)).with_waiting("big", 4, waited_ms=LONG)
    assert reserved(cluster) == []


@pytest.mark.parametrize(
    "environment",
    [
        {"offers": (an_offer(),), "max_vcpus": 15},
        {"offers": (an_offer(available=0),)},
        {"offers": (an_offer(),), "trouble": "no credentials"},
        {"offers": (an_offer(vcpus=2),)},
    ],
)
def test_offers_that_cannot_be_had_do_not_count(environment):
    cluster = busy().with_environment("env", **environment).with_waiting("big", 4, waited_ms=LONG)
    assert [one.job_id for one in reserved(cluster)] == ["big"]


# --------------------------------------------------------------------------------------------- where and when


def test_it_is_expected_when_enough_has_ended():
    cluster = a_cluster().with_running("i1", 3, ends_in_s=100).with_running("i1", 3, ends_in_s=200)
    cluster = cluster.with_running("i1", 2, ends_in_s=300)
    assert reserved(cluster.with_waiting("big", 6, waited_ms=LONG)) == [
        Reservation("big", "i1", NOW + 200_000)
    ]


def test_it_is_not_known_when_something_needed_has_no_limit():
    cluster = a_cluster().with_running("i1", 3, ends_in_s=100).with_running("i1", 5)
    assert reserved(cluster.with_waiting("big", 6, waited_ms=LONG)) == [Reservation("big", "i1", None)]


def test_what_is_not_needed_may_have_no_limit():
    cluster = a_cluster().with_running("i1", 6, ends_in_s=100).with_running("i1", 2)
    assert reserved(cluster.with_waiting("big", 6, waited_ms=LONG)) == [
        Reservation("big", "i1", NOW + 100_000)
    ]


def test_the_soonest_instance_is_chosen():
    cluster = busy(ends_in_s=500).with_instance("i2").with_running("i2", 8, ends_in_s=90)
    assert reserved(cluster.with_waiting("big", 4, waited_ms=LONG)) == [
        Reservation("big", "i2", NOW + 90_000)
    ]


def test_a_known_time_is_better_than_an_unknown_one():
    cluster = busy().with_instance("i2").with_running("i2", 8, ends_in_s=9_000)
    assert [one.instance for one in reserved(cluster.with_waiting("big", 4, waited_ms=LONG))] == ["i2"]


def test_without_times_the_instance_that_lacks_least_is_chosen():
    cluster = a_cluster().with_running("i1", 7).with_instance("i2").with_running("i2", 5)
    assert [one.instance for one in reserved(cluster.with_waiting("big", 6, waited_ms=LONG))] == ["i2"]


def test_the_chosen_instance_must_be_large_enough():
    cluster = a_cluster(vcpus=4).with_running("i1", 1, ends_in_s=1).with_instance("i2").with_running("i2", 6)
    assert [one.instance for one in reserved(cluster.with_waiting("big", 6, waited_ms=LONG))] == ["i2"]


def test_gpus_are_waited_for_like_vcpus():
    cluster = a_cluster(gpus=4).with_running("i1", gpus=3, ends_in_s=70)
    assert reserved(cluster.with_waiting("big", gpus=2, waited_ms=LONG)) == [
        Reservation("big", "i1", NOW + 70_000)
    ]


def test_jobs_that_this_plan_starts_are_waited_for_too():
    cluster = a_cluster().with_waiting("first", 6, timeout_s=300).with_waiting("big", 4, waited_ms=LONG)
    decided = plan(cluster.snapshot())
    assert started(decided) == [("first", "i1")]
    assert decided.reservations == (Reservation("big", "i1", NOW + 300_000),)


def test_what_other_environments_hold_of_the_machine_is_waited_for():
    cluster = (
        a_snapshot()
        .with_environment("one")
        .with_environment("two")
        .with_machine("host")
        .with_instance("i1", "one", machine="host")
        .with_instance("i2", "two", machine="host")
        .with_running("i2", 7, ends_in_s=120)
        .with_queue("queue", "one")
    )
    assert reserved(cluster.with_waiting("big", 4, waited_ms=LONG)) == [
        Reservation("big", "i1", NOW + 120_000)
    ]


def test_an_attempt_past_its_limit_is_expected_to_end_now():
    assert reserved(busy(ends_in_s=-5).with_waiting("big", 4, waited_ms=LONG)) == [
        Reservation("big", "i1", NOW)
    ]


# ----------------------------------------------------------------------------------- what may start meanwhile


def test_a_smaller_job_does_not_take_what_is_kept():
    cluster = busy().with_waiting("big", 4, waited_ms=LONG).with_waiting("small", 1)
    assert started(plan(cluster.snapshot())) == []


def test_without_the_wait_it_would_have_taken_it():
    cluster = busy().with_waiting("big", 4).with_waiting("small", 1)
    assert started(plan(cluster.snapshot())) == [("small", "i1")]


def test_other_instances_take_smaller_jobs_as_ever():
    cluster = (
        busy().with_instance("i2", vcpus=2).with_waiting("big", 4, waited_ms=LONG).with_waiting("small", 1)
    )
    assert started(plan(cluster.snapshot())) == [("small", "i2")]


def test_a_job_may_take_what_the_reserved_one_does_not_need():
    cluster = a_cluster(gpus=4).with_running("i1", gpus=3)
    cluster = cluster.with_waiting("big", 1, gpus=2, waited_ms=LONG)
    cluster = cluster.with_waiting("small", 6).with_waiting("spoiler", 1)
    # 7 vCPUs are free and big needs 1: six may go, the seventh may not.
    assert started(plan(cluster.snapshot())) == [("small", "i1")]


def test_a_job_that_ends_in_time_may_start():
    cluster = busy(ends_in_s=600).with_waiting("big", 8, waited_ms=LONG)
    assert started(plan(cluster.with_waiting("short", 2, timeout_s=599).snapshot())) == [("short", "i1")]


def test_a_timeout_is_when_it_is_asked_to_stop_and_it_may_take_its_grace():
    cluster = busy(ends_in_s=600).with_waiting("big", 8, waited_ms=LONG)
    cluster = replace(cluster, rules=replace(cluster.rules, grace_ms=30_000))
    assert started(plan(cluster.with_waiting("late", 2, timeout_s=570).snapshot())) == []
    assert started(plan(cluster.with_waiting("short", 2, timeout_s=569).snapshot())) == [("short", "i1")]


def test_jobs_that_end_in_time_take_nothing_of_what_is_left_beside():
    cluster = a_cluster(vcpus=10).with_running("i1", 6, ends_in_s=600).with_waiting("big", 9, waited_ms=LONG)
    cluster = (
        cluster.with_waiting("short", 2, timeout_s=60).with_waiting("endless", 1).with_waiting("late", 1)
    )
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["short", "endless"]


def test_a_job_that_might_end_too_late_may_not_start():
    cluster = busy(ends_in_s=600).with_waiting("big", 8, waited_ms=LONG)
    assert started(plan(cluster.with_waiting("long", 2, timeout_s=600).snapshot())) == []
    assert started(plan(cluster.with_waiting("endless", 2).snapshot())) == []


def test_there_is_room_beside_the_reserved_job_when_its_time_has_come():
    cluster = busy(ends_in_s=600).with_waiting("big", 5, waited_ms=LONG)
    # At that time 8 are free, big takes 5, so 3 may be held by then and only 2 are free now.
    cluster = cluster.with_waiting("one", 2).with_waiting("two", 2)
    assert started(plan(cluster.snapshot())) == [("one", "i1")]


def test_what_is_left_beside_is_given_once():
    cluster = a_cluster(vcpus=10).with_running("i1", 6, ends_in_s=600).with_waiting("big", 8, waited_ms=LONG)
    cluster = cluster.with_waiting("a", 1).with_waiting("b", 1).with_waiting("c", 1)
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["a", "b"]


def test_instances_of_other_environments_on_the_machine_respect_it():
    cluster = (
        a_snapshot()
        .with_environment("one")
        .with_environment("two")
        .with_machine("host")
        .with_instance("i1", "one", machine="host")
        .with_instance("i2", "two", machine="host")
        .with_running("i1", 6)
        .with_queue("q1", "one", priority=5)
        .with_queue("q2", "two")
    )
    cluster = cluster.with_waiting("big", 4, queue="q1", waited_ms=LONG).with_waiting("small", 1, queue="q2")
    assert started(plan(cluster.snapshot())) == []


def test_on_a_larger_machine_other_environments_may_go_on():
    cluster = (
        a_snapshot()
        .with_environment("one")
        .with_environment("two")
        .with_machine("host", vcpus=32, memory_mib=64_000)
        .with_instance("i1", "one", machine="host")
        .with_instance("i2", "two", machine="host")
        .with_running("i1", 6)
        .with_queue("q1", "one", priority=5)
        .with_queue("q2", "two")
    )
    cluster = cluster.with_waiting("big", 4, queue="q1", waited_ms=LONG).with_waiting("small", 8, queue="q2")
    assert started(plan(cluster.snapshot())) == [("small", "i2")]


def test_a_more_urgent_job_is_not_held_back():
    cluster = busy().with_queue("urgent", "env", priority=9)
    cluster = cluster.with_waiting("big", 4, waited_ms=LONG).with_waiting("now", 2, queue="urgent")
    assert started(plan(cluster.snapshot())) == [("now", "i1")]


def test_a_less_urgent_job_is():
    cluster = busy().with_queue("lazy", "env", priority=0)
    cluster = cluster.with_waiting("small", 2, queue="lazy").with_waiting("big", 4, waited_ms=LONG)
    assert started(plan(cluster.snapshot())) == []


def test_a_job_of_an_equal_queue_with_an_earlier_name_is_held_back():
    cluster = busy().with_queue("a-queue").with_waiting("big", 4, waited_ms=LONG)
    assert started(plan(cluster.with_waiting("small", 2, queue="a-queue").snapshot())) == []


def test_when_enough_has_ended_the_reserved_job_starts():
    cluster = (
        a_cluster().with_running("i1", 4).with_waiting("big", 4, waited_ms=LONG).with_waiting("small", 1)
    )
    assert started(plan(cluster.snapshot())) == [("big", "i1")]


# --------------------------------------------------------------- on a machine that several environments share


def sharing(machine_vcpus):
    """Environments `one` (queue q1, instance i1) and `two` (queue q2, instance i2) on one machine."""
    return (
        a_snapshot()
        .with_environment("one")
        .with_environment("two")
        .with_machine("host", vcpus=machine_vcpus, memory_mib=64_000)
        .with_instance("i1", "one", machine="host")
        .with_instance("i2", "two", machine="host")
        .with_queue("q1", "one", priority=5)
        .with_queue("q2", "two")
    )


def test_what_the_machine_has_beside_is_given_once():
    cluster = sharing(12).with_running("i1", 6).with_waiting("big", 4, queue="q1", waited_ms=LONG)
    # 6 of the machine are free and big needs 4 of them.
    cluster = cluster.with_waiting("a", 1, queue="q2").with_waiting("b", 1, queue="q2")
    cluster = cluster.with_waiting("c", 1, queue="q2")
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["a", "b"]


def test_what_the_instance_has_beside_is_given_once():
    cluster = sharing(64).with_running("i1", 6, ends_in_s=600)
    cluster = cluster.with_waiting("big", 7, queue="q1", waited_ms=LONG)
    # The machine has plenty; of the instance's 8 one is left beside big.
    cluster = cluster.with_waiting("a", 1, queue="q1").with_waiting("b", 1, queue="q1")
    assert started(plan(cluster.snapshot())) == [("a", "i1")]


def test_what_ends_on_another_instance_leaves_nothing_beside_on_the_reserved_one():
    cluster = sharing(64).with_running("i1", 6, ends_in_s=600).with_running("i2", 8, ends_in_s=300)
    cluster = cluster.with_waiting("big", 8, queue="q1", waited_ms=LONG).with_waiting("a", 1, queue="q1")
    assert started(plan(cluster.snapshot())) == []
