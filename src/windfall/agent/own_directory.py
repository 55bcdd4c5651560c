"""The agent's own directory, made again when somebody has removed it: attempts that run are not given up for that.

The lock that says who serves the directory went with it, so a new one is taken; where another agent has it by then,
this one ends. Decides nothing about what is kept there: the journal, the socket and the courier see to theirs.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from windfall.agent.errors import DirectoryTaken
from windfall.agent.launching import LOG_NAME
from windfall.agent.speech import say
from windfall.agent.warden import LOCK_NAME


class OwnDirectory:
    """The directory that an agent was started with."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = _number(path)
        #: Held for as long as this process lives, once the warden's is gone.
        self._lock_fd = -1

    def look(self) -> None:
        """Make the directory again if it is gone; raises DirectoryTaken if it is another agent's by now."""
        if _number(self._path) == self._number:
            return
        try:
            with suppress(FileExistsError):
                os.mkdir(self._path, 0o700)
            lock_fd = os.open(
                os.path.join(self._path, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError:
            return  # What it was in is gone too: nobody wants it any more.
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock_fd)
            raise DirectoryTaken(
                f"{self._path} was removed, and another agent serves it now; this one ends"
            ) from None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd, self._number = lock_fd, _number(self._path)
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{os.getppid()}\n".encode(), 0)
        self._find_log_again()
        say(f"{self._path} was removed; it was made again, and attempts go on")

    def _find_log_again(self) -> None:
        """Write to the log at its name, if the one that is open was removed too."""
        if os.fstat(2).st_nlink > 0:
            return
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(os.path.join(self._path, LOG_NAME), flags, 0o600)
            for number in (1, 2):
                os.dup2(fd, number)
            os.close(fd)


def _number(path: str) -> tuple[int, int] | None:
    """What tells the directory from all others of this machine; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
