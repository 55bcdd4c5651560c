"""One page of one stream, read forwards or backwards: what GetLogEvents answers.

Decides what fits into a page and where the neighbouring pages begin. A page is bounded by events, by bytes
and by the work that finding it may cost; a page cut short by the last of these may be empty although more
follows, which its tokens say by having moved. Must not know the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from windfall.aws_api.logs.attempt_log import AttemptLog
from windfall.aws_api.logs.lines import LinePiece

PAGE_EVENTS = 10_000
PAGE_BYTES = 1024 * 1024
#: What CloudWatch adds for each event when it counts bytes.
EVENT_OVERHEAD_BYTES = 26


class ReadBudget:
    """How much one request may read before it must answer with what it has."""

    def __init__(
        self,
        scan_bytes: int = 16 * 1024 * 1024,
        scan_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_left = scan_bytes
        self._clock = clock
        self._deadline = clock() + scan_s

    def spend(self, count: int) -> bool:
        """Note that `count` bytes were looked at; return whether the request has had its share."""
        self._bytes_left -= count
        return self._bytes_left <= 0 or self._clock() >= self._deadline


@dataclass(frozen=True, slots=True)
class Window:
    """What a caller wants of a stream: from `start` (inclusive) to `end` (exclusive), and how many events."""

    start: int | None = None
    end: int | None = None
    limit: int = PAGE_EVENTS


@dataclass(slots=True)
class Page:
    """Events in the order of the log, and the places before the first and behind the last of them."""

    top: int
    bottom: int
    #: (time, message)
    events: list[tuple[int, str]] = field(default_factory=list)
    size: int = 0

    def takes(self, piece: LinePiece, at: int, limit: int) -> bool:
        """Add an event unless the page is full; a page that is empty takes any."""
        size = self.size + len(piece.content) + EVENT_OVERHEAD_BYTES
        if self.events and (len(self.events) >= limit or size > PAGE_BYTES):
            return False
        self.events.append((at, piece.content.decode("utf-8", "replace")))
        self.size = size
        return True


def page_after(log: AttemptLog, position: int, window: Window, budget: ReadBudget) -> Page:
    """Read the page that begins at `position`. With nothing to show, its places are where they were."""
    page = Page(position, position)
    begin = position if window.start is None else max(position, log.position_at(window.start))
    for piece in log.lines.forward(begin):
        at = log.at(piece.end)
        if window.end is not None and at >= window.end:
            break
        spent = budget.spend(piece.end - piece.start)
        if piece.content and (window.start is None or at >= window.start):
            if not page.events:
                page.top = piece.start
            if not page.takes(piece, at, window.limit):
                break
            page.bottom = piece.end
        if spent:
            page.bottom = piece.end
            break
    return page


def page_before(log: AttemptLog, position: int | None, window: Window, budget: ReadBudget) -> Page:
    """Read the page that ends at `position`, None being the end of the window."""
    end = log.bottom() if window.end is None else log.position_at(window.end)
    position = end if position is None else position
    page = Page(position, position)
    for piece in log.lines.backward(min(position, end)):
        at = log.at(piece.end)
        if window.start is not None and at < window.start:
            break
        spent = budget.spend(piece.end - piece.start)
        if piece.content:
            if not page.takes(piece, at, window.limit):
                break
            page.top = piece.start
        if spent:
            page.top = piece.start
            break
    page.events.reverse()
    return page
