"""The agent's own directory, made again when somebody has removed it: attempts that run are not given up for that.

It also has the machine's name: what tells it from all others, whatever they are called and wherever this directory is.

The lock that says who serves the directory went with it, so a new one is taken; where another agent has it by then,
this one ends. Decides nothing about what is kept there: the journal, the socket and the courier see to theirs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import uuid
from contextlib import suppress

from windfall.agent.errors import DirectoryTaken
from windfall.agent.launching import LOG_NAME
from windfall.agent.speech import say
from windfall.agent.warden import LOCK_NAME

#: The machine of agents that had no name for it; what they left goes on under it.
BEFORE_NAMES = "this-host"
_ID_NAME = "machine-id"
_ID = re.compile(r"[0-9a-z-]{1,64}", re.ASCII)
_ID_BYTES = 80


class OwnDirectory:
    """The directory that an agent was started with."""

    def __init__(self, path: str, journal_name: str) -> None:
        self._path = path
        #: The machine's name, the same after every restart.
        self.machine_id = _kept_id(path, has_served=os.path.exists(os.path.join(path, journal_name)))
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
        with suppress(OSError):
            _keep_id(self._path, self.machine_id)
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


def _kept_id(directory: str, *, has_served: bool) -> str:
    """The machine's name as an earlier agent of this directory kept it, or a new one."""
    try:
        with open(os.path.join(directory, _ID_NAME), encoding="ascii") as file:
            if _ID.fullmatch(kept := file.read(_ID_BYTES).strip()):
                return kept
    except (OSError, UnicodeDecodeError):
        pass  # Named anew below.
    name = BEFORE_NAMES if has_served else _new_id(directory)
    _keep_id(directory, name)
    return name


def _new_id(directory: str) -> str:
    """A name that comes out the same if this directory is lost, and different on every other machine."""
    try:
        with open("/etc/machine-id", "rb") as file:
            host = file.read(_ID_BYTES).strip()
    except OSError:
        host = b""
    if not host:
        return uuid.uuid4().hex
    # The name too: machines that were copied from one image may have the same id.
    parts = (host, os.fsencode(os.path.abspath(directory)), os.fsencode(os.uname().nodename))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _keep_id(directory: str, name: str) -> None:
    fresh = os.path.join(directory, f"{_ID_NAME}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, f"{name}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(fresh, os.path.join(directory, _ID_NAME))


def _number(path: str) -> tuple[int, int] | None:
    """What tells the directory from all others of this machine; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
