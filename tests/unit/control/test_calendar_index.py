"""The calendar's heap: what is outdated never comes up, and does not pile up."""

from __future__ import annotations

from windfall.control.calendar_index import CalendarIndex


def test_entries_come_in_order_and_outdated_ones_not_at_all():
    index = CalendarIndex()
    index.plan("a", 30)
    index.plan("a", 20)
    index.plan("b", 10)
    index.plan("b", None)
    index.wait(("c", 5), 25)
    index.wait(("c", 5), 15)
    assert index.next_at() == 15
    assert index.take(14) is None
    assert index.take(40) == ("c", 5)
    assert index.take(40) == ("a", None)
    assert index.take(40) is None
    assert (index.planned, index.waiting, index.heap) == ({}, {}, [])


def test_a_schedule_that_is_changed_a_thousand_times_leaves_nothing_behind():
    index = CalendarIndex()
    for due_at in range(10_000):
        index.plan("a", due_at)
    assert len(index.heap) < 2_000
    assert index.take(20_000) == ("a", None)
    assert index.take(20_000) is None


def test_a_schedule_that_is_gone_is_looked_at_no_more():
    index = CalendarIndex()
    index.plan("a", 10)
    index.uncut["a"] = 7
    index.forget("a")
    assert (index.next_at(), index.uncut) == (None, {})
