"""`python -m windfall.agent.courier SETTINGS [USER]`: reads orders from its standard input, a socket, and works until
that ends; with a user given, as that user.

Decides which errand an order is for. One courier at a time for an agent's directory and user: a lock makes a new one
wait until the last thread of the one before it is gone.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence

import msgspec

from windfall.agent.courier.errand import RunningErrand
from windfall.agent.courier.late import LateErrand
from windfall.agent.courier.means import Means, OwnMeans, StewardMeans
from windfall.agent.courier.messages import (
    Command,
    Drop,
    Dropped,
    Errand,
    Finish,
    Finished,
    Line,
    Prepare,
    PrepareFailed,
    Store,
    Stored,
    decode_commands,
    encode,
)
from windfall.agent.demotion import Identity
from windfall.agent.line_reader import LineReader
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say
from windfall.agent.steward.leaving import leave_root

LOCK_NAME = "courier.lock"
_CHUNK_BYTES = 1 << 20
_TICK_S = 1.0


class Courier:
    """All errands of one agent."""

    def __init__(self, settings: AgentSettings, line: socket.socket, door: str | None) -> None:
        self._settings = settings
        self._line = line
        #: The steward's socket; None for a courier with the agent's own rights.
        self._door = door
        self._telling = threading.Lock()
        self._errands: dict[str, RunningErrand] = {}
        self._late: dict[str, LateErrand] = {}
        if settings.link_local_metadata and door is None and os.geteuid() != 0:
            say(
                "instance metadata are not served at EC2's own address: only root can give it to an interface"
            )

    def run(self) -> None:
        """Work until the agent is gone."""
        reader = LineReader()
        while True:
            ready, _, _ = select.select([self._line], [], [], _TICK_S)
            if ready:
                chunk = self._line.recv(_CHUNK_BYTES)
                if not chunk:
                    break
                lines = reader.feed(chunk)
                for command in decode_commands(lines) if lines else ():
                    self._on_command(command)
            for errand in list(self._errands.values()):
                errand.tick()

    def tell(self, line: Line) -> None:
        """Report to the agent; called from all threads."""
        if isinstance(line, Finished | Stored | Dropped | PrepareFailed):
            errands = self._late if isinstance(line, Stored) else self._errands
            errand = errands.pop(line.token, None)
            if errand is not None:
                errand.close()
        content = encode([line])
        with self._telling:
            try:
                self._line.sendall(content)
            except OSError:
                os._exit(0)  # The agent is gone: its successor begins anew.

    def _on_command(self, command: Command) -> None:
        if isinstance(command, Drop):
            errand = self._errands.get(command.token)
            if errand is None:
                self.tell(Dropped(command.token))
            else:
                errand.drop()
        elif isinstance(command, Finish):
            self._errand(command.errand).finish(command)
        elif isinstance(command, Store):
            self._store(command)
        elif isinstance(command, Prepare):
            self._errand(command.errand).prepare()
        else:
            self._errand(command.errand).watch(command.port)

    def _errand(self, errand: Errand) -> RunningErrand:
        running = self._errands.get(errand.token)
        if running is None:
            running = RunningErrand(errand, self._settings, self.tell, means=self._means(errand))
            self._errands[errand.token] = running
        return running

    def _store(self, order: Store) -> None:
        """Begin to store what an attempt left; a repetition changes nothing."""
        token = order.errand.token
        if token not in self._late:
            late = LateErrand(order, self._settings, self.tell, means=self._means(order.errand))
            self._late[token] = late
            late.begin()

    def _means(self, errand: Errand) -> Means:
        if self._door is None:
            return OwnMeans(errand, self._settings)
        return StewardMeans(errand, self._settings, self._door)


def main(arguments: Sequence[str]) -> int:
    """Be a courier of the agent whose settings are given as JSON, as the user that is given after them, if one is."""
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = msgspec.json.decode(arguments[0], type=AgentSettings)
    user = msgspec.json.decode(arguments[1], type=Identity) if len(arguments) > 1 else None
    name = LOCK_NAME if user is None else f"{LOCK_NAME}.{user.digest}"
    lock_fd = os.open(os.path.join(settings.directory, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    door = None
    if user is not None:
        door = leave_root(user, settings.directory, settings.attempts_directory)
    fcntl.flock(lock_fd, fcntl.LOCK_EX)
    line = socket.socket(fileno=os.dup(0))
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null_fd, 0)
    try:
        Courier(settings, line, door).run()
    except ConnectionError as error:
        say(f"the courier has lost its agent: {error}")
    # Not a usual exit: it would wait for threads that a hanging store keeps.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
