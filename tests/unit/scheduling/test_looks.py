"""How many multi-node jobs look for others who could leave in one tick, and that each has its turn."""

from __future__ import annotations

from tests.unit.scheduling.builders import a_shape
from tests.unit.scheduling.test_gangs_taking_back import a_fleet, lent, waits
from windfall.scheduling.looks import LEAST_LOOKS, MOST_LOOKED_AT, TURN_MS, Looks


def who_looks(most: int, waiting: int, turn: int) -> list[int]:
    looks = Looks(most, waiting, turn * TURN_MS)
    return [place for place in range(waiting) if looks.next()]


def test_all_look_where_there_are_few():
    assert who_looks(8, 8, 5) == list(range(8))


def test_never_more_than_may_and_the_first_always():
    for turn in range(20):
        looking = who_looks(8, 41, turn)
        assert len(looking) <= 8
        assert looking[:4] == [0, 1, 2, 3]


def test_everybody_has_a_turn():
    for most, waiting in ((2, 3), (2, 50), (5, 12), (8, 41)):
        turns = range(7, 7 + waiting)
        assert {place for turn in turns for place in who_looks(most, waiting, turn)} == set(range(waiting))


def test_the_larger_the_fleet_the_fewer_look():
    def looks(machines: int, attempts: int) -> int:
        fleet = a_fleet(machines)
        for number in range(attempts):
            fleet = lent(fleet, number % machines, f"s{number}", vcpus=0.01)
        for vcpus in range(1, 5):
            fleet = waits(fleet, (a_shape(vcpus), 2), job=f"g{vcpus}")
        return Looks.of(fleet.snapshot()).most

    few, many = looks(2, 3), looks(4, 9)
    # The machines of that fleet have a second environment.
    assert many < few <= MOST_LOOKED_AT // 5
    assert Looks.of(a_fleet(2).snapshot()).most == LEAST_LOOKS, "nobody waits"
