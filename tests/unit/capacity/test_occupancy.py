"""Who holds what: sums are right, devices are given once, and a refusal changes nothing."""

from __future__ import annotations

import copy

import pytest

from tests.builders import HOST, a_machine
from windfall.capacity.machines import Hold, Instance
from windfall.capacity.occupancy import Occupancy, Overcommitted
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
