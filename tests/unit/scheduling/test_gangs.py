"""Multi-node jobs: all nodes are placed, launched for and kept places for, or none."""

from __future__ import annotations

from tests.unit.scheduling.builders import MINUTE, Cluster, a_shape, a_snapshot, an_offer
from windfall.capacity.machines import InstanceState
from windfall.scheduling.explain import explain
from windfall.scheduling.fit import Floor
from windfall.scheduling.gangs import put_back, seat, seat_all
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Gang, SchedulingClass, Shape


def a_gang(*parts: tuple[Shape, int], numbers: tuple[int, ...] = ()) -> SchedulingClass:
    return SchedulingClass(gang=Gang(parts, numbers))


def four(vcpus: float = 4) -> SchedulingClass:
    """Four equal nodes."""
    return a_gang((a_shape(vcpus), 4))


def placed(cluster: Cluster) -> list[tuple[str, str, int | None]]:
    return [(one.job_id, one.instance, one.node) for one in plan(cluster.snapshot()).placements]


def codes(cluster: Cluster, job: str) -> list[str]:
    waits = cluster.job(job)
    found = explain(cluster.snapshot(), waits.queue, waits.shape, waits.waiting, 0, waits.scheduling_class)
    return [reason.code for reason in found.reasons]


def test_all_nodes_are_placed_over_the_instances_of_an_environment():
    cluster = a_snapshot().with_environment().with_instance("i1").with_instance("i2")
    assert placed(cluster.with_waiting("a", 4, scheduling_class=four())) == [
        ("a", "i1", 0),
        ("a", "i1", 1),
        ("a", "i2", 2),
        ("a", "i2", 3),
    ]


def test_none_is_placed_when_one_finds_no_place_and_others_pass_by():
    cluster = a_snapshot().with_environment().with_instance("i1").with_instance("i2").with_running("i2", 5)
    cluster = cluster.with_waiting("a", 4, scheduling_class=four()).with_waiting("b", 3)
    assert [job for job, _, _ in placed(cluster)] == ["b"]


def test_the_main_node_comes_first_whatever_its_number_and_its_size():
    small, large = a_shape(1), a_shape(8)
    scheduling_class = a_gang((small, 1), (large, 2), numbers=(2, 0, 1))
    cluster = a_snapshot().with_environment().with_instance("i1").with_instance("i2").with_instance("i3")
    found = placed(cluster.with_waiting("a", 1, scheduling_class=scheduling_class))
    assert [node for _, _, node in found] == [2, 0, 1]
    assert len({instance for _, instance, _ in found}) == 3


def test_all_nodes_are_in_one_environment():
    cluster = a_snapshot().with_environment("e1").with_environment("e2").with_queue("queue", "e1", "e2")
    cluster = cluster.with_instance("i1", "e1").with_instance("i2", "e2")
    assert placed(cluster.with_waiting("a", 4, scheduling_class=four())) == []
    cluster = cluster.with_instance("i3", "e2")
    assert {instance for _, instance, _ in placed(cluster.with_waiting("a", 4, scheduling_class=four()))} == {
        "i2",
        "i3",
    }


def test_what_was_tried_in_vain_is_put_back_to_the_last_device():
    cluster = a_snapshot().with_environment().with_instance("i1", gpus=2)
    floor = Floor(cluster.snapshot())
    room = floor.rooms["env"][0]
    gang = Gang(((a_shape(1, gpus=1), 3),))
    assert seat_all(floor, ("env",), gang) == []
    assert room.free == cluster.instances[0].total
    assert room.machine.devices.whole == ["machine-i1-gpu0", "machine-i1-gpu1"]
    assert room.started == []
    seats, standees = seat(floor.rooms["env"], gang, floor.now)
    assert (len(seats), standees) == (2, [(a_shape(1, gpus=1), 1)])
    put_back(seats, floor.now)
    assert room.machine.devices.whole == ["machine-i1-gpu0", "machine-i1-gpu1"]


