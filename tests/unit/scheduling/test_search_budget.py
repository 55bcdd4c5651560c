"""How many multi-node jobs may search for attempts to preempt in one pass, and that each has its turn."""

from __future__ import annotations

from tests.unit.scheduling.builders import a_shape
from tests.unit.scheduling.test_gangs_taking_back import a_fleet, lent, waits
from windfall.scheduling.search_budget import LEAST_SEARCHES, MOST_EXAMINED, TURN_MS, SearchBudget


def searching(most: int, waiting: int, turn: int) -> list[int]:
    budget = SearchBudget(most, waiting, turn * TURN_MS)
    return [place for place in range(waiting) if budget.allows_next()]


def test_all_search_where_there_are_few():
    assert searching(8, 8, 5) == list(range(8))


def test_never_more_than_may_and_the_first_always():
    for turn in range(20):
        allowed = searching(8, 41, turn)
        assert len(allowed) <= 8
        assert allowed[:4] == [0, 1, 2, 3]


def test_everybody_has_a_turn():
    for most, waiting in ((2, 3), (2, 50), (5, 12), (8, 41)):
        turns = range(7, 7 + waiting)
        assert {place for turn in turns for place in searching(most, waiting, turn)} == set(range(waiting))


def test_the_larger_the_fleet_the_fewer_search():
    def budget(machines: int, attempts: int) -> int:
        fleet = a_fleet(machines)
        for number in range(attempts):
            fleet = lent(fleet, number % machines, f"s{number}", vcpus=0.01)
        for vcpus in range(1, 5):
            fleet = waits(fleet, (a_shape(vcpus), 2), job=f"g{vcpus}")
        return SearchBudget.of(fleet.snapshot()).most

    few, many = budget(2, 3), budget(4, 9)
    # The machines of that fleet have a second environment.
    assert many < few <= MOST_EXAMINED // 5
    assert SearchBudget.of(a_fleet(2).snapshot()).most == LEAST_SEARCHES, "nobody waits"
