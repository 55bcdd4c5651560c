"""The agent's door: the socket at which daemons and keepers knock.

Decides what is done when nobody can be let in: a pause, because who knocks is still there and the loop would turn as
fast as it can. Decides too when the door is made anew: a socket whose name somebody has removed is one that nobody
finds. Must not know who they are or what they say.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

from windfall.agent.companions import OnReadable
from windfall.agent.errors import AgentError
from windfall.agent.socket_paths import short_path
from windfall.agent.speech import say

_AGAIN_S = 1.0
#: How often it is looked whether the name is still there.
_LOOK_EVERY_S = 2.0


class Listener:
    """A unix socket; each new connection goes to `on_visitor`."""

    def __init__(
        self,
        path: str,
        on_readable: OnReadable,
        on_visitor: Callable[[socket.socket], None],
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self._path = path
        self._on_readable = on_readable
        self._on_visitor = on_visitor
        self._look_every_s = look_every_s
        self._look_at = time.monotonic() + look_every_s
        #: When the next one is let in, if that had to be put off, on the monotonic clock.
        self._let_in_at: float | None = None
        #: Said once for as long as it lasts.
        self._complained = False
        try:
            self._socket, self._number = self._open()
        except OSError as error:
            raise AgentError(
                f"cannot listen at {path}: {error}; move away what is there, or make room"
            ) from None
        on_readable(self._socket.fileno(), self._accept)

    @property
    def next_due(self) -> float:
        """When `tick` has something to do, on the monotonic clock."""
        return self._look_at if self._let_in_at is None else min(self._look_at, self._let_in_at)

    def tick(self) -> None:
        """Let people in again after a pause; make the socket anew if its name is gone."""
        now = time.monotonic()
        if self._let_in_at is not None and now >= self._let_in_at:
            self._let_in_at = None
            self._on_readable(self._socket.fileno(), self._accept)
        if now >= self._look_at:
            self._look_at = now + self._look_every_s
            if _number(self._path) != self._number:
                self._open_again()

    def close(self) -> None:
        """Take the name away; somebody may have done so."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _open(self) -> tuple[socket.socket, tuple[int, int] | None]:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if os.path.lexists(self._path):
                os.unlink(
                    self._path
                )  # The lock that this process inherited says that no other agent serves it.
            with short_path(self._path) as path:
                listening.bind(path)
            listening.listen(128)
            listening.setblocking(False)  # noqa: FBT003 - it takes no keyword
        except BaseException:
            listening.close()
            raise
        return listening, _number(self._path)

    def _open_again(self) -> None:
        try:
            fresh, number = self._open()
        except OSError as error:
            if not self._complained:
                say(f"{self._path} was removed, and this agent cannot be reached: {error}; trying again")
            self._complained = True
            return
        self._complained = False
        say(f"{self._path} was removed; listening there again")
        if self._let_in_at is None:
            self._on_readable(self._socket.fileno(), None)
        self._let_in_at = None
        self._socket.close()
        self._socket, self._number = fresh, number
        self._on_readable(fresh.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            visitor, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            say(f"no connections are accepted for a moment: {error}")
            self._on_readable(self._socket.fileno(), None)
            self._let_in_at = time.monotonic() + _AGAIN_S
            return
        self._on_visitor(visitor)


def _number(path: str) -> tuple[int, int] | None:
    """What tells the file from all others of this machine; None where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
