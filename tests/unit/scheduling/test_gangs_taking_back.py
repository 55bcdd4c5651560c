"""Whom a multi-node job has leave for it: enough for all nodes, at the least loss, or nobody."""

from __future__ import annotations

from tests.unit.scheduling.builders import MINUTE, Cluster, a_shape, a_snapshot, an_offer, some_gpus
from windfall.capacity.environments import Provisioning
from windfall.scheduling.explain import explain
from windfall.scheduling.gang_victims import EXACT_MOST
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Gang, SchedulingClass, Shape


def a_fleet(machines: int, gpus: int = 0) -> Cluster:
    """Machines of 8 vCPUs that `demand` and `spot` have a share of each."""
    cluster = a_snapshot().with_environment("demand").with_environment("spot", kind=Provisioning.SPOT)
    cluster = cluster.with_queue("demand", "demand").with_queue("spot", "spot")
    for number in range(machines):
        cluster = cluster.with_machine(f"m{number}", 8, 16_000, gpus)
        for name in ("demand", "spot"):
            size = (8, 16_000, gpus)
            cluster = cluster.with_instance(
                f"{name}{number}", name, *size, machine=f"m{number}", is_share=True
            )
    return cluster


def waits(cluster: Cluster, *parts: tuple[Shape, int], job: str = "g", **more: int) -> Cluster:
    main = parts[0][0].resources
    needs = (main.vcpus, main.memory_mib, main.gpus)
    return cluster.with_waiting(
        job, *needs, queue="demand", scheduling_class=SchedulingClass(gang=Gang(parts)), **more
    )


def asked(cluster: Cluster) -> list[str]:
    return sorted(one.token.partition("#")[0] for one in plan(cluster.snapshot()).reclaims)


def lent(cluster: Cluster, where: int, job: str, vcpus: float = 8, loss: float = 1.0, **more) -> Cluster:
    return cluster.with_running(f"spot{where}", vcpus, job=job, queue="spot", loss=loss, **more)


def test_those_leave_who_lose_the_least_on_as_many_machines_as_it_needs():
    cluster = a_fleet(3)
    for number, loss in enumerate((5.0, 100.0, 7.0)):
        cluster = lent(cluster, number, f"r{number}", loss=loss)
    cluster = waits(cluster, (a_shape(8), 2))
    decided = plan(cluster.snapshot())
    assert asked(cluster) == ["r0", "r2"]
    assert {one.instance for one in decided.claims} == {"demand0", "demand2"}
    assert {one.for_job for one in decided.reclaims} == {"g"}


def test_nobody_leaves_for_a_part_of_it():
    cluster = lent(a_fleet(2), 0, "r0").with_running("demand1", 1)
    assert asked(waits(cluster, (a_shape(8), 2))) == []
    assert asked(waits(cluster, (a_shape(7), 2))) == ["r0"]


def test_what_is_free_already_is_counted_and_so_is_who_leaves_or_ends_soon():
    cluster = lent(a_fleet(3), 0, "r0")
    cluster = cluster.with_running("spot1", 8, job="gone", queue="spot", leaving=True, ends_in_s=30)
    cluster = cluster.with_running("demand2", 8, ends_in_s=30)
    assert asked(waits(cluster, (a_shape(8), 2))) == []
    assert asked(waits(cluster, (a_shape(8), 3))) == ["r0"]


def test_whole_machines_are_emptied_rather_than_all_a_little():
    """More than can be tried in every combination: two cheap ones are on every machine, and one is dear on some."""
    cluster = a_fleet(6)
    for number in range(6):
        cluster = lent(cluster, number, f"a{number}", 4, loss=1.0 + number)
        cluster = lent(cluster, number, f"b{number}", 4, loss=2.0 if number in (4, 5) else 50.0)
    assert EXACT_MOST < 12
    assert asked(waits(cluster, (a_shape(8), 2))) == ["a4", "a5", "b4", "b5"]


def test_a_gang_that_has_to_go_counts_with_all_its_nodes():
    cluster = lent(a_fleet(3), 0, "g1.0", loss=6.0, gang="g1")
    cluster = lent(cluster, 1, "g1.1", loss=6.0, gang="g1")
    cluster = lent(cluster, 2, "single", loss=10.0)
    assert asked(waits(cluster, (a_shape(8), 1))) == ["single"]
    assert len(asked(waits(cluster, (a_shape(8), 2)))) == 1, "one node stands for its gang"
    assert asked(cluster.with_waiting("s", 8, queue="demand")) == ["single"]


