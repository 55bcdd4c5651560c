"""Whom a job on demand takes its place back from, for whom the place is kept, and what both are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.scheduling.builders import MINUTE, Cluster, a_snapshot, an_offer, started
from windfall.capacity.environments import Provisioning
from windfall.capacity.machines import InstanceState
from windfall.jobs.resources import Resources
from windfall.scheduling.explain import explain
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Plan, Release
from windfall.scheduling.victims import Need, victims


def a_shared_host(vcpus: float = 8, gpus: int = 2) -> Cluster:
    """One machine that an environment on demand and a spot environment share, with a queue for each."""
    return (
        a_snapshot()
        .with_environment("demand")
        .with_environment("spot", kind=Provisioning.SPOT)
        .with_queue("demand", "demand")
        .with_queue("spot", "spot")
        .with_machine("host", vcpus, 16_000, gpus)
        .with_instance("i-demand", "demand", vcpus, 16_000, gpus, machine="host", is_share=True)
        .with_instance("i-spot", "spot", vcpus, 16_000, gpus, machine="host", is_share=True)
    )


def asked(decided: Plan) -> list[tuple[str, str]]:
    return [(one.token.partition("#")[0], one.for_job) for one in decided.reclaims]


def test_a_job_on_demand_takes_back_what_it_needs_and_no_more():
    cluster = (
        a_shared_host()
        .with_running("i-spot", gpus=1, job="a", loss=10)
        .with_running("i-spot", gpus=1, job="b", loss=20)
        .with_waiting("train", gpus=1, queue="demand")
    )
    decided = plan(cluster.snapshot())
    assert asked(decided) == [("a", "train")]
    assert [(one.job_id, one.instance) for one in decided.claims] == [("train", "i-demand")]
    assert decided.claims[0].expected_at == cluster.now + 120_000
    assert not decided.placements


def test_nobody_is_asked_when_there_is_room():
    cluster = (
        a_shared_host()
        .with_running("i-spot", gpus=1, job="a", loss=1)
        .with_waiting("train", gpus=1, queue="demand")
    )
    decided = plan(cluster.snapshot())
    assert not decided.reclaims
    assert started(decided) == [("train", "i-demand")]


def test_a_spot_job_asks_nobody_however_urgent():
    cluster = (
        a_shared_host()
        .with_queue("urgent", "spot", priority=9)
        .with_running("i-spot", gpus=2, job="a", loss=1)
        .with_waiting("train", gpus=1, queue="urgent")
    )
    assert not plan(cluster.snapshot()).reclaims


def test_attempts_on_demand_are_never_asked():
    cluster = (
        a_shared_host()
        .with_running("i-demand", gpus=2, job="a")
        .with_waiting("train", gpus=1, queue="demand")
    )
    assert not plan(cluster.snapshot()).reclaims


def test_nobody_leaves_in_vain_when_all_together_do_not_free_enough():
    cluster = (
        a_shared_host()
        .with_running("i-spot", gpus=1, job="a", loss=1)
        .with_running("i-demand", gpus=1, job="mine")
        .with_waiting("train", gpus=2, queue="demand")
    )
    assert not plan(cluster.snapshot()).reclaims


def test_nobody_leaves_in_vain_when_the_environment_uses_up_its_own_claim():
    cluster = (
        a_snapshot()
        .with_environment("demand")
        .with_environment("spot", kind=Provisioning.SPOT)
        .with_queue("demand", "demand")
        .with_machine("host", 8)
        .with_instance("i-demand", "demand", 2, machine="host", is_share=True)
        .with_instance("i-spot", "spot", 8, machine="host", is_share=True)
        .with_running("i-demand", 1, job="mine")
        .with_running("i-spot", 7, job="a", loss=1)
        .with_waiting("train", 2, queue="demand")
    )
    assert not plan(cluster.snapshot()).reclaims


def test_nobody_leaves_for_a_job_that_new_capacity_can_come_for():
    elsewhere = (
        a_shared_host()
        .with_environment("cloud", offers=(an_offer("gpu", 8, 16_000, 2),))
        .with_queue("both", "demand", "cloud")
        .with_running("i-spot", gpus=2, job="a", loss=1)
        .with_waiting("train", gpus=1, queue="both")
    )
    decided = plan(elsewhere.snapshot())
    assert not decided.reclaims
    assert [one.environment for one in decided.launches] == ["cloud"]


def test_those_who_leave_already_are_counted_and_nobody_else_is_asked():
    cluster = (
        a_shared_host()
        .with_running("i-spot", gpus=1, job="a", leaving=True, ends_in_s=90)
        .with_running("i-spot", gpus=1, job="b", loss=1)
        .with_waiting("train", gpus=1, queue="demand")
    )
    decided = plan(cluster.snapshot())
    assert not decided.reclaims
    assert decided.claims[0].expected_at == cluster.now + 90_000


def test_one_who_leaves_late_is_still_waited_for():
    cluster = (
        a_shared_host()
        .with_running("i-spot", gpus=2, job="a", leaving=True, ends_in_s=-30)
        .with_waiting("train", gpus=1, queue="demand")
    )
    decided = plan(cluster.snapshot())
    assert not decided.reclaims
    assert decided.claims[0].expected_at == cluster.now


def test_one_that_ends_by_itself_within_the_notice_is_not_asked():
    cluster = (
        a_shared_host()
        .with_running("i-spot", gpus=1, job="a", loss=1, ends_in_s=60)
        .with_running("i-spot", gpus=1, job="b", loss=1)
        .with_waiting("train", gpus=1, queue="demand")
    )
    assert not plan(cluster.snapshot()).reclaims


def test_what_is_left_for_a_job_is_kept_from_a_more_urgent_spot_job():
    cluster = (
        a_shared_host()
        .with_queue("urgent", "spot", priority=9)
        .with_waiting("train", gpus=2, queue="demand")
        .with_waiting("victim", gpus=1, queue="urgent", order=0)
        .with_running("i-spot", gpus=1, job="late", leaving=True, ends_in_s=5)
    )
    claimed = cluster.with_claim("train", "host")
    assert started(plan(cluster.snapshot())) == [("victim", "i-spot")]
    assert not plan(claimed.snapshot()).placements
    free = replace(
        claimed,
        instances=tuple(replace(one, used=Resources(0, 0), releases=()) for one in claimed.instances),
        machines={
            "host": replace(
                claimed.machines["host"], used=Resources(0, 0), free_gpus=("host-gpu0", "host-gpu1")
            )
        },
    )
    assert started(plan(free.snapshot())) == [("train", "i-demand")]


def test_several_jobs_take_back_their_places_at_once():
    cluster = a_shared_host(gpus=4)
    for number in range(4):
        cluster = cluster.with_running("i-spot", gpus=1, job=f"s{number}", loss=number)
    cluster = cluster.with_waiting("array", gpus=1, queue="demand", count=2).with_waiting(
        "other", 2, gpus=1, queue="demand"
    )
    decided = plan(cluster.snapshot())
    assert asked(decided) == [("s0", "array"), ("s1", "array"), ("s2", "other")]
    assert len(decided.claims) == 3


def test_the_reservation_of_another_is_respected():
    cluster = (
        a_shared_host(vcpus=8, gpus=0)
        .with_running("i-demand", 4, job="mine")
        .with_running("i-spot", 4, job="a", loss=1)
        .with_waiting("big", 8, queue="demand", waited_ms=2 * MINUTE)
        .with_waiting("small", 2, queue="demand")
    )
    decided = plan(cluster.snapshot())
    assert [one.job_id for one in decided.reservations] == ["big"]
    assert not decided.reclaims


def test_peers_of_the_same_queue_are_not_asked():
    cluster = (
        a_shared_host()
        .with_queue("mixed", "spot", "demand")
        .with_running("i-spot", gpus=2, job="first", queue="mixed", loss=1)
        .with_waiting("second", gpus=1, queue="mixed")
    )
    assert not plan(cluster.snapshot()).reclaims


def test_an_instance_that_goes_away_gives_back_what_it_holds():
    cluster = a_shared_host().with_running("i-spot", gpus=2, job="a", leaving=True, ends_in_s=30)
    going = replace(
        cluster,
        instances=tuple(
            replace(one, state=InstanceState.TERMINATING) if one.id == "i-spot" else one
            for one in cluster.instances
        ),
    ).with_waiting("train", gpus=1, queue="demand")
    decided = plan(going.snapshot())
    assert not decided.reclaims
    assert decided.claims[0].expected_at == cluster.now + 30_000


# ---------------------------------------------------------------------------------------------------- victims


def a_release(name: str, gpus: int = 0, vcpus: float = 1, loss: float = 1) -> Release:
    return Release(
        Resources(vcpus, 1_000, gpus),
        tuple(f"{name}-{n}" for n in range(gpus)),
        None,
        token=name,
        reclaimable=True,
        loss=loss,
    )


def names(chosen: tuple[Release, ...] | None) -> list[str]:
    assert chosen is not None
    return sorted(str(one.token) for one in chosen)


def test_the_least_loss_goes_first():
    candidates = [a_release("dear", 1, loss=9), a_release("cheap", 1, loss=2), a_release("middle", 1, loss=5)]
    assert names(victims(Need(Resources(0, 0, 1)), candidates)) == ["cheap"]
    assert names(victims(Need(Resources(0, 0, 2)), candidates)) == ["cheap", "middle"]


def test_one_that_is_enough_alone_goes_instead_of_two_that_lose_more():
    candidates = [a_release("a", 1, loss=10), a_release("b", 1, loss=20), a_release("c", 2, loss=25)]
    assert names(victims(Need(Resources(0, 0, 2)), candidates)) == ["c"]


def test_one_that_turns_out_to_be_needless_is_spared():
    candidates = [a_release("small", 1, loss=1), a_release("large", 3, loss=4)]
    assert names(victims(Need(Resources(0, 0, 3)), candidates)) == ["large"]


def test_one_that_has_nothing_of_what_is_missing_is_not_asked():
    candidates = [a_release("no-gpu", 0, loss=0), a_release("gpu", 1, loss=50)]
    assert names(victims(Need(Resources(0, 0, 1)), candidates)) == ["gpu"]
    assert victims(Need(Resources(0, 0, 2)), candidates) is None
    assert victims(Need(Resources(0, 0, 1)), []) is None


# ---------------------------------------------------------------------------------------------------- explain


def told(cluster: Cluster, job: str) -> dict[str, str]:
    waits = cluster.job(job)
    explanation = explain(cluster.snapshot(), waits.queue, waits.shape, waits.waiting, 0)
    return {reason.code: reason.text() for reason in explanation.reasons}


@pytest.mark.parametrize(("leaving", "verb"), [(False, "must leave it"), (True, "leaves it")])
def test_a_waiting_job_says_whom_it_waits_for_and_until_when(leaving, verb):
    cluster = (
        a_shared_host()
        .with_running("i-spot", gpus=2, job="a", loss=1, leaving=leaving, ends_in_s=120 if leaving else None)
        .with_waiting("train", gpus=1, queue="demand")
    )
    text = told(cluster, "train")["PLACE_LEFT"]
    assert text == (
        f"takes back a place on i-demand: job a, on reclaimable capacity, {verb}"
        " at 1970-01-12 13:48:40 UTC at the latest"
    )


def test_a_spot_job_is_told_for_whom_a_place_is_kept():
    cluster = (
        a_shared_host()
        .with_waiting("train", gpus=2, queue="demand")
        .with_waiting("victim", gpus=1, queue="spot")
        .with_running("i-spot", gpus=1, job="late", leaving=True, ends_in_s=5)
        .with_claim("train", "host")
    )
    assert "reserved for job train" in told(cluster, "victim")["HELD_BACK"]
