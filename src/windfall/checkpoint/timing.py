"""How long a loop waits for its data and how long it works on it: a wrapper around any loader.

    from windfall.checkpoint import StepClock

    for batch in StepClock().batches(loader):
        train(batch)

Two readings of the clock a step; what they add up to is written to WINDFALL_PROGRESS_FILE once a second by a thread of
its own, where that variable is set, and nowhere else. Waiting is the time in the loader's `next`, which is exact also
when the GPU works on in the background. Must not know what a batch is.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, Generic, TypeVar

from windfall.checkpoint import progress

Batch = TypeVar("Batch")
FILE_VARIABLE = "WINDFALL_PROGRESS_FILE"
_TELL_EVERY_S = 1.0


class StepClock:
    """Adds up data wait and step time over all loaders that it wraps."""

    def __init__(self, progress_file: str | os.PathLike[str] | None = None) -> None:
        #: Seconds in all.
        self.data_wait_s = 0.0
        self.step_s = 0.0
        self.steps = 0
        self.first_step_at: int | None = None
        named = progress_file if progress_file is not None else os.environ.get(FILE_VARIABLE)
        self._file = Path(named) if named else None
        self._owner = os.getpid()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def batches(self, loader: Iterable[Batch]) -> TimedBatches[Batch]:
        """The loader's batches, timed; it still has its length, for progress bars."""
        return TimedBatches(loader, self)

    def tell(self) -> None:
        """Writes the file now."""
        if self._file is not None and os.getpid() == self._owner:
            current = progress.Progress(
                at=_now_ms(),
                step=self.steps,
                first_step_at=self.first_step_at,
                data_wait_s=self.data_wait_s,
                step_s=self.step_s,
            )
            progress.write(self._file, current)

    def close(self) -> None:
        """Writes the file for the last time, and ends the thread that does."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_TELL_EVERY_S)
            self._thread = None
            atexit.unregister(self.close)
            self.tell()

    def begin(self) -> None:
        """The first step has begun: from now on there is progress to report."""
        if self.first_step_at is None:
            self.first_step_at = _now_ms()
        if self._file is not None and self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(
                target=self._tell_regularly, name="windfall-step-clock", daemon=True
            )
            self._thread.start()
            atexit.register(self.close)

    def _tell_regularly(self) -> None:
        while not self._ended.wait(_TELL_EVERY_S):
            self.tell()


class SilentClock(StepClock):
    """A clock whose owner reports it: a run has a progress file and a thread already."""

    def __init__(self) -> None:
        super().__init__()
        self._file = None

    @property
    def used(self) -> bool:
        """Whether any loader was wrapped."""
        return self.first_step_at is not None


class TimedBatches(Generic[Batch]):
    """An iterable that is as long as the loader it wraps."""

    def __init__(self, loader: Iterable[Batch], clock: StepClock) -> None:
        self._loader = loader
        self._clock = clock

    def __iter__(self) -> Iterator[Batch]:
        clock, now = self._clock, time.perf_counter
        began = now()
        source = iter(self._loader)
        clock.begin()
        for batch in source:
            got = now()
            clock.data_wait_s += got - began
            yield batch
            began = now()
            clock.step_s += began - got
            clock.steps += 1

    def __len__(self) -> int:
        if isinstance(self._loader, Sized):
            return len(self._loader)
        raise TypeError(f"{type(self._loader).__name__} has no length")

    def __getattr__(self, name: str) -> Any:
        """Whatever else the loader has: its dataset, its sampler, set_epoch."""
        return getattr(self._loader, name)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
