"""Which of several daemons leads: a lease by the database's own clock, and a fence before every commit.

The lease decides who should lead, the fence who can: every commit changes the fence's row, which only the epoch that it
names can do, so a leader that slept through the end of its lease writes nothing. Must not know what a leader does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import psycopg

from windfall.jobs.errors import Rejected
from windfall.store.coordination import Lead, Presence
from windfall.store.errors import StoreError, StoreReplaced, Superseded
from windfall.store.forwarded_commands import encoded_reply
from windfall.store.postgres.database import Connection, PostgresDatabase, PostgresSession
from windfall.store.postgres.dedicated_connection import DedicatedConnection

#: The epoch of a daemon that has no lease; the fence never has this one.
NO_EPOCH = -1
#: A command that this many leaders have met without answering is given up: perhaps it was what ended them.
LEADERS_PER_LETTER = 5
_GIVEN_UP = Rejected(
    "Several leaders ended while they did this; it was given up, and nothing has been changed."
)
#: Former leaders that are remembered, and for how many leases a daemon counts as there.
_PAST = 1_000
_LEASES_SEEN = 3

_LOOK = """
SELECT epoch, holder, address, renewed_at + lease_s * INTERVAL '1 second' < clock_timestamp(), identity FROM leadership
"""
_PRESENT = """
INSERT INTO daemons (name, address, pid, seen_at) VALUES (%s, %s, %s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET address = excluded.address, seen_at = excluded.seen_at
"""
_TAKE = """
UPDATE leadership
SET epoch = greatest(epoch + 1, %s, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    holder = %s, address = %s, lease_s = %s, renewed_at = clock_timestamp()
WHERE epoch = %s
  AND (holder IN ('', %s) OR renewed_at + lease_s * INTERVAL '1 second' < clock_timestamp())
RETURNING epoch
"""
_PAST_LEADER = """
INSERT INTO past_leaders (epoch, holder, rounds) SELECT epoch, %s, round FROM fence ON CONFLICT DO NOTHING
"""
_FORGET_PAST = """
DELETE FROM past_leaders WHERE epoch NOT IN (SELECT epoch FROM past_leaders ORDER BY epoch DESC LIMIT %s)
"""
_END_WRITER = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()
"""
_RENEW = "UPDATE leadership SET renewed_at = clock_timestamp() WHERE epoch = %s AND holder = %s RETURNING 1"
_RELEASE = "UPDATE leadership SET holder = '', address = '' WHERE epoch = %s AND holder = %s"
_DAEMONS = """
SELECT d.name, d.address, d.pid, l.holder IS NOT NULL
FROM daemons d LEFT JOIN leadership l ON l.holder = d.name
WHERE d.seen_at > clock_timestamp() - %s * INTERVAL '1 second'
ORDER BY d.seen_at DESC, d.name
"""


class PostgresLeadership:
    """This daemon's part in it."""

    def __init__(self, database: PostgresDatabase, identity: str) -> None:
        self._database = database
        self._identity = identity
        self._me = Presence("", "", 0)
        self._lease_s = 5.0
        self._dedicated = DedicatedConnection(database.connect, lambda: self._lease_s)
        self._epoch = NO_EPOCH
        self._sure_until = 0.0
        #: Commits that were begun in this epoch, and the first of each thread whose end is not known.
        self._begun = 0
        self._unknown_from: dict[int, int] = {}

    # The lease ------------------------------------------------------------------------------------------

    def join(self, me: Presence, lease_s: float) -> None:
        """Be one of several from now on: no commit without the lease."""
        self._me, self._lease_s = me, lease_s
        self._database.set_guard(self)

    def look(self) -> Lead:
        """Say that this daemon is there, and see who leads."""

        def act(connection: Connection) -> Lead:
            lead = self._seen(connection)
            connection.execute(_PRESENT.encode(), (self._me.name, self._me.address, self._me.pid))
            return lead

        return self._dedicated.use(act)

    def take(self, at_least: int, gone: str = "") -> int | None:
        """Take the lease if it is free; the writer of a leader that sleeps in the middle of a commit is ended."""
        epoch = self._dedicated.use(lambda connection: self._take(connection, at_least, gone))
        if epoch is not None:
            self._epoch, self._begun, self._unknown_from = epoch, 0, {}
            # Not sure before it is renewed: when exactly it was taken, only the database knows.
            self._sure_until = 0.0
        return epoch

    def _take(self, connection: Connection, at_least: int, gone: str) -> int | None:
        before = self._seen(connection)
        if not before.is_free and before.holder != gone:
            return None
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute(_END_WRITER.encode(), (_writer_name(before.holder),))
        me = self._me
        with connection.transaction():
            taken = connection.execute(
                _TAKE.encode(), (at_least, me.name, me.address, self._lease_s, before.epoch, gone)
            ).fetchone()
            if taken is None:
                return None
            connection.execute(_PAST_LEADER.encode(), (before.holder,))
            # One that lives says so again at its next look.
            connection.execute("DELETE FROM daemons WHERE name = %s AND name <> %s", (before.holder, me.name))
            connection.execute("UPDATE fence SET epoch = %s, round = 0", (taken[0],))
            connection.execute(_FORGET_PAST.encode(), (_PAST,))
            connection.execute("UPDATE inbox SET leaders = leaders + 1 WHERE reply IS NULL")
            connection.execute(
                "UPDATE inbox SET reply = %s WHERE reply IS NULL AND leaders > %s",
                (encoded_reply(_GIVEN_UP), LEADERS_PER_LETTER),
            )
            return int(taken[0])

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can have taken the lease yet; sleeping counts, also the machine's."""
        return _elapsed_s() < self._sure_until

    def confirm(self) -> Sequence[str]:
        """Renew the lease, or raise Superseded."""
        asked_s = _elapsed_s()
        renewed = self._dedicated.use(
            lambda connection: connection.execute(_RENEW.encode(), (self._epoch, self._me.name)).fetchone()
        )
        if renewed is None:
            raise Superseded(committed=False)
        self._sure_until = asked_s + self._lease_s
        return ()

    def release(self) -> None:
        """Give the lease back; a database that does not answer finds out by itself."""
        epoch, self._epoch, self._sure_until = self._epoch, NO_EPOCH, 0.0
        with suppress(StoreError):
            self._dedicated.use(
                lambda connection: connection.execute(_RELEASE.encode(), (epoch, self._me.name))
            )

    def leave(self) -> None:
        """Say that this daemon goes."""
        with suppress(StoreError):
            self._dedicated.use(
                lambda connection: connection.execute("DELETE FROM daemons WHERE name = %s", (self._me.name,))
            )

    def daemons(self) -> list[tuple[Presence, bool]]:
        """All daemons that were seen lately, and which of them leads."""

        def act(connection: Connection) -> list[tuple[Presence, bool]]:
            rows = connection.execute(_DAEMONS.encode(), (self._lease_s * _LEASES_SEEN,)).fetchall()
            return [(Presence(name, address, pid), leads) for name, address, pid, leads in rows]

        return self._dedicated.use(act)

    def close(self) -> None:
        """Let go of the connection."""
        self._dedicated.close()

    def _seen(self, connection: Connection) -> Lead:
        row = connection.execute(_LOOK.encode()).fetchone()
        if row is None or row[-1] != self._identity:
            raise StoreReplaced(
                f"{self._database.where} holds another store than when it was opened; was it dropped and made again?"
            )
        return Lead(*row[:-1])

    # The fence: database.WriteGuard ---------------------------------------------------------------------------

    def prepare(self, connection: Connection) -> None:
        """Make a writer that can be ended from outside and that, left alone in a transaction, ends by itself."""
        connection.execute("SELECT set_config('application_name', %s, false)", (_writer_name(self._me.name),))
        patience_ms = max(1, int(self._lease_s * 1000))
        connection.execute(f"SET idle_in_transaction_session_timeout = {2 * patience_ms}".encode())
        connection.execute(f"SET lock_timeout = {patience_ms}".encode())

    def check(self, session: PostgresSession) -> None:
        """Change the fence's row, which only the holder of the newest lease can; it stays locked until the commit."""
        self._begun += 1
        if session.rows("UPDATE fence SET round = ? WHERE epoch = ? RETURNING 1", (self._begun, self._epoch)):
            self._unknown_from.setdefault(threading.get_ident(), self._begun)
            return
        past = session.rows("SELECT rounds FROM past_leaders WHERE epoch = ?", (self._epoch,))
        unknown = self._unknown_from.get(threading.get_ident())
        raise Superseded(committed=unknown is not None and bool(past) and past[0][0] >= unknown)

    def settled(self) -> None:
        """Hear that a commit was acknowledged."""
        self._unknown_from.pop(threading.get_ident(), None)


def _writer_name(holder: str) -> str:
    return f"windfall writer {holder}"


def _elapsed_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
