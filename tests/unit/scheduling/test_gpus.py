"""GPUs by model, by memory and by parts: who gets which, for whom they are kept, and what the others are told."""

from __future__ import annotations

import pytest

from tests.unit.scheduling.builders import MINUTE, Cluster, a_snapshot, an_offer, launched, some_gpus, started
from windfall.capacity.environments import Provisioning
from windfall.capacity.gpu_sets import MOST_SHARERS
from windfall.capacity.machines import InstanceState
from windfall.jobs.aws_texts import AwsReason
from windfall.jobs.gpus import GpuWish, held_part
from windfall.scheduling.explain import explain
from windfall.scheduling.planning import plan

T4, A10G, H100 = ("T4", 16), ("A10G", 24), ("H100", 80)
SHARED = "mps"


def mixed(*kinds: tuple[str, int, tuple[str, int]], sharing: str | None = None, **more) -> Cluster:
    """One environment with one instance whose GPUs are (name, count, kind)."""
    devices = [gpu for name, count, kind in kinds for gpu in some_gpus(name, count, *kind, sharing=sharing)]
    return a_snapshot().with_environment().with_queue().with_gpus("i1", *devices, **more)


def given_to(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    return {one.job_id: one.gpu_ids for one in plan(cluster.snapshot()).placements}


def why(cluster: Cluster, job: str):
    waits = cluster.job(job)
    return explain(cluster.snapshot(), waits.queue, waits.shape, waits.waiting, 0)


def reasons(cluster: Cluster, job: str) -> dict[str, str]:
    return {reason.code: reason.text() for reason in why(cluster, job).reasons}


def changes(cluster: Cluster, job: str) -> list[str]:
    return [change.text() for change in why(cluster, job).counterfactuals]


# Whole devices --------------------------------------------------------------------------------------------------


def test_a_job_without_a_wish_takes_the_smallest():
    cluster = mixed(("h", 1, H100), ("t", 1, T4), ("a", 1, A10G)).with_waiting("a", gpus=1)
    assert given_to(cluster) == {"a": ("t0",)}


def test_a_model_and_a_memory_are_respected():
    cluster = mixed(("h", 1, H100), ("t", 1, T4), ("a", 1, A10G))
    cluster = cluster.with_waiting("model", gpus=1, wish=GpuWish(model="h100"))
    cluster = cluster.with_waiting("memory", gpus=1, wish=GpuWish(memory_mib=20 * 1024))
    assert given_to(cluster) == {"model": ("h0",), "memory": ("a0",)}


def test_several_are_of_one_model_where_that_is_possible_and_always_where_one_was_asked_for():
    cluster = mixed(("t", 1, T4), ("a", 2, A10G), ("h", 1, H100))
    assert given_to(cluster.with_waiting("any", gpus=2)) == {"any": ("a0", "a1")}
    assert given_to(cluster.with_waiting("three", gpus=3)) == {"three": ("t0", "a0", "a1")}
    one_model = cluster.with_waiting("three", gpus=3, wish=GpuWish(model="*"))
    assert given_to(one_model) == {}


def test_the_machine_with_the_smaller_gpus_is_taken_first():
    cluster = mixed(("h", 1, H100)).with_gpus("i2", *some_gpus("t", 2, *T4)).with_waiting("a", gpus=1)
    assert started(plan(cluster.snapshot())) == [("a", "i2")]


def test_a_fenced_device_is_given_to_nobody():
    cluster = mixed(("t", 1, T4), ("a", 1, A10G), fenced={"t0": "XID 79"})
    assert given_to(cluster.with_waiting("a", gpus=1)) == {"a": ("a0",)}
    two = cluster.with_waiting("two", gpus=2)
    assert given_to(two) == {}
    assert "1 of 2 GPUs on i1 of env is fenced: t0 (XID 79)" in reasons(two, "two")["GPUS_FENCED"]
    assert "windfall gpus unfence t0" in reasons(two, "two")["GPUS_FENCED"]


def test_nothing_is_kept_for_a_job_that_waits_for_a_fenced_device():
    cluster = mixed(("t", 1, T4), ("a", 1, A10G), fenced={"t0": "XID 79"})
    cluster = cluster.with_waiting("two", gpus=2, waited_ms=5 * MINUTE).with_waiting("small", gpus=1)
    assert given_to(cluster) == {"small": ("a0",)}


# Parts ----------------------------------------------------------------------------------------------------------


def test_parts_fill_one_device_before_they_open_another():
    cluster = mixed(("t", 2, T4), sharing=SHARED)
    for name, share in (("a", 0.5), ("b", 0.3), ("c", 0.4), ("d", 0.2)):
        cluster = cluster.with_waiting(name, wish=GpuWish(share=share))
    assert given_to(cluster) == {"a": ("t0",), "b": ("t0",), "c": ("t1",), "d": ("t0",)}


def test_a_part_goes_where_it_leaves_the_least():
    cluster = mixed(("t", 3, T4), sharing=SHARED)
    cluster = cluster.with_running("i1", gpus=0.25, on=("t0",)).with_running("i1", gpus=0.5, on=("t1",))
    assert given_to(cluster.with_waiting("a", wish=GpuWish(share=0.5))) == {"a": ("t1",)}


def test_a_device_that_is_shared_is_not_free_for_a_whole_job_and_the_other_way_round():
    cluster = mixed(("t", 2, T4), sharing=SHARED).with_running("i1", gpus=0.25, on=("t0",))
    assert given_to(cluster.with_waiting("whole", gpus=1)) == {"whole": ("t1",)}
    assert given_to(cluster.with_waiting("both", gpus=2)) == {}
    taken = cluster.with_running("i1", gpus=1, on=("t1",)).with_waiting("part", wish=GpuWish(share=0.8))
    assert given_to(taken) == {}
    assert reasons(taken, "part")["ROOM_TAKEN"].startswith("needs 0.8 GPUs, 0.75 of 1 are free on i1 of env")
    assert "would start now with windfall:gpu-share <= 0.75" in changes(taken, "part")


def test_only_devices_that_can_be_shared_take_parts():
    devices = (*some_gpus("t", 1, *T4), *some_gpus("h", 1, *H100, sharing=SHARED))
    cluster = a_snapshot().with_environment().with_queue().with_gpus("i1", *devices)
    assert given_to(cluster.with_waiting("a", wish=GpuWish(share=0.5))) == {"a": ("h0",)}
    whole_only = mixed(("t", 2, T4)).with_waiting("a", wish=GpuWish(share=0.5))
    told = reasons(whole_only, "a")["GPUS_NOT_SHARED"]
    assert told.startswith("asks for 0.5 of a GPU, and no GPU of env can be shared (2 x T4 (16 GiB))")
    cluster = cluster.with_waiting("b", wish=GpuWish(model="T4", share=0.5))
    assert reasons(cluster, "b") == {
        "GPUS_NOT_SHARED": "asks for 0.5 of a GPU of model T4, and no such GPU of env can be shared (1 x T4 (16 GiB));"
        " `windfall gpus` says why"
    }


def test_no_more_share_a_device_than_it_can_serve():
    cluster = mixed(("t", 1, T4), sharing=SHARED, vcpus=100, memory_mib=10**6)
    cluster = cluster.with_waiting("array", 0.25, 100, count=100, wish=GpuWish(share=0.01))
    assert len(plan(cluster.snapshot()).placements) == MOST_SHARERS


def test_ten_tenths_fill_a_device():
    cluster = mixed(("t", 1, T4), sharing=SHARED, vcpus=100, memory_mib=10**6)
    cluster = cluster.with_waiting("array", 0.25, 100, count=30, wish=GpuWish(share=0.1))
    assert len(plan(cluster.snapshot()).placements) == 10


# Places that are kept -------------------------------------------------------------------------------------------


def test_a_device_that_is_kept_for_one_is_not_kept_from_those_who_want_another():
    cluster = mixed(("t", 2, T4), ("h", 2, H100)).with_running("i1", gpus=1, on=("h0",))
    cluster = cluster.with_waiting("big", gpus=2, waited_ms=5 * MINUTE, wish=GpuWish(model="h100"))
    cluster = cluster.with_waiting("other", gpus=1, wish=GpuWish(model="h100"))
    cluster = cluster.with_waiting("small", gpus=2, wish=GpuWish(model="t4"))
    decided = plan(cluster.snapshot())
    assert [one.job_id for one in decided.reservations] == ["big"]
    assert given_to(cluster) == {"small": ("t0", "t1")}
    assert reasons(cluster, "other")["HELD_BACK"].startswith("the free room on i1 is reserved for job big")


def test_a_part_is_kept_of_the_device_that_has_the_most_left():
    cluster = mixed(("t", 2, T4), sharing=SHARED)
    cluster = cluster.with_running("i1", gpus=0.75, on=("t0",)).with_running("i1", gpus=0.5, on=("t1",))
    cluster = cluster.with_waiting("big", waited_ms=5 * MINUTE, wish=GpuWish(share=0.8))
    cluster = cluster.with_waiting("quarter", wish=GpuWish(share=0.25), count=2)
    assert given_to(cluster) == {"quarter": ("t0",)}


def test_the_place_is_expected_when_the_right_device_is_given_back():
    cluster = mixed(("t", 1, T4), ("h", 1, H100))
    cluster = cluster.with_running("i1", gpus=1, on=("t0",), ends_in_s=10)
    cluster = cluster.with_running("i1", gpus=1, on=("h0",), ends_in_s=99)
    cluster = cluster.with_waiting("a", gpus=1, waited_ms=5 * MINUTE, wish=GpuWish(model="h100"))
    (reservation,) = plan(cluster.snapshot()).reservations
    assert reservation.expected_at == cluster.now + 99_000


def on_demand_and_spot(*devices) -> Cluster:
    return (
        a_snapshot()
        .with_environment("demand")
        .with_environment("spot", kind=Provisioning.SPOT)
        .with_queue("demand", "demand")
        .with_queue("spot", "spot")
        .with_gpu_machine("host", *devices)
        .with_instance("d", "demand", gpus=len(devices), machine="host", is_share=True)
        .with_instance("s", "spot", gpus=len(devices), machine="host", is_share=True)
    )


def test_only_those_on_the_right_device_are_asked_to_leave():
    cluster = on_demand_and_spot(*some_gpus("t", 1, *T4), *some_gpus("h", 1, *H100))
    cluster = cluster.with_running("s", gpus=1, on=("t0",), job="cheap", queue="spot", loss=1)
    cluster = cluster.with_running("s", gpus=1, on=("h0",), job="dear", queue="spot", loss=100)
    wants = cluster.with_waiting("a", gpus=1, queue="demand", wish=GpuWish(model="h100"))
    assert [one.token for one in plan(wants.snapshot()).reclaims] == ["dear#1"]
    anything = cluster.with_waiting("a", gpus=1, queue="demand")
    assert [one.token for one in plan(anything.snapshot()).reclaims] == ["cheap#1"]


def test_all_who_share_a_device_leave_it_to_one_who_wants_it_whole_and_no_others():
    cluster = on_demand_and_spot(*some_gpus("t", 2, *T4, sharing=SHARED))
    for name, device, loss in (("a", "t0", 1), ("b", "t0", 2), ("c", "t1", 1), ("d", "t1", 90)):
        cluster = cluster.with_running("s", gpus=0.5, on=(device,), job=name, queue="spot", loss=loss)
    cluster = cluster.with_waiting("whole", gpus=1, queue="demand")
    assert {one.token for one in plan(cluster.snapshot()).reclaims} == {"a#1", "b#1"}


# Launches -------------------------------------------------------------------------------------------------------

OFFERS = (
    an_offer("small", gpus=1, devices=some_gpus("o", 1, *A10G)),
    an_offer("large", gpus=2, devices=some_gpus("o", 2, *H100, sharing=SHARED)),
)


@pytest.mark.parametrize(
    ("wish", "count", "types"),
    [
        (None, 1, ["small"]),
        (GpuWish(model="H100"), 1, ["large"]),
        (GpuWish(memory_mib=40 * 1024), 3, ["large", "large"]),
        (GpuWish(share=0.4), 1, ["large"]),
        (GpuWish(share=0.4), 5, ["large", "large"]),
        (GpuWish(share=0.6), 2, ["large"]),
        (GpuWish(model="B200"), 1, []),
    ],
)
def test_what_is_launched_has_the_gpus_that_were_asked_for(wish, count, types):
    cluster = a_snapshot().with_environment(offers=OFFERS).with_waiting("a", gpus=1, count=count, wish=wish)
    assert [one for _, one in launched(plan(cluster.snapshot()))] == types


def test_what_is_on_its_way_counts_only_for_those_it_will_take():
    cluster = a_snapshot().with_environment(offers=OFFERS)
    cluster = cluster.with_instance("i1", gpus=1, state=InstanceState.LAUNCHING, instance_type="small")
    assert launched(plan(cluster.with_waiting("a", gpus=1).snapshot())) == []
    choosy = cluster.with_waiting("a", gpus=1, wish=GpuWish(model="H100"))
    assert launched(plan(choosy.snapshot())) == [("env", "large")]


# What people are told -------------------------------------------------------------------------------------------


def test_a_kind_that_nobody_has_is_said_with_what_there_is():
    cluster = mixed(("a", 2, A10G)).with_waiting("a", gpus=1, wish=GpuWish(model="H100"))
    told = why(cluster, "a")
    assert [reason.text() for reason in told.reasons] == [
        "no GPU of model H100 in env: there are 2 x A10G (24 GiB)"
    ]
    assert told.aws_reason == AwsReason.TOO_LARGE
    assert changes(cluster, "a") == [
        "would start now with GPUs of another model (without windfall:gpu-model)"
    ]


def test_too_much_memory_is_said_with_how_much_would_do():
    cluster = mixed(("a", 2, A10G)).with_waiting("a", gpus=1, wish=GpuWish(memory_mib=40 * 1024))
    assert reasons(cluster, "a") == {
        "NO_SUCH_GPU": "no GPU with at least 40 GiB in env: there are 2 x A10G (24 GiB)"
    }
    assert changes(cluster, "a") == ["would start now with windfall:gpu-memory-gib <= 24"]


def test_another_kind_that_could_be_launched_is_named_too():
    cluster = a_snapshot().with_environment(offers=OFFERS)
    model = cluster.with_waiting("a", gpus=1, wish=GpuWish(model="B200"))
    assert changes(model, "a") == [
        "would get an instance with GPUs of another model (without windfall:gpu-model)"
    ]
    memory = cluster.with_waiting("a", gpus=1, wish=GpuWish(memory_mib=100 * 1024))
    assert changes(memory, "a") == ["would get an instance with windfall:gpu-memory-gib <= 80"]


def test_more_of_a_kind_than_one_instance_has():
    cluster = mixed(("a", 3, A10G), ("h", 1, H100)).with_waiting("a", gpus=2, wish=GpuWish(model="h100"))
    assert reasons(cluster, "a") == {
        "NO_SUCH_GPU": "no instance of env has 2 GPUs of model h100:"
        " there are 3 x A10G (24 GiB), 1 x H100 (80 GiB)"
    }


def test_a_kind_that_is_taken_is_said_apart_from_those_that_are_free():
    cluster = mixed(("a", 3, A10G), ("h", 1, H100)).with_running("i1", gpus=1, on=("h0",))
    cluster = cluster.with_waiting("a", gpus=1, wish=GpuWish(model="h100"))
    assert reasons(cluster, "a")["ROOM_TAKEN"] == (
        "needs 1 GPU of model h100, 0 of 1 are free on i1 of env, where 1 job runs"
    )


def test_amounts_of_parts_are_exact_in_a_snapshot():
    part = held_part(0.1)
    cluster = mixed(("t", 1, T4), sharing=SHARED)
    for _ in range(9):
        cluster = cluster.with_running("i1", 0.25, 100, part, on=("t0",))
    assert given_to(cluster.with_waiting("tenth", wish=GpuWish(share=0.1))) == {"tenth": ("t0",)}
    assert given_to(cluster.with_waiting("more", wish=GpuWish(share=0.11))) == {}
