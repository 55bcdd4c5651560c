"""Commands of daemons that do not lead, and the leader's replies, as rows of one table.

A row without a reply is a command that is not done; the reply is written in the transaction of what the command
changed, so it is done once, whatever happens to either. Must not know what commands mean.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg

from windfall.backoff import Backoff, FailureLog, Pauses
from windfall.jobs.errors import Rejected
from windfall.store.coordination import ForwardedCommand
from windfall.store.errors import CannotOpen, DamagedRecord
from windfall.store.forwarded_commands import decoded_command, decoded_reply, encoded_command, encoded_reply
from windfall.store.postgres.database import Connection, PostgresDatabase
from windfall.store.postgres.dedicated_connection import DedicatedConnection

log = logging.getLogger(__name__)

#: How many commands are read at once; a leader that got as many asks again.
COMMANDS_MAX = 1_000
#: How often a daemon looks although nobody told it to: a word that was lost costs no more than this.
LOOK_EVERY_S = 0.5
_PATIENCE_S = 10.0
_RECONNECT = Pauses(0.2, 1.0, jitter=0.2)
_SWEEP_EVERY_S = 60.0

_SEND = "INSERT INTO inbox (id, command, body, tenant) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
_COMMANDS = "SELECT id, command, body, tenant FROM inbox WHERE reply IS NULL ORDER BY seq LIMIT %s"
_SWEEP = "DELETE FROM inbox WHERE reply IS NOT NULL AND sent_at < clock_timestamp() - INTERVAL '10 minutes'"


class PostgresInbox:
    """The forwarded commands in one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connect = database.connect
        self._dedicated = DedicatedConnection(database.connect, lambda: _PATIENCE_S)
        self._swept_s = 0.0

    def send(self, forwarded: ForwardedCommand) -> None:
        """Put a command where the leader finds it; sending it again changes nothing."""
        name, body = encoded_command(forwarded.command)
        row = (forwarded.id, name, body, forwarded.tenant)
        self._dedicated.use(lambda connection: connection.execute(_SEND.encode(), row))

    def commands(self) -> list[ForwardedCommand]:
        """The oldest commands that nobody has answered yet; what cannot be read is refused."""

        def act(connection: Connection) -> list[ForwardedCommand]:
            if time.monotonic() - self._swept_s > _SWEEP_EVERY_S:
                self._swept_s = time.monotonic()
                connection.execute(_SWEEP.encode())
            commands: list[ForwardedCommand] = []
            rows = connection.execute(_COMMANDS.encode(), (COMMANDS_MAX,)).fetchall()
            for command_id, name, body, tenant in rows:
                try:
                    commands.append(ForwardedCommand(command_id, decoded_command(name, body), tenant))
                except DamagedRecord as error:
                    reply = encoded_reply(Rejected(f"{error}; run the same version of Windfall everywhere"))
                    connection.execute("UPDATE inbox SET reply = %s WHERE id = %s", (reply, command_id))
            return commands

        return self._dedicated.use(act)

    def replies(self, ids: Sequence[str]) -> Mapping[str, Any]:
        """The leader's replies to these commands, as far as there are any."""
        sql = b"SELECT id, reply FROM inbox WHERE id = ANY (%s) AND reply IS NOT NULL"
        rows = self._dedicated.use(lambda connection: connection.execute(sql, (list(ids),)).fetchall())
        return {command_id: decoded_reply(reply) for command_id, reply in rows}

    def listen(self, on_news: Callable[[str], None], until: Callable[[], bool]) -> None:
        """Say what may have changed; commands also at once after a connection, and now and then."""
        backoff, failures = Backoff(_RECONNECT, random=random.random), FailureLog(time.monotonic)
        while not until():
            try:
                with self._connect() as connection:
                    connection.execute("LISTEN windfall_news")
                    backoff.succeeded()
                    failures.is_over()
                    while not until():
                        on_news("inbox")
                        for news in connection.notifies(timeout=LOOK_EVERY_S, stop_after=1):
                            on_news(news.payload)
            except (psycopg.Error, CannotOpen) as error:
                if failures.is_news(type(error).__name__):  # Its text names another port or moment each time.
                    log.warning("PostgreSQL tells no news (%s); connecting again", str(error).strip())
                time.sleep(backoff.failed())

    def close(self) -> None:
        """Let go of the connection."""
        self._dedicated.close()
