"""The data directory: who may see what of it, and that only one daemon uses it.

Jobs run as another user (or hidden from it by a sandbox) and must reach nothing here but their own working
directory, so the top is passable and everything else is closed.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from windfall.daemon.errors import AlreadyRunning, DaemonError

_ADDRESS = "address"


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

    def lock(self) -> int:
        """Hold the directory for as long as this process lives; the answer is the lock's file descriptor."""
        fd = os.open(self.root / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyRunning(
                f"another Windfall daemon (pid {holder}) uses {self.root};"
                " stop it with `windfall down`, or start this one with another --data DIR"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def write_address(self, url: str) -> None:
        """Tell `windfall env` and the other commands where the daemon listens."""
        temporary = self.root / f".{_ADDRESS}"
        temporary.write_text(url + "\n")
        temporary.rename(self.root / _ADDRESS)

    def read_address(self) -> str | None:
        """Where the daemon listens, or last listened."""
        try:
            return (self.root / _ADDRESS).read_text().strip() or None
        except OSError:
            return None
