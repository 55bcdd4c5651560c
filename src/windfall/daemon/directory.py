"""The data directory: who may access which part, and that only one daemon uses it, or several of one store.

Jobs run as another user (or in a sandbox that hides it) and must reach nothing here but their own working directory,
so the top can be traversed and everything else is closed.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

from windfall.agent.warden import LOCK_NAME as WARDEN_LOCK
from windfall.daemon.errors import AlreadyRunning, DaemonError

_ADDRESS = "address"
_ADDRESSES = "addresses"
_LOCK = "daemon.lock"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Where everything is kept."""

    root: Path

    @property
    def keys(self) -> Path:
        """The keys file, 0600."""
        return self.root / "keys.json"

    @property
    def logs(self) -> Path:
        """One file per attempt; jobs get theirs as an open file."""
        return self.root / "logs"

    @property
    def agent(self) -> Path:
        """The agent's socket and journal."""
        return self.root / "agent"

    @property
    def attempts(self) -> Path:
        """Private working directories."""
        return self.root / "attempts"

    @property
    def simulated_agent(self) -> Path:
        """The socket and journal of the agent that plays the simulated fleet."""
        return self.root / "simulated" / "agent"

    @property
    def simulated_attempts(self) -> Path:
        """The private working directories of its attempts."""
        return self.root / "simulated" / "attempts"

    @property
    def objects_file(self) -> Path:
        """How agents reach object storage, 0600."""
        return self.root / "objects.json"

    @property
    def secrets(self) -> Path:
        """Secrets that containers may be given, a 0600 file each."""
        return self.root / "secrets"

    @property
    def usher(self) -> Path:
        """The usher's socket, and the table of where the requests of endpoints go."""
        return self.root / "usher"

    @property
    def dead_letters(self) -> Path:
        """Failed ticks of schedules, one file for each dead-letter queue."""
        return self.root / "dead-letters"

    def prepare(self) -> None:
        """Make the directories, each with the narrowest mode that works."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o711)
            for passable in (self.attempts, self.root / "simulated", self.simulated_attempts):
                passable.mkdir(mode=0o711, exist_ok=True)
                passable.chmod(0o711)
            for closed in (self.root / "store", self.logs, self.agent, self.simulated_agent, self.secrets):
                closed.mkdir(mode=0o700, exist_ok=True)
                closed.chmod(0o700)
        except OSError as error:
            raise DaemonError(
                f"cannot use {self.root}: {error.strerror}; choose another with --data DIR"
            ) from None

    @property
    def has_agent(self) -> bool:
        """Whether an agent of this directory runs, with or without a daemon."""
        try:
            fd = os.open(self.agent / WARDEN_LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _locked(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)

    def holder(self) -> str | None:
        """The process id of the daemon that holds the directory now; None if there is none."""
        try:
            fd = os.open(self.root / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _locked(fd, fcntl.LOCK_EX) else _first_line(fd)
        finally:
            os.close(fd)

    def lock(self) -> int:
        """Hold the directory for as long as this process lives; returns the lock's file descriptor."""
        fd = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _first_line(fd)
            os.close(fd)
            raise AlreadyRunning(
                f"another Windfall daemon (pid {holder}) uses {self.root};"
                " stop it with `windfall down`, or start this one with another --data DIR"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def share(self, store: str) -> int:
        """Hold the directory together with other daemons of the same store, and with no others."""
        fd = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _locked(fd, fcntl.LOCK_EX):  # No daemon holds it, so this one names its store.
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n{store}\n".encode(), 0)
            if not _locked(fd, fcntl.LOCK_SH, wait_s=1.0) or os.pread(fd, 200, 0).decode().split()[1:] != [
                store
            ]:
                raise AlreadyRunning(
                    f"another Windfall daemon uses {self.root} with another store;"
                    " daemons share a directory if they share a PostgreSQL database: stop it with `windfall down`,"
                    " or start this one with another --data DIR"
                )
        except BaseException:
            os.close(fd)
            raise
        return fd

    def write_address(self, url: str) -> None:
        """Publish where the daemon listens (the leader, if there are several) for `windfall env` and other commands."""
        temporary = self.root / f".{_ADDRESS}.{os.getpid()}"
        temporary.write_text(url + "\n")
        temporary.rename(self.root / _ADDRESS)

    def add_address(self, daemon: str, url: str) -> int:
        """Publish a daemon's address under its name for as long as it lives; returns a file descriptor."""
        folder = self.root / _ADDRESSES
        folder.mkdir(mode=0o755, exist_ok=True)
        for file in folder.iterdir():
            if self.is_gone(file.name):
                file.unlink(missing_ok=True)
        fd = os.open(folder / daemon, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.pwrite(fd, f"{url}\n".encode(), 0)
        return fd

    def remove_address(self, daemon: str) -> None:
        """Withdraw a daemon's address."""
        (self.root / _ADDRESSES / daemon).unlink(missing_ok=True)

    def is_gone(self, daemon: str) -> bool:
        """Whether a daemon has certainly ended: its lock is free. False for one that never published an address."""
        try:
            fd = os.open(self.root / _ADDRESSES / daemon, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # Others lock it only for a check like this one, so a wrong answer is "it lives", and soon corrected.
            return os.fstat(fd).st_size > 0 and _locked(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)

    def other_addresses(self) -> list[str]:
        """The addresses of all daemons that share this directory, including the leader's."""
        try:
            return [file.read_text().strip() for file in sorted((self.root / _ADDRESSES).iterdir())]
        except OSError:
            return []

    def read_address(self) -> str | None:
        """Where the daemon listens, or last listened."""
        try:
            return (self.root / _ADDRESS).read_text().strip() or None
        except OSError:
            return None


def _first_line(fd: int) -> str:
    """The process id; daemons that share the directory write their store's name below."""
    return os.pread(fd, 32, 0).decode(errors="replace").partition("\n")[0] or "unknown"


def _locked(fd: int, kind: int, wait_s: float = 0.0) -> bool:
    """Whether the lock was acquired; a daemon that is starting holds it exclusively for a moment."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        else:
            return True
