"""Waits for room on the disk: what must be written is tried again until somebody has made room, and told once.

Must not know what is written.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from windfall.agent.speech import say

T = TypeVar("T")

#: What goes away when somebody makes room.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LOOK_EVERY_S = 0.25


class Room:
    """The room for one file."""

    def __init__(self, path: str, pause: Callable[[float], None]) -> None:
        self._path = path
        self._pause = pause

    def wait_for(self, act: Callable[[], T]) -> T:
        """Do it as soon as there is room; any other fault is raised."""
        waited = False
        while True:
            try:
                done = act()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if not waited:
                    waited = True
                    say(
                        f"{self._path} cannot be written: {error.strerror}; everything waits until there is room"
                    )
                self._pause(_LOOK_EVERY_S)
            else:
                if waited:
                    say(f"{self._path} can be written again")
                return done
