"""`python -m windfall.agent.courier SETTINGS`: reads orders from its standard input, a socket, and works until
that ends.

Decides which errand an order is for. One courier at a time for an agent's directory: a lock makes a new one
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
from windfall.agent.courier.link_local import LinkLocal, serve_link_local
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
    decode_commands,
    encode,
)
from windfall.agent.messages import LineReader
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say

LOCK_NAME = "courier.lock"
_CHUNK_BYTES = 1 << 20
_TICK_S = 1.0


class Courier:
    """All errands of one agent."""

    def __init__(self, settings: AgentSettings, line: socket.socket) -> None:
        self._settings = settings
        self._line = line
        self._telling = threading.Lock()
        self._errands: dict[str, RunningErrand] = {}
        self._link_local: LinkLocal | None = None
        if settings.link_local_metadata:
            self._link_local = serve_link_local(
                settings.agent_id,
                lambda token: self._errands[token].service if token in self._errands else None,
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
        if self._link_local is not None:
            self._link_local.close()

    def tell(self, line: Line) -> None:
        """Report to the agent; called from all threads."""
        if isinstance(line, Finished | Dropped | PrepareFailed):
            self._errands.pop(line.token, None)
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
        elif isinstance(command, Prepare):
            self._errand(command.errand).prepare()
        else:
            self._errand(command.errand).watch(command.port)

    def _errand(self, errand: Errand) -> RunningErrand:
        running = self._errands.get(errand.token)
        if running is None:
            running = RunningErrand(errand, self._settings, self.tell)
            self._errands[errand.token] = running
        return running


def main(arguments: Sequence[str]) -> int:
    """Be the courier of the agent whose settings are given as JSON."""
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = msgspec.json.decode(arguments[0], type=AgentSettings)
    lock_fd = os.open(
        os.path.join(settings.directory, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    fcntl.flock(lock_fd, fcntl.LOCK_EX)
    line = socket.socket(fileno=os.dup(0))
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null_fd, 0)
    try:
        Courier(settings, line).run()
    except ConnectionError as error:
        say(f"the courier has lost its agent: {error}")
    # Not a usual exit: it would wait for threads that a hanging store keeps.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
