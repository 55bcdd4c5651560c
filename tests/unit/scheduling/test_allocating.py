"""Which type of instance is launched first, by strategy, price, safety and what a job insists on."""

from __future__ import annotations

import pytest

from tests.unit.scheduling.builders import a_snapshot, an_offer, launched, started
from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.capacity.machines import InstanceState
from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.allocate import allowed, in_order
from windfall.scheduling.explain import explain
from windfall.scheduling.planning import plan

OFFERS = (
    an_offer("big", vcpus=16, memory_mib=64_000, usd_hour=4.0, on_demand=10.0, safety=2),
    an_offer("small", vcpus=2, memory_mib=8_000, usd_hour=1.0, on_demand=2.0, safety=1),
    an_offer("safe", vcpus=8, memory_mib=32_000, usd_hour=3.2, on_demand=6.0, safety=5),
    an_offer("unknown", vcpus=8, memory_mib=32_000),
)


def ordered(allocation: str | None, bid_percent: int | None = None) -> list[str]:
    environment = ComputeEnvironment(
        EnvironmentName("env"), Provisioning.SPOT, 0, 100, allocation=allocation, bid_percent=bid_percent
    )
    return [OFFERS[index].type for index in in_order(environment, OFFERS, allowed(environment, OFFERS), None)]


@pytest.mark.parametrize(
    ("allocation", "types"),
    [
        (None, ["big", "small", "safe", "unknown"]),
        ("BEST_FIT", ["small", "safe", "big", "unknown"]),
        ("BEST_FIT_PROGRESSIVE", ["big", "safe", "small", "unknown"]),
        ("BEST_FIT_PROGRESSIVE_ORDERED", ["big", "small", "safe", "unknown"]),
        ("SPOT_CAPACITY_OPTIMIZED", ["safe", "big", "small", "unknown"]),
        ("SPOT_CAPACITY_OPTIMIZED_PRIORITIZED", ["big", "small", "safe", "unknown"]),
        ("SPOT_PRICE_CAPACITY_OPTIMIZED", ["big", "safe", "small", "unknown"]),
    ],
)
def test_the_order_of_each_strategy(allocation, types):
    assert ordered(allocation) == types


def test_a_bid_leaves_out_what_is_dearer():
    assert ordered("BEST_FIT", bid_percent=50) == ["small", "big", "unknown"]
    assert ordered(None, bid_percent=39) == ["unknown"]


def launches(allocation: str, vcpus: float, **environment) -> list[str]:
    cluster = a_snapshot().with_environment(offers=OFFERS, allocation=allocation, **environment)
    return [type_ for _, type_ in launched(plan(cluster.with_waiting("a", vcpus).snapshot()))]


def test_best_fit_takes_the_cheapest_that_is_large_enough_and_waits_for_it():
    assert launches("BEST_FIT", 1) == ["small"]
    assert launches("BEST_FIT", 4) == ["safe"]
    assert launches("BEST_FIT", 4, short={"safe": 5}) == []


def test_the_others_go_on_to_the_next_type_when_one_is_missing():
    assert launches("BEST_FIT_PROGRESSIVE", 4) == ["safe"]
    assert launches("BEST_FIT_PROGRESSIVE", 4, short={"safe": 5}) == ["big"]
    assert launches("SPOT_CAPACITY_OPTIMIZED", 4, short={"safe": 5, "big": 5}) == ["unknown"]


G5 = tuple(
    an_offer(
        name, vcpus=vcpus, memory_mib=4_096 * vcpus, gpus=gpus, usd_hour=price, on_demand=price, safety=1
    )
    for name, vcpus, gpus, price in (
        ("g5.16xlarge", 64, 1, 4.096),
        ("g5.xlarge", 4, 1, 1.006),
        ("g5.12xlarge", 48, 4, 5.672),
        ("g5.8xlarge", 32, 1, 2.448),
    )
)


