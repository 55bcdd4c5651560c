"""How many devices of a set one job could have, and how a set is said."""

from __future__ import annotations

import pytest

from windfall.capacity.gpu_sets import NO_DEVICES, DeviceSet, listed_kinds, suited
from windfall.capacity.machines import GpuDevice, Machine
from windfall.jobs.gpus import GpuWish
from windfall.jobs.ids import MachineId
from windfall.jobs.resources import Resources

A, B = (GpuDevice(name, "A10G", 24_576) for name in "ab")
H = GpuDevice("h", "H100", 81_920, sharing="mps")


@pytest.mark.parametrize(
    ("wish", "count"),
    [
        (None, 3),
        (GpuWish(model="a10g"), 2),
        (GpuWish(model="*"), 2),  # of one kind
        (GpuWish(memory_mib=20_000), 3),
        (GpuWish(memory_mib=40_000), 1),
        (GpuWish(share=0.5), 1),
        (GpuWish(model="a10g", share=0.5), 0),
        (GpuWish(model="b200"), 0),
    ],
)
def test_how_many_one_job_could_have(wish, count):
    assert suited((A, B, H), wish) == count


def test_devices_in_words():
    unknown = GpuDevice("x", "Simulated GPU")
    assert listed_kinds((A, H, B, unknown)) == ("2 x A10G (24 GiB)", "1 x H100 (80 GiB)", "1 x Simulated GPU")


def a_set(*gpus: GpuDevice, **more) -> DeviceSet:
    return DeviceSet.of(Machine(MachineId("m"), Resources(1, 1, len(gpus)), gpus, **more))


def test_devices_are_alike_when_it_makes_no_difference_which_one_has():
    assert a_set() is NO_DEVICES
    assert a_set(A, B).interchangeable
    assert not a_set(A, H).interchangeable
    assert not a_set(H).interchangeable  # it may be shared
    assert not a_set(A, B, fences={"a": "by hand"}).interchangeable


def test_order_and_fences():
    found = a_set(H, B, A, fences={"b": "by hand"})
    assert (found.ids, dict(found.fenced)) == (("a", "h"), {"b": "by hand"})
    assert found.rank == {"b": 0, "a": 1, "h": 2}
