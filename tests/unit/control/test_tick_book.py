"""The calendar's heap: what is outdated never comes up, and does not pile up."""

from __future__ import annotations

from windfall.control.tick_book import TickBook


def test_looks_come_in_order_and_outdated_ones_not_at_all():
    book = TickBook()
    book.plan("a", 30)
    book.plan("a", 20)
    book.plan("b", 10)
    book.plan("b", None)
    book.wait(("c", 5), 25)
    book.wait(("c", 5), 15)
    assert book.next_look() == 15
    assert book.take(14) is None
    assert book.take(40) == ("c", 5)
    assert book.take(40) == ("a", None)
    assert book.take(40) is None
    assert (book.planned, book.waiting, book.heap) == ({}, {}, [])


def test_a_schedule_that_is_changed_a_thousand_times_leaves_nothing_behind():
    book = TickBook()
    for due_at in range(10_000):
        book.plan("a", due_at)
    assert len(book.heap) < 2_000
    assert book.take(20_000) == ("a", None)
    assert book.take(20_000) is None


def test_a_schedule_that_is_gone_is_looked_at_no_more():
    book = TickBook()
    book.plan("a", 10)
    book.uncut["a"] = 7
    book.forget("a")
    assert (book.next_look(), book.uncut) == (None, {})
