"""Who gets which place: order, environments, fit, devices, backfill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.scheduling.builders import a_cluster, a_snapshot, started
from windfall.capacity.environments import Provisioning
from windfall.capacity.machines import InstanceState
from windfall.scheduling.planning import plan


def test_nothing_waits_nothing_happens():
    decided = plan(a_cluster().snapshot())
    assert (decided.placements, decided.launches, decided.terminations, decided.reservations) == (
        (),
        (),
        (),
        (),
    )


def test_a_job_that_fits_is_placed():
    assert started(plan(a_cluster().with_waiting("a").snapshot())) == [("a", "i1")]


def test_the_placement_names_the_queue():
    (placement,) = plan(
        a_cluster().with_queue("other").with_waiting("a", queue="other").snapshot()
    ).placements
    assert placement.queue == "other"


# ------------------------------------------------------------------------------------------------------ order


def test_first_come_first_served_within_a_queue():
    cluster = a_cluster(vcpus=2).with_waiting("a").with_waiting("b").with_waiting("c")
    assert started(plan(cluster.snapshot())) == [("a", "i1"), ("b", "i1")]


def test_first_come_first_served_across_shapes():
    cluster = a_cluster(vcpus=3).with_waiting("a", 1).with_waiting("b", 2).with_waiting("c", 1)
    assert started(plan(cluster.snapshot())) == [("a", "i1"), ("b", "i1")]


def test_shapes_take_turns_by_the_order_of_their_jobs():
    cluster = a_cluster()
    for number, vcpus in enumerate([1, 2, 1, 2, 1]):
        cluster = cluster.with_waiting(f"j{number}", vcpus)
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["j0", "j1", "j2", "j3", "j4"]


def test_order_counts_and_not_when_a_job_became_runnable():
    cluster = a_cluster(vcpus=1).with_waiting("a", order=2, waited_ms=9_000).with_waiting("b", order=1)
    assert started(plan(cluster.snapshot())) == [("b", "i1")]


def test_the_more_urgent_queue_goes_first():
    cluster = a_cluster(vcpus=1).with_queue("urgent", "env", priority=10)
    cluster = cluster.with_waiting("early").with_waiting("late", queue="urgent")
    assert started(plan(cluster.snapshot())) == [("late", "i1")]


def test_queues_of_equal_priority_are_served_first_come_first():
    cluster = a_cluster(vcpus=2).with_queue("a").with_queue("b")
    cluster = cluster.with_waiting("1", queue="b").with_waiting("2", queue="a").with_waiting("3", queue="b")
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["1", "2"]


def test_the_name_of_the_queue_breaks_a_tie():
    cluster = a_cluster(vcpus=1).with_queue("b").with_queue("a")
    cluster = cluster.with_waiting("1", queue="b", order=5).with_waiting("2", queue="a", order=5)
    assert started(plan(cluster.snapshot())) == [("2", "i1")]


def test_a_disabled_queue_lets_its_jobs_go_on():
    cluster = a_snapshot().with_environment().with_instance("i1").with_queue("queue", "env", enabled=False)
    assert started(plan(cluster.with_waiting("a").snapshot())) == [("a", "i1")]


# ----------------------------------------------------------------------------------------------- environments


def two_environments(**first):
    return (
        a_snapshot()
        .with_environment("one", **first)
        .with_environment("two")
        .with_queue("queue", "one", "two")
        .with_instance("i1", "one", vcpus=1)
        .with_instance("i2", "two", vcpus=8)
    )


def test_environments_are_tried_in_the_queues_order():
    cluster = two_environments().with_waiting("a").with_waiting("b")
    assert started(plan(cluster.snapshot())) == [("a", "i1"), ("b", "i2")]


def test_the_order_of_environments_beats_a_tighter_fit():
    cluster = two_environments().with_queue("turned", "two", "one").with_waiting("a", queue="turned")
    assert started(plan(cluster.snapshot())) == [("a", "i2")]


def test_a_disabled_environment_takes_nothing_new():
    cluster = two_environments(enabled=False).with_waiting("a")
    assert started(plan(cluster.snapshot())) == [("a", "i2")]


def test_an_environment_that_is_not_there_is_passed_over():
    cluster = a_cluster().with_queue("q", "gone", "env").with_waiting("a", queue="q")
    assert started(plan(cluster.snapshot())) == [("a", "i1")]


@pytest.mark.parametrize("kind", [Provisioning.FARGATE, Provisioning.FARGATE_SPOT])
def test_gpu_jobs_never_go_to_fargate(kind):
    cluster = a_snapshot().with_environment(kind=kind).with_instance("i1", gpus=4)
    assert started(plan(cluster.with_waiting("a", gpus=1).with_waiting("b").snapshot())) == [("b", "i1")]


def test_a_queue_uses_its_own_environments_only():
    cluster = a_cluster().with_environment("other").with_instance("i2", "other").with_queue("q", "other")
    assert started(plan(cluster.with_waiting("a", queue="q").snapshot())) == [("a", "i2")]


# -------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize(
    "need", [{"vcpus": 8.25}, {"memory_mib": 16_001}, {"gpus": 1}, {"vcpus": 9, "memory_mib": 20_000}]
)
def test_a_job_that_asks_more_than_is_there_waits(need):
    assert plan(a_cluster().with_waiting("a", **need).snapshot()).placements == ()


def test_a_job_may_take_exactly_what_is_left():
    cluster = a_cluster().with_running("i1", 6, 10_000).with_waiting("a", 2, 6_000)
    assert started(plan(cluster.snapshot())) == [("a", "i1")]


@pytest.mark.parametrize("state", [InstanceState.LAUNCHING, InstanceState.TERMINATING])
def test_only_ready_instances_take_jobs(state):
    cluster = a_snapshot().with_environment().with_instance("i1", state=state).with_waiting("a")
    assert plan(cluster.snapshot()).placements == ()


def test_an_instance_whose_machine_is_not_known_takes_nothing():
    snapshot = a_cluster().with_waiting("a").snapshot()
    assert plan(replace(snapshot, machines={})).placements == ()


def test_quarters_of_a_vcpu_are_counted_exactly():
    cluster = a_cluster(vcpus=1).with_waiting("a", 0.25, count=5)
    assert len(plan(cluster.snapshot()).placements) == 4


def test_environments_on_one_machine_share_it():
    cluster = (
        a_snapshot()
        .with_environment("one")
        .with_environment("two")
        .with_machine("host", vcpus=4)
        .with_instance("i1", "one", vcpus=4, machine="host")
        .with_instance("i2", "two", vcpus=4, machine="host")
        .with_queue("q1", "one")
        .with_queue("q2", "two")
    )
    cluster = (
        cluster.with_waiting("a", 3, queue="q1")
        .with_waiting("b", 3, queue="q2")
        .with_waiting("c", queue="q2")
    )
    assert started(plan(cluster.snapshot())) == [("a", "i1"), ("c", "i2")]


def test_an_instance_is_bounded_by_its_own_claim_on_a_larger_machine():
    cluster = a_snapshot().with_environment().with_machine("host", vcpus=64)
    cluster = cluster.with_instance("i1", vcpus=2, machine="host").with_waiting("a", count=5)
    assert len(plan(cluster.snapshot()).placements) == 2


def test_the_tightest_instance_is_chosen():
    cluster = a_cluster(vcpus=8).with_instance("i2", vcpus=2).with_instance("i3", vcpus=4)
    assert started(plan(cluster.with_waiting("a", 2).snapshot())) == [("a", "i2")]


def test_among_equals_the_first_is_chosen():
    cluster = a_cluster().with_instance("i2").with_waiting("a")
    assert started(plan(cluster.snapshot())) == [("a", "i1")]


def test_an_array_fills_one_instance_before_the_next():
    cluster = a_cluster(vcpus=2).with_instance("i2", vcpus=3).with_waiting("array", count=4)
    assert [instance for _, instance in started(plan(cluster.snapshot()))] == ["i1", "i1", "i2", "i2"]


def test_a_job_without_gpus_avoids_instances_with_free_ones():
    cluster = a_cluster(vcpus=4, gpus=2).with_instance("i2", vcpus=64, memory_mib=256_000)
    assert started(plan(cluster.with_waiting("a").snapshot())) == [("a", "i2")]


def test_a_job_without_gpus_takes_a_gpu_instance_when_there_is_no_other():
    assert started(plan(a_cluster(gpus=2).with_waiting("a").snapshot())) == [("a", "i1")]


def test_an_instance_whose_gpus_are_taken_is_as_good_as_one_without():
    cluster = a_cluster(vcpus=4, gpus=1).with_running("i1", gpus=1).with_instance("i2", vcpus=64)
    assert started(plan(cluster.with_waiting("a").snapshot())) == [("a", "i1")]


# ---------------------------------------------------------------------------------------------------- devices


def test_devices_are_chosen_in_the_machines_order():
    cluster = a_cluster(gpus=4).with_waiting("a", gpus=1).with_waiting("b", gpus=2)
    assert [placement.gpu_ids for placement in plan(cluster.snapshot()).placements] == [
        ("machine-i1-gpu0",),
        ("machine-i1-gpu1", "machine-i1-gpu2"),
    ]


def test_no_device_is_given_twice_across_environments():
    cluster = (
        a_snapshot()
        .with_environment("one")
        .with_environment("two")
        .with_machine("host", gpus=("g0", "g1", "g2"))
        .with_instance("i1", "one", gpus=3, machine="host")
        .with_instance("i2", "two", gpus=3, machine="host")
        .with_queue("q1", "one")
        .with_queue("q2", "two")
    )
    cluster = cluster.with_waiting("a", gpus=2, queue="q1").with_waiting("b", gpus=1, queue="q2")
    cluster = cluster.with_waiting("c", gpus=1, queue="q1")
    assert [p.gpu_ids for p in plan(cluster.snapshot()).placements] == [("g0", "g1"), ("g2",)]


def test_a_job_without_gpus_gets_no_device():
    (placement,) = plan(a_cluster(gpus=4).with_waiting("a").snapshot()).placements
    assert placement.gpu_ids == ()


def test_devices_that_are_gone_are_not_given_even_if_the_sums_allow_it():
    snapshot = a_cluster(gpus=2).with_waiting("a", gpus=2).snapshot()
    machine = snapshot.machines["machine-i1"]
    broken = replace(snapshot, machines={"machine-i1": replace(machine, free_gpus=machine.free_gpus[:1])})
    assert plan(broken).placements == ()


# --------------------------------------------------------------------------------------------------- backfill


def test_a_job_that_does_not_fit_does_not_block_smaller_ones_behind_it():
    cluster = a_cluster(vcpus=4).with_waiting("big", 16).with_waiting("small", 1)
    assert started(plan(cluster.snapshot())) == [("small", "i1")]


def test_a_shape_that_stopped_fitting_is_skipped_as_a_whole():
    cluster = (
        a_cluster(vcpus=5).with_waiting("a", 2).with_waiting("b", 2).with_waiting("c", 2).with_waiting("d", 1)
    )
    assert [job for job, _ in started(plan(cluster.snapshot()))] == ["a", "b", "d"]


def test_entries_are_looked_at_only_as_far_as_places_last():
    seen = []

    class Entries:
        def __init__(self, entries):
            self.entries = entries

        def __iter__(self):
            for entry in self.entries:
                seen.append(entry.job_id)
                yield entry

    cluster = a_cluster(vcpus=2)
    for number in range(50):
        cluster = cluster.with_waiting(f"j{number}")
    snapshot = cluster.snapshot()
    (view,) = snapshot.queues
    (group,) = view.groups
    lazy = replace(snapshot, queues=[replace(view, groups=[replace(group, entries=Entries(group.entries))])])
    assert len(plan(lazy).placements) == 2
    assert seen == ["j0", "j1", "j2"]


def test_an_entry_with_no_child_left_is_passed_over():
    cluster = a_cluster(vcpus=1).with_waiting("spent", count=0).with_waiting("a")
    assert started(plan(cluster.snapshot())) == [("a", "i1")]


def test_children_of_an_array_are_placed_one_by_one():
    cluster = a_cluster(vcpus=2).with_waiting("array", count=10_000)
    assert started(plan(cluster.snapshot())) == [("array", "i1"), ("array", "i1")]
