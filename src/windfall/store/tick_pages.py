"""The history of schedules: pages of a schedule's ticks, newest first, and how much of it is kept.

A page costs its own length. Of every schedule the newest ticks stay, and none for ever: schedules come and go. Ticks
that are not closed are never removed. Must not know what a tick means.
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.control.changes import Purge
from windfall.schedules.schedule import Tick
from windfall.store import records
from windfall.store.database import SqlSession
from windfall.store.rounds import searchable

#: How many ticks of a schedule are kept.
KEPT = 1_000

_PAGE = "SELECT record FROM ticks WHERE schedule = ? AND due_at < ? ORDER BY due_at DESC LIMIT ?"
_CUT = """
DELETE FROM ticks WHERE schedule = ? AND undone = 0
AND due_at < (SELECT due_at FROM ticks WHERE schedule = ? ORDER BY due_at DESC LIMIT 1 OFFSET ?)
"""
_OLD = """
DELETE FROM ticks WHERE (schedule, due_at) IN
(SELECT schedule, due_at FROM ticks WHERE undone = 0 AND due_at < ? ORDER BY due_at LIMIT ?)
"""
_LAST = 2**63 - 1


def page_of_ticks(session: SqlSession, schedule: str, limit: int, before: int | None) -> list[Tick]:
    """The newest ticks of a schedule, or those that were due before a time."""
    if not searchable(schedule):
        return []
    rows = session.rows(_PAGE, (schedule, _LAST if before is None else before, max(0, limit)))
    return [records.ticks.decoded(record) for (record,) in rows]


def cut_histories(session: SqlSession, schedules: Iterable[str]) -> None:
    """Remove all but the newest closed ticks of these schedules."""
    for schedule in schedules:
        session.rows(_CUT, (schedule, schedule, KEPT - 1))


def purge_ticks(session: SqlSession, wanted: Purge) -> None:
    """Remove a few closed ticks that are too old."""
    session.rows(_OLD, (wanted.ticks_before, wanted.limit))
