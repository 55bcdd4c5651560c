"""The data directory: who may see what of it, and that only one daemon uses it, or several of one store.

Jobs run as another user (or hidden from it by a sandbox) and must reach nothing here but their own working
directory, so the top is passable and everything else is closed.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

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
    def dead_letters(self) -> Path:
        """Ticks of schedules that could not be done, a file for each queue that they were meant for."""
        return self.root / "dead-letters"

    def prepare(self) -> None:
        """Make the directories, each as closed as it can be."""
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

    def holder(self) -> str | None:
        """The process id of a daemon that holds the directory now; None where there is none."""
        try:
            fd = os.open(self.root / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _locked(fd, fcntl.LOCK_EX) else _first_line(fd)
        finally:
            os.close(fd)

    def lock(self) -> int:
        """Hold the directory for as long as this process lives; the answer is the lock's file descriptor."""
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
        """Hold the directory together with other daemons of the same store, and with nobody else."""
        fd = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _locked(fd, fcntl.LOCK_EX):  # Nobody is here, so it is ours to say whose this is.
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
        """Tell `windfall env` and the other commands where the daemon listens, the leader if there are several."""
        temporary = self.root / f".{_ADDRESS}.{os.getpid()}"
        temporary.write_text(url + "\n")
        temporary.rename(self.root / _ADDRESS)

    def add_address(self, daemon: str, url: str) -> int:
        """Tell of one more daemon, by its name, for as long as it lives; the answer is a file descriptor."""
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
        """Tell that a daemon goes."""
        (self.root / _ADDRESSES / daemon).unlink(missing_ok=True)

    def is_gone(self, daemon: str) -> bool:
        """Whether a daemon has surely ended: it held the lock of its file. One that never was here cannot be told."""
        try:
            fd = os.open(self.root / _ADDRESSES / daemon, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # Nobody else locks it for longer than a look, so a wrong answer is "it lives", and soon corrected.
            return os.fstat(fd).st_size > 0 and _locked(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)

    def other_addresses(self) -> list[str]:
        """Where daemons listen that share this directory, the leader among them."""
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
    """Whether it could be locked; one that is just being started holds it alone for a moment."""
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
