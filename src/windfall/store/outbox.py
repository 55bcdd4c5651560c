"""Events that wait to be delivered: read in their order, and removed when their destination has heard them.

They are written with the round that they report (rounds.py). Must not know what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.control.outbox import OutboxEvent
from windfall.store import records
from windfall.store.database import SqlSession
from windfall.store.tables import OUTBOX

_OLDEST = "SELECT record FROM outbox WHERE destination = ? ORDER BY seq LIMIT ?"
_DESTINATIONS = "SELECT destination, COUNT(*) FROM outbox GROUP BY destination"
_FORGET = "DELETE FROM outbox WHERE destination = ?"


def oldest(session: SqlSession, destination: str, limit: int) -> list[OutboxEvent]:
    """The first events that a destination has not heard."""
    return [
        records.outbox_events.decoded(record) for (record,) in session.rows(_OLDEST, (destination, limit))
    ]


def remove(session: SqlSession, destination: str, ids: Sequence[str]) -> None:
    """Remove what a destination has heard."""
    session.remove(OUTBOX, [(destination, event_id) for event_id in ids])


def remove_others(session: SqlSession, wanted: Sequence[str]) -> int:
    """Remove what waits for all destinations but these; answers how much that was."""
    gone = 0
    for destination, count in session.rows(_DESTINATIONS):
        if destination not in wanted:
            session.rows(_FORGET, (destination,))
            gone += count
    return gone
