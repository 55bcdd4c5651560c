"""Where events are delivered, and the simplest destination: a file that grows by whole lines. webhook.py has the other.

A sink takes a page of events and answers which of them were certainly delivered. Must not know what events say, how
often one is tried, or where they come from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_TAIL = 65_536


@dataclass(frozen=True, slots=True)
class Event:
    """One event, ready to be sent."""

    id: str
    #: Events of one subject are sent in order.
    subject: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of delivering a page."""

    delivered: list[str] = field(default_factory=list)
    #: Why not all of it was delivered, for the log.
    trouble: str | None = None


class Sink(Protocol):
    """A destination of events."""

    def deliver(self, events: Sequence[Event]) -> Outcome:
        """Deliver these in order; blocks."""

    def close(self) -> None:
        """Stop at once, and abort what is under way; may be called from another thread."""


class EventFile:
    """Appends a line for each event, which is on disk before it counts as delivered."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def deliver(self, events: Sequence[Event]) -> Outcome:
        """Append all of them, or visibly none."""
        try:
            # Opened again for each page, so that the file can be rotated.
            opened = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            return Outcome(trouble=f"cannot open {self._path}: {error.strerror}")
        try:
            about = os.fstat(opened)
            on_disk = stat.S_ISREG(about.st_mode)  # A pipe or a terminal has nothing to make durable.
            if on_disk:
                _cut_torn_line(opened, about.st_size)
            lines = b"".join(event.body + b"\n" for event in events)
            while lines:
                lines = lines[os.write(opened, lines) :]
            if on_disk:
                os.fsync(opened)
            if on_disk and not about.st_size:
                _make_name_durable(self._path)
        except OSError as error:
            return Outcome(trouble=f"cannot write to {self._path}: {error.strerror}")
        finally:
            os.close(opened)
        return Outcome([event.id for event in events])

    def close(self) -> None:
        """Nothing is kept open."""


def _make_name_durable(path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _cut_torn_line(opened: int, size: int) -> None:
    """Remove a partial line that a crash or a full disk left; its event is written again."""
    end = size
    while end > 0:
        begin = max(0, end - _TAIL)
        at = os.pread(opened, end - begin, begin).rfind(b"\n")
        if at >= 0:
            end = begin + at + 1
            break
        end = begin
    if end < size:
        os.ftruncate(opened, end)