def test_instances_are_launched_for_all_nodes_without_a_place_or_for_none():
    offers = (an_offer("m.large", 8),)
    cluster = a_snapshot().with_environment(offers=offers, max_vcpus=16).with_instance("i1")
    assert len(plan(cluster.with_waiting("a", 4, scheduling_class=four()).snapshot()).launches) == 1
    assert plan(cluster.with_waiting("a", 8, scheduling_class=four(8)).snapshot()).launches == ()


def test_instances_on_their_way_are_counted_once():
    offers = (an_offer("m.large", 8),)
    cluster = a_snapshot().with_environment(offers=offers)
    cluster = cluster.with_waiting("a", 4, scheduling_class=four()).with_waiting(
        "b", 4, scheduling_class=four()
    )
    assert len(plan(cluster.snapshot()).launches) == 4


def test_as_many_machines_as_it_needs_are_kept_for_one_that_waited_too_long():
    cluster = a_snapshot().with_environment().with_instance("i1").with_instance("i2").with_instance("i3")
    cluster = cluster.with_running("i1", 8, ends_in_s=100).with_running("i2", 1).with_running("i3", 8)
    cluster = cluster.with_waiting("a", 4, scheduling_class=four(), waited_ms=2 * MINUTE)
    decided = plan(cluster.with_waiting("b", 1).snapshot())
    assert {one.instance for one in decided.reservations} == {"i1", "i2"}
    assert {one.job_id for one in decided.reservations} == {"a"}
    # i2 will be needed as a whole: what is left beside the nodes there is nothing.
    assert [one.job_id for one in decided.placements] == []


def test_busy_machines_are_not_kept_where_free_ones_and_those_on_their_way_will_do():
    cluster = a_snapshot().with_environment(offers=(an_offer(),)).with_instance("i1").with_instance("i2")
    cluster = cluster.with_running("i1", 4, ends_in_s=10)
    cluster = cluster.with_instance("i3", state=InstanceState.LAUNCHING)
    cluster = cluster.with_waiting("a", 4, scheduling_class=a_gang((a_shape(8), 2)), waited_ms=2 * MINUTE)
    decided = plan(cluster.with_waiting("b", 4).snapshot())
    assert [one.instance for one in decided.reservations] == ["i2"]
    assert [(one.job_id, one.instance) for one in decided.placements] == [("b", "i1")]
    assert decided.launches == ()


def test_nothing_is_kept_for_one_that_cannot_have_all():
    cluster = a_snapshot().with_environment().with_instance("i1").with_running("i1", 1)
    cluster = cluster.with_waiting("a", 4, scheduling_class=four(), waited_ms=2 * MINUTE).with_waiting("b", 1)
    decided = plan(cluster.snapshot())
    assert decided.reservations == ()
    assert [one.job_id for one in decided.placements] == ["b"]


def test_a_gang_says_how_many_of_its_nodes_find_a_place():
    cluster = a_snapshot().with_environment().with_instance("i1").with_instance("i2").with_running("i2", 8)
    cluster = cluster.with_waiting("a", 4, scheduling_class=four())
    assert codes(cluster, "a")[:2] == ["GANG_INCOMPLETE", "ROOM_TAKEN"]
    waits = cluster.job("a")
    found = explain(cluster.snapshot(), waits.queue, waits.shape, waits.waiting, 0, waits.scheduling_class)
    assert "2 of its 4 nodes" in found.reasons[0].text()


def test_a_gang_that_can_never_start_says_so():
    cluster = (
        a_snapshot().with_environment().with_instance("i1").with_waiting("a", 4, scheduling_class=four())
    )
    assert codes(cluster, "a") == ["GANG_TOO_LARGE"]
    cluster = a_snapshot().with_environment(offers=(an_offer(),), max_vcpus=8)
    assert codes(cluster.with_waiting("a", 4, scheduling_class=four()), "a") == ["GANG_ABOVE_MAX_VCPUS"]


def test_a_gang_with_free_places_starts_next():
    cluster = a_snapshot().with_environment().with_instance("i1").with_instance("i2")
    assert codes(cluster.with_waiting("a", 4, scheduling_class=four()), "a") == ["STARTS_NEXT"]
