"""Commands of daemons that do not lead, and the leader's replies, as rows of one table.

A row without a reply is a command that is not done; the reply is written in the transaction of what the command
changed, so it is done once, whatever happens to either. Must not know what commands mean.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg

from windfall.jobs.errors import Rejected
from windfall.store.errors import CannotOpen, Damaged
from windfall.store.letters import decoded_command, decoded_reply, encoded_command, encoded_reply
from windfall.store.postgres.database import Connection, PostgresDatabase
from windfall.store.postgres.line import Line
from windfall.store.sharing import Letter

log = logging.getLogger(__name__)

#: How many letters are read at once; a leader that got as many asks again.
LETTERS_MAX = 1_000
#: How often a daemon looks although nobody told it to: a word that was lost costs no more than this.
LOOK_EVERY_S = 0.5
_PATIENCE_S = 10.0
_RECONNECT_S, _RECONNECT_MOST_S = 0.2, 1.0
_SWEEP_EVERY_S = 60.0

_SEND = "INSERT INTO inbox (id, command, body, tenant) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
_LETTERS = "SELECT id, command, body, tenant FROM inbox WHERE reply IS NULL ORDER BY seq LIMIT %s"
_SWEEP = "DELETE FROM inbox WHERE reply IS NOT NULL AND sent_at < clock_timestamp() - INTERVAL '10 minutes'"


class PostgresInbox:
    """The letters in one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connect = database.connect
        self._line = Line(database.connect, lambda: _PATIENCE_S)
        self._swept_s = 0.0

    def send(self, letter: Letter) -> None:
        """Put a command where the leader finds it; sending it again changes nothing."""
        name, body = encoded_command(letter.command)
        row = (letter.id, name, body, letter.tenant)
        self._line.use(lambda connection: connection.execute(_SEND.encode(), row))

    def letters(self) -> list[Letter]:
        """The oldest commands that nobody has answered yet; what cannot be read is refused."""

        def act(connection: Connection) -> list[Letter]:
            if time.monotonic() - self._swept_s > _SWEEP_EVERY_S:
                self._swept_s = time.monotonic()
                connection.execute(_SWEEP.encode())
            found: list[Letter] = []
            rows = connection.execute(_LETTERS.encode(), (LETTERS_MAX,)).fetchall()
            for letter_id, name, body, tenant in rows:
                try:
                    found.append(Letter(letter_id, decoded_command(name, body), tenant))
                except Damaged as error:
                    reply = encoded_reply(Rejected(f"{error}; run the same version of Windfall everywhere"))
                    connection.execute("UPDATE inbox SET reply = %s WHERE id = %s", (reply, letter_id))
            return found

        return self._line.use(act)

    def replies(self, ids: Sequence[str]) -> Mapping[str, Any]:
        """What the leader answered to these letters, as far as it has."""
        sql = b"SELECT id, reply FROM inbox WHERE id = ANY (%s) AND reply IS NOT NULL"
        rows = self._line.use(lambda connection: connection.execute(sql, (list(ids),)).fetchall())
        return {letter_id: decoded_reply(reply) for letter_id, reply in rows}

    def listen(self, on_news: Callable[[str], None], until: Callable[[], bool]) -> None:
        """Say what may have changed; letters also at once after a connection, and now and then."""
        told, wait_s = "", _RECONNECT_S
        while not until():
            try:
                with self._connect() as connection:
                    connection.execute("LISTEN windfall_news")
                    told, wait_s = "", _RECONNECT_S
                    while not until():
                        on_news("inbox")
                        for news in connection.notifies(timeout=LOOK_EVERY_S, stop_after=1):
                            on_news(news.payload)
            except (psycopg.Error, CannotOpen) as error:
                if told != type(error).__name__:  # Once: its words name another port or moment each time.
                    told = type(error).__name__
                    log.warning("PostgreSQL tells no news (%s); connecting again", str(error).strip())
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _RECONNECT_MOST_S)

    def close(self) -> None:
        """Let go of the connection."""
        self._line.close()
