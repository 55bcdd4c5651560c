"""What the checks may ask of a host: files, programs, room, limits. The seam where tests put in other hosts."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from typing import Protocol

import msgspec

_TIMEOUT_S = 15.0
_SYNCS = 16


class Ran(msgspec.Struct, frozen=True):
    """What a program answered."""

    code: int
    output: str


class FileSystem(msgspec.Struct, frozen=True):
    """How much room is left where a path lies."""

    free_bytes: int
    total_bytes: int
    free_inodes: int
    total_inodes: int


class Host(Protocol):
    """One machine."""

    def read(self, path: str) -> str | None:
        """A small file's content; None when it cannot be read."""

    def names(self, directory: str) -> list[str]:
        """What lies in a directory; empty when there is none."""

    def run(self, *command: str) -> Ran | None:
        """What a program says, both streams together; None when there is no such program."""

    def file_system(self, path: str) -> FileSystem | None:
        """The room at a path, or at the nearest directory above it that exists."""

    def sync_ms(self, directory: str) -> float | None:
        """How long a small durable write takes, typically; None where nothing can be written."""

    @property
    def is_root(self) -> bool:
        """Whether we have all rights."""

    @property
    def open_files(self) -> tuple[int, int]:
        """How many files a process may have open: now, and at most."""


class ThisHost:
    """The machine that we run on."""

    def read(self, path: str) -> str | None:
        """A small file's content; None when it cannot be read."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read(1 << 16)
        except OSError:
            return None

    def names(self, directory: str) -> list[str]:
        """What lies in a directory; empty when there is none."""
        try:
            return sorted(os.listdir(directory))
        except OSError:
            return []

    def run(self, *command: str) -> Ran | None:
        """What a program says, both streams together; None when there is no such program."""
        try:
            ran = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(124, f"no answer within {_TIMEOUT_S:g} s")
        except OSError:
            return None
        return Ran(ran.returncode, ran.stdout.decode(errors="replace").strip())

    def file_system(self, path: str) -> FileSystem | None:
        """The room at a path, or at the nearest directory above it that exists."""
        while path != "/" and not os.path.exists(path):
            path = os.path.dirname(path) or "/"
        try:
            seen = os.statvfs(path)
        except OSError:
            return None
        return FileSystem(
            seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize, seen.f_favail, seen.f_files
        )

    def sync_ms(self, directory: str) -> float | None:
        """How long a small durable write takes, typically; None where nothing can be written."""
        while directory != "/" and not os.path.isdir(directory):
            directory = os.path.dirname(directory) or "/"
        path = os.path.join(directory, f".windfall-doctor-{os.getpid()}")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            taken = []
            for _ in range(_SYNCS):
                began = time.perf_counter()
                os.write(fd, b"\0" * 512)
                os.fdatasync(fd)
                taken.append((time.perf_counter() - began) * 1000)
            return sorted(taken)[_SYNCS // 2]
        except OSError:
            return None
        finally:
            os.close(fd)
            os.unlink(path)

    @property
    def is_root(self) -> bool:
        """Whether we have all rights."""
        return os.geteuid() == 0

    @property
    def open_files(self) -> tuple[int, int]:
        """How many files a process may have open: now, and at most."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)
