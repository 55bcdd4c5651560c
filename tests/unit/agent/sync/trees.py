"""Directories as dictionaries, a clock that only moves when told, and a sync over both."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

from tests.unit.agent.sync.memory_objects import MemoryObjects
from windfall.agent.sync import CheckpointSync, Synced, SyncEvent
from windfall.agent.sync.clocks import Clocks
from windfall.objects.port import ObjectStore

_times = itertools.count(1_700_000_000_000_000_000, 1_000_003)


def write(directory: Path, path: str, content: bytes) -> None:
    """Write a file whose time differs from that of every other write."""
    target = directory / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    now = next(_times)
    os.utime(target, ns=(now, now))


def snapshot(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file with mode, time and content."""
    found = {}
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            entry = (status.st_mode & 0o777, status.st_mtime_ns, path.read_bytes())
            found[path.relative_to(directory).as_posix()] = entry
    return found


def contents(directory: Path) -> dict[str, bytes]:
    """Every file's content."""
    return {path: content for path, (_, _, content) in snapshot(directory).items()}


class Clock:
    """Time that stands still until somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        #: What files' own times are compared with.
        self.of_files: int | None = None

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)

    @property
    def clocks(self) -> Clocks:
        return Clocks(
            lambda: self.now,
            lambda: int(self.now * 1000) + 1_700_000_000_000,
            self.sleep,
            lambda _look: self.of_files,
        )


class Harness:
    """A directory, its sync, and what that says."""

    def __init__(self, directory: Path, objects: ObjectStore, fence: int = 1, **options: object) -> None:
        self.directory = directory
        self.objects = objects
        self.clock = Clock()
        self.events: list[SyncEvent] = []
        self.options = {"chunk_bytes": 8, "threads": 2, "writers": lambda _files: {}, **options}
        self.sync = self.another(fence)

    def another(self, fence: int, directory: Path | None = None) -> CheckpointSync:
        """A sync of a process to come, or of another attempt."""
        place = str(directory or self.directory)
        options = {"say": self.events.append, "clocks": self.clock.clocks, **self.options}
        return CheckpointSync(self.objects, place, fence, **options)

    def write(self, path: str, content: bytes) -> None:
        write(self.directory, path, content)

    def pass_once(self, after_s: float = 1.0) -> Synced:
        self.clock.now += after_s
        return self.sync.pass_once()

    def settle(self) -> Synced:
        """Two looks: the second finds everything at rest."""
        self.pass_once()
        return self.pass_once()

    def flush(self) -> Synced:
        return self.sync.flush(self.clock.now + 60)

    def restored(self, fence: int = 1_000_000) -> dict[str, bytes]:
        """What another attempt would begin with."""
        elsewhere = self.directory.parent / "elsewhere" / "checkpoints"
        # In a copy of the store, so that looking does not take the prefix away from the attempt that is looked at.
        objects = self.objects.copied() if isinstance(self.objects, MemoryObjects) else self.objects
        options = {"say": self.events.append, "clocks": self.clock.clocks, **self.options}
        CheckpointSync(objects, str(elsewhere), fence, **options).restore()
        found = contents(elsewhere)
        shutil.rmtree(elsewhere.parent)
        return found

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]
