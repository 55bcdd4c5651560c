"""Recorded spot markets: how many instances were available at each moment, and what one cost.

Decides what a trace file must look like and what it says about a moment. A trace begins again when it is over. Must not
know whose instances are taken away by it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Annotated

import msgspec

from windfall.engines.simulated.errors import BadTrace

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class AvailabilityTrace:
    """One value for each step of `gap_s` seconds."""

    gap_s: float
    #: How many instances were available.
    counts: tuple[int, ...]
    #: US dollars an hour; empty when the trace does not say.
    prices: tuple[float, ...] = ()

    def step(self, elapsed_s: float) -> int:
        """The step that holds at a moment of the trace's own time."""
        return int(max(0.0, elapsed_s) // self.gap_s) % len(self.counts)

    def count(self, elapsed_s: float) -> int:
        """How many instances are available."""
        return self.counts[self.step(elapsed_s)]

    def price(self, elapsed_s: float) -> float | None:
        """What an hour costs, if the trace says so."""
        return self.prices[self.step(elapsed_s)] if self.prices else None

    def until_next_tick_s(self, elapsed_s: float) -> float:
        """How long the present step still holds."""
        return self.gap_s - max(0.0, elapsed_s) % self.gap_s

    def calm_s(self, elapsed_s: float) -> float:
        """How long ago the count last fell, at most one whole trace: pools that have been quiet tend to stay so."""
        now = self.step(elapsed_s)
        for back in range(len(self.counts)):
            index = (now - back) % len(self.counts)
            if self.counts[index] < self.counts[index - 1] or self.counts[index] == 0:
                return back * self.gap_s
        return len(self.counts) * self.gap_s


class _Metadata(msgspec.Struct):
    gap_seconds: Annotated[float, msgspec.Meta(gt=0)]


class _File(msgspec.Struct):
    metadata: _Metadata
    data: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)]
    prices: list[Annotated[float, msgspec.Meta(ge=0)]] = []


def parse_trace(content: bytes, name: str) -> AvailabilityTrace:
    """Read `{"metadata": {"gap_seconds": 600}, "data": [16, 3, ...]}`, with `prices` of the same length if wanted."""
    try:
        file = msgspec.json.decode(content, type=_File, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # The decoder's words name the place, never the content.
        raise BadTrace(
            f"windfall:trace {name} is not a trace ({error}); it must be JSON with metadata.gap_seconds and data,"
            " one count of instances for each step"
        ) from None
    if file.prices and len(file.prices) != len(file.data):
        raise BadTrace(
            f"windfall:trace {name} has {len(file.prices)} prices for {len(file.data)} ticks; give one for each"
        )
    return AvailabilityTrace(file.metadata.gap_seconds, tuple(file.data), tuple(file.prices))


def read_trace(path: str) -> AvailabilityTrace:
    """Read a trace from a file; raises BadTrace."""
    try:
        # A FIFO in its place must not hold up the daemon.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = _read_whole(fd, path)
        finally:
            os.close(fd)
    except OSError as error:
        raise BadTrace(
            f"windfall:trace {path} cannot be read by the daemon: {error.strerror}; the path is one of its host"
        ) from None
    return parse_trace(content, path)


def _read_whole(fd: int, path: str) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise BadTrace(f"windfall:trace {path} is not a file")
    if status.st_size > _MOST_BYTES:
        raise BadTrace(f"windfall:trace {path} is larger than {_MOST_BYTES >> 20} MiB; use a part of it")
    with open(fd, "rb", closefd=False) as file:
        return file.read(_MOST_BYTES)