def test_a_node_that_can_leave_alone_does():
    cluster = lent(a_fleet(2), 0, "g1.0", loss=6.0, gang="g1")
    cluster = lent(cluster, 1, "g1.1", loss=6.0, gang="g1", alone=True)
    assert asked(waits(cluster, (a_shape(8), 1))) == ["g1.1"]
    assert asked(waits(cluster, (a_shape(8), 2))) == ["g1.0"], "the main node has the others leave with it"


def test_nobody_is_asked_where_instances_for_all_can_be_launched():
    cluster = lent(a_fleet(1), 0, "r0")
    cluster = cluster.with_environment("demand", offers=(an_offer(vcpus=8),))
    decided = plan(waits(cluster, (a_shape(8), 2)).snapshot())
    assert not decided.reclaims
    assert len(decided.launches) == 2


def test_the_main_nodes_size_does_not_decide_where_the_others_go():
    """Largest first would put the GPU node where the vCPUs are; with the others first, all have their places."""
    cluster = a_fleet(1).with_machine("m1", 4, 16_000, 2)
    cluster = cluster.with_instance("demand1", "demand", 4, 16_000, 2, machine="m1", is_share=True)
    cluster = cluster.with_machine("m2", 8, 16_000, 1)
    cluster = cluster.with_instance("demand2", "demand", 8, 16_000, 1, machine="m2", is_share=True)
    cluster = waits(lent(cluster, 0, "r0"), (a_shape(1, gpus=1), 1), (a_shape(8), 1))
    assert asked(cluster) == []
    assert {one.instance for one in plan(cluster.snapshot()).placements} == {"demand1", "demand2"}


def test_the_very_gpus_are_kept_for_its_nodes_where_it_matters_which():
    cluster = a_snapshot().with_environment("demand").with_environment("spot", kind=Provisioning.SPOT)
    cluster = cluster.with_queue("demand", "demand").with_queue("spot", "spot")
    cluster = cluster.with_gpu_machine("m", *some_gpus("a", 1), *some_gpus("h", 2, "H100", 80))
    for name in ("demand", "spot"):
        cluster = cluster.with_instance(f"{name}0", name, 8, 16_000, 3, machine="m", is_share=True)
    cluster = lent(cluster, 0, "r0", 1, gpus=1, on=("h0",)).with_waiting(
        "s", 1, gpus=1, queue="demand", order=9
    )
    cluster = waits(cluster, (a_shape(1, gpus=1), 3), order=1)
    decided = plan(cluster.snapshot())
    assert [one.token for one in decided.reclaims] == ["r0#1"]
    assert not decided.placements, "what is free is the gang's, too"
    left = a_shape(1, gpus=1)
    again = waits(cluster.without("g"), (left, 2), order=1)
    assert sorted(one.job_id for one in plan(again.snapshot()).placements) == ["g", "g"]


def test_the_reason_names_all_instances_and_all_who_leave():
    cluster = waits(lent(lent(a_fleet(2), 0, "r0"), 1, "r1"), (a_shape(8), 2), waited_ms=2 * MINUTE)
    waiting = cluster.job("g")
    found = explain(
        cluster.snapshot(), waiting.queue, waiting.shape, waiting.waiting, 0, waiting.scheduling_class
    )
    assert found.reasons[0].code == "PLACE_LEFT"
    text = found.reasons[0].text()
    assert text.startswith(
        "takes back places on demand0, demand1: jobs r0, r1, on reclaimable capacity, must leave them at"
    )
    assert found.expected_at == cluster.now + cluster.rules.notice_ms


def test_a_search_that_would_take_too_long_ends_and_what_it_found_is_enough():
    cluster = a_fleet(60)
    for number in range(60):
        for place in range(8):
            cluster = lent(cluster, number, f"r{number}.{place}", 1, loss=1.0 + (number * 7 + place) % 13)
    decided = plan(waits(cluster, (a_shape(8), 30)).snapshot())
    assert 240 <= len(decided.reclaims) <= 480
    assert len({one.instance for one in decided.claims}) == 30
