"""The history of schedules: newest first, undone ones at a start, and no more of it than is kept."""

from __future__ import annotations

from dataclasses import replace

from tests.conformance.store_builders import NOW
from windfall.control.changes import Changes, Purge
from windfall.schedules.schedule import Tick, TickOutcome
from windfall.store.pages import KEPT

MINUTE = 60_000


def a_tick(number: int, schedule: str = "default/nightly", **more: object) -> Tick:
    done = Tick(schedule, NOW + number * MINUTE, NOW + number * MINUTE, TickOutcome.SKIPPED, "why")
    return replace(done, **more)


def written(*ticks: Tick, **more: object) -> Changes:
    return Changes(ticks={(tick.schedule, tick.due_at): tick for tick in ticks}, **more)


def test_ticks_come_newest_first_and_page_by_page(store):
    mine, other = [a_tick(number) for number in range(5)], a_tick(2, "default/nightly2")
    store.commit(written(*mine, other))
    assert store.ticks("default/nightly", 3) == mine[:1:-1]
    assert store.ticks("default/nightly", 9, mine[2].due_at) == mine[1::-1]
    assert store.ticks("default/nightly2", 9) == [other]
    assert store.ticks("default/nobody", 9) == []
    assert store.ticks("no\0thing", 9) == []


def test_a_start_loads_ticks_that_are_not_closed_runs_that_go_on_included(place):
    store = place.open()
    kinds = [
        a_tick(0, outcome=TickOutcome.DUE),
        a_tick(1, outcome=TickOutcome.WAITING),
        a_tick(2, outcome=TickOutcome.STARTED, run="job"),
        a_tick(3, outcome=TickOutcome.FAILED, letter_due=True),
        a_tick(4, outcome=TickOutcome.STARTED, run="over", run_ended_at=NOW),
        a_tick(5, outcome=TickOutcome.FAILED),
    ]
    store.commit(written(*kinds))
    assert place.reopened().load().ticks == kinds[:4]


def test_a_long_history_is_cut_to_its_newest_closed_ticks(store):
    undone = a_tick(0, outcome=TickOutcome.DUE)
    store.commit(written(undone, *(a_tick(number) for number in range(1, KEPT + 20))))
    other = a_tick(0, "default/other")
    store.commit(written(other, cut_histories={"default/nightly", "default/other", "default/nobody"}))
    kept = store.ticks("default/nightly", 2 * KEPT)
    assert len(kept) == KEPT + 1
    assert (kept[0].due_at, kept[-1]) == (NOW + (KEPT + 19) * MINUTE, undone)
    assert store.ticks("default/other", 9) == [other]


def test_old_ticks_go_in_small_steps_whatever_became_of_their_schedule(store):
    undone = a_tick(0, outcome=TickOutcome.WAITING)
    store.commit(written(undone, *(a_tick(number) for number in range(1, 8))))
    purge = Purge(0, 2, ticks_before=NOW + 6 * MINUTE)
    store.commit(Changes(purge=purge))
    assert len(store.ticks("default/nightly", 9)) == 6
    for _ in range(5):
        store.commit(Changes(purge=purge))
    assert store.ticks("default/nightly", 9) == [a_tick(7), a_tick(6), undone]