@pytest.mark.parametrize(
    "allocation", ["BEST_FIT_PROGRESSIVE", "SPOT_PRICE_CAPACITY_OPTIMIZED", "SPOT_CAPACITY_OPTIMIZED"]
)
@pytest.mark.parametrize(
    ("vcpus", "gpus", "count", "types"),
    [
        (1, 1, 1, ["g5.xlarge"]),
        (8, 1, 1, ["g5.8xlarge"]),
        (8, 1, 4, ["g5.12xlarge"]),
        (8, 1, 5, ["g5.12xlarge", "g5.8xlarge"]),
        (33, 1, 1, ["g5.16xlarge"]),
        (1, 4, 1, ["g5.12xlarge"]),
    ],
)
def test_gpu_jobs_get_the_cheapest_instances_that_hold_them_not_the_cheapest_vcpus(
    allocation, vcpus, gpus, count, types
):
    cluster = a_snapshot().with_environment(offers=G5, allocation=allocation, max_vcpus=1_000)
    waiting = cluster.with_waiting("a", vcpus, gpus=gpus, count=count)
    assert [type_ for _, type_ in launched(plan(waiting.snapshot()))] == types
    assert (
        told(waiting, "a")["LAUNCHES_NEXT"] == f"an instance of type {types[0]} can be launched for it in env"
    )


def test_many_jobs_get_the_type_with_the_lowest_price_for_each():
    cluster = a_snapshot().with_environment(offers=OFFERS, allocation="BEST_FIT_PROGRESSIVE", max_vcpus=1_000)
    many = launched(plan(cluster.with_waiting("a", 1, count=33).snapshot()))
    assert [type_ for _, type_ in many] == ["big", "big", "small"]


def test_the_next_environment_of_the_queue_takes_over_when_none_can_be_had():
    gpu = an_offer("gpu", gpus=1)
    cluster = a_snapshot().with_environment("demand", offers=(gpu,)).with_queue("queue", "spot", "demand")
    spot = cluster.with_environment("spot", kind=Provisioning.SPOT, offers=(gpu,))
    short = cluster.with_environment("spot", kind=Provisioning.SPOT, offers=(gpu,), short={"gpu": 9})
    assert launched(plan(spot.with_waiting("a", gpus=1).snapshot())) == [("spot", "gpu")]
    assert launched(plan(short.with_waiting("a", gpus=1).snapshot())) == [("demand", "gpu")]


def test_a_job_that_insists_on_a_type_goes_nowhere_else():
    cluster = (
        a_snapshot()
        .with_environment(offers=OFFERS)
        .with_instance("i1", instance_type="big")
        .with_waiting("a", instance_type="small")
        .with_waiting("b", instance_type="big")
    )
    decided = plan(cluster.snapshot())
    assert started(decided) == [("b", "i1")]
    assert launched(decided) == [("env", "small")]


def test_an_instance_of_another_type_on_its_way_is_not_counted_on():
    cluster = a_snapshot().with_environment(offers=OFFERS).with_instance("i1", state=InstanceState.LAUNCHING)
    wants = cluster.with_waiting("a", instance_type="small")
    assert launched(plan(wants.snapshot())) == [("env", "small")]
    assert launched(plan(cluster.with_waiting("a").snapshot())) == []


def test_a_share_of_a_machine_takes_a_job_of_any_type():
    cluster = a_snapshot().with_environment().with_instance("i1", is_share=True)
    assert started(plan(cluster.with_waiting("a", instance_type="ml.p3").snapshot())) == [("a", "i1")]


def told(cluster, job: str) -> dict[str, str]:
    waits = cluster.job(job)
    explanation = explain(cluster.snapshot(), waits.queue, waits.shape, waits.waiting, 0)
    return {reason.code: reason.text() for reason in explanation.reasons}


def test_why_a_type_cannot_be_had_is_told():
    cluster = a_snapshot().with_environment(offers=OFFERS[:1], short={"big": 9}).with_waiting("a", 4)
    assert told(cluster, "a")["LAUNCH_FAILED"] == (
        "env could not get an instance of type big (no capacity), and asks again at 1970-01-12 13:46:49 UTC"
    )
    waits = cluster.job("a")
    aws = explain(cluster.snapshot(), waits.queue, waits.shape, waits.waiting, 0).aws_reason
    assert aws is not None
    assert aws.startswith("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY")


def test_what_is_too_dear_or_of_another_type_is_told():
    dear = a_snapshot().with_environment(kind=Provisioning.SPOT, offers=OFFERS[:1], bid_percent=20)
    assert told(dear.with_waiting("a"), "a")["TOO_DEAR"] == (
        "an instance of type big costs $4 an hour, env pays at most 20 % of $10 (bidPercentage)"
    )
    other = a_snapshot().with_environment(offers=OFFERS[:2]).with_waiting("a", instance_type="huge")
    assert (
        told(other, "a")["OTHER_INSTANCE_TYPE"] == "asks for an instance of type huge, env has big or small"
    )
