"""Who holds what: sums are right, devices are given once, and a refusal changes nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tests.builders import HOST, a_machine
from windfall.capacity.gpu_sets import MOST_SHARERS
from windfall.capacity.machines import GpuDevice, Hold, Instance, Machine
from windfall.capacity.occupancy import Occupancy, Overcommitted, PartUse
from windfall.jobs.gpus import held_part
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId
from windfall.jobs.resources import NOTHING, Resources

ONE, TWO = AttemptToken("one#1"), AttemptToken("two#1")
A, B = (
    Instance(InstanceId(n), EnvironmentName(n), "host", Resources(4, 4096, 2), machine=HOST) for n in "ab"
)


def a_hold(instance, *gpu_ids):
    return Hold(instance.id, Resources(1, 1024, len(gpu_ids)), gpu_ids)


def test_environments_on_one_machine_share_it():
    occupancy = Occupancy()
    occupancy.take(ONE, a_hold(A, "gpu0"), A)
    occupancy.take(TWO, a_hold(B, "gpu1"), B)
    assert occupancy.used_on(HOST) == Resources(2, 2048, 2)
    assert occupancy.instances[A.id].used == Resources(1, 1024, 1)
    assert occupancy.free_gpus(a_machine(gpus=3)) == ("gpu2",)


def test_what_is_given_back_is_free_and_the_instance_is_idle_since_then():
    occupancy = Occupancy()
    occupancy.take(ONE, a_hold(A, "gpu0"), A)
    occupancy.take(TWO, a_hold(A), A)
    occupancy.give_back(ONE, A, 7)
    assert occupancy.instances[A.id].idle_since is None
    occupancy.give_back(TWO, A, 8)
    assert occupancy.instances[A.id].idle_since == 8
    assert occupancy.used_on(HOST) == NOTHING
    assert occupancy.free_gpus(a_machine(gpus=1)) == ("gpu0",)


def test_giving_back_twice_or_from_nowhere_is_no_error():
    occupancy = Occupancy()
    occupancy.give_back(ONE, A, 1)
    occupancy.take(ONE, a_hold(A), A)
    occupancy.give_back(ONE, A, 1)
    occupancy.give_back(ONE, A, 9)
    assert occupancy.instances[A.id].idle_since == 1
    assert occupancy.used_on(HOST) == NOTHING


@pytest.mark.parametrize(("token", "hold"), [(ONE, a_hold(A)), (TWO, a_hold(A, "gpu1", "gpu0"))])
def test_a_second_holder_is_refused_and_nothing_changes(token, hold):
    occupancy = Occupancy()
    occupancy.take(ONE, a_hold(A, "gpu0"), A)
    before = copy.deepcopy(occupancy)
    with pytest.raises(Overcommitted, match=token):
        occupancy.take(token, hold, A)
    assert occupancy == before


def test_amounts_are_added_taken_away_and_compared_part_by_part():
    big, small = Resources(4, 8192, 2), Resources(0.25, 512, 1)
    assert big - small + small == big
    assert small.fits_in(big)
    assert not big.fits_in(small)
    assert not Resources(1, 1, 3).fits_in(big)


def a_part(gpu_id, share):
    return Hold(A.id, Resources(1, 1024, held_part(share)), (gpu_id,))


def test_parts_of_a_device_add_up_to_one_and_no_more():
    occupancy = Occupancy()
    tokens = [AttemptToken(f"part{n}#1") for n in range(10)]
    for token in tokens:
        occupancy.take(token, a_part("gpu0", 0.1), A)
    with pytest.raises(Overcommitted, match="of which 10 others hold"):
        occupancy.take(ONE, a_part("gpu0", 0.1), A)
    assert occupancy.shared_gpus(HOST) == {"gpu0": PartUse(10 * 102 / 1024, 10)}
    assert occupancy.free_gpus(a_machine(gpus=2)) == ("gpu1",)
    for token in tokens:
        occupancy.give_back(token, A, 1)
    assert occupancy.used_on(HOST) == NOTHING
    assert occupancy.shared_gpus(HOST) == {}
    assert occupancy.free_gpus(a_machine(gpus=2)) == ("gpu0", "gpu1")


def test_a_device_is_shared_or_whole_and_never_both():
    occupancy = Occupancy()
    occupancy.take(ONE, a_part("gpu0", 0.25), A)
    with pytest.raises(Overcommitted, match="another attempt holds"):
        occupancy.take(TWO, a_hold(A, "gpu0"), A)
    occupancy.take(TWO, a_hold(A, "gpu1"), A)
    with pytest.raises(Overcommitted, match="another attempt holds"):
        occupancy.take(AttemptToken("three#1"), a_part("gpu1", 0.25), A)


def test_no_more_share_a_device_than_it_serves():
    occupancy = Occupancy()
    for n in range(MOST_SHARERS):
        occupancy.take(AttemptToken(f"part{n}#1"), a_part("gpu0", 0.01), A)
    with pytest.raises(Overcommitted):
        occupancy.take(ONE, a_part("gpu0", 0.01), A)


def test_the_least_memory_comes_first_and_fenced_devices_not_at_all():
    large, small = GpuDevice("large", "H100", 81_559), GpuDevice("small", "T4", 15_360)
    sick = GpuDevice("sick", "T4", 15_360, fence="XID 79")
    machine = Machine(HOST, Resources(4, 4096, 3), (large, sick, small))
    occupancy = Occupancy()
    assert occupancy.free_gpus(machine) == ("small", "large")
    assert occupancy.devices(machine) is occupancy.devices(machine)
    well = replace(machine, pardons={"sick": "XID 79"})
    assert occupancy.free_gpus(well) == ("sick", "small", "large")
