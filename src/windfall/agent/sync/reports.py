"""What syncing tells its caller: answers of calls, and events as they happen.

Decides the words. Must not know how anything is moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from windfall.jobs.staging import Mark


class Happening(StrEnum):
    """Kinds of events."""

    #: A checkpoint is in the store, whole.
    COMMITTED = "committed"
    #: The directory holds what the store had.
    RESTORED = "restored"
    #: A committed checkpoint cannot be used, and the one before it is tried.
    PASSED_OVER = "passed-over"
    #: A file is not synced, or not as it is now; told once.
    LEFT_OUT = "left-out"
    #: The store cannot be used at the moment; told once until it can.
    FAILING = "failing"
    RECOVERED = "recovered"
    #: The store is further behind than it should be.
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """Something that a person may want to know."""

    kind: Happening
    text: str
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """What is in the directory before the process starts."""

    #: None where the job begins with nothing.
    mark: Mark | None
    files: int
    bytes: int
    #: Checkpoints that could not be used, newest first, each with the reason.
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """Where the store stands after a pass."""

    #: The newest committed checkpoint.
    mark: Mark | None
    #: Put into the store by this call, pieces that were there already not counted.
    uploaded_bytes: int
    #: Files that differ from the newest committed checkpoint.
    pending_files: int
    #: Seconds since the oldest change that is not committed; 0 when all is.
    lag_s: float
    #: What is wrong, in a sentence, or None.
    alarm: str | None = None
    #: Whether all that a flush may store of the directory is in the store.
    is_whole: bool = False


Say = Callable[[SyncEvent], None]
#: Called at each boundary between stages with its name: what a test kills at.
Stage = Callable[[str], None]


def no_stage(_name: str) -> None:
    """Nobody listens."""
