"""The agent's door: the socket at which daemons and keepers knock.

Decides what is done when nobody can be let in: a pause, because who knocks is still there and the loop would turn as
fast as it can. Must not know who they are or what they say.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

from windfall.agent.courier_link import OnReadable
from windfall.agent.errors import AgentError
from windfall.agent.speech import say

_AGAIN_S = 1.0


class Listener:
    """A unix socket; whoever comes is handed to `on_visitor`."""

    def __init__(
        self, path: str, on_readable: OnReadable, on_visitor: Callable[[socket.socket], None]
    ) -> None:
        self._path = path
        self._on_readable = on_readable
        self._on_visitor = on_visitor
        #: When the next one is let in, if that had to be put off, on the monotonic clock.
        self.next_due: float | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if os.path.lexists(path):
                os.unlink(path)  # The lock that this process inherited says that no other agent serves it.
            self._socket.bind(path)
        except OSError as error:
            raise AgentError(
                f"cannot listen at {path}: {error}; move away what is there, or make room"
            ) from None
        self._socket.listen(128)
        self._socket.setblocking(False)  # noqa: FBT003 - it takes no keyword
        on_readable(self._socket.fileno(), self._accept)

    def tick(self) -> None:
        """Let people in again after a pause."""
        if self.next_due is not None and time.monotonic() >= self.next_due:
            self.next_due = None
            self._on_readable(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Take the name away; somebody may have done so."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _accept(self) -> None:
        try:
            visitor, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            say(f"nobody is let in for a moment: {error}")
            self._on_readable(self._socket.fileno(), None)
            self.next_due = time.monotonic() + _AGAIN_S
            return
        self._on_visitor(visitor)
