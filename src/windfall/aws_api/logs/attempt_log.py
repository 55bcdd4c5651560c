"""The log of one attempt as events with times, up to where it may be shown.

Decides two things. What is shown: while an attempt runs, complete lines only, and only those that have
their final time, because followers recognise an event by its id and its time together and would show it
twice if the time moved. And which time an event has: see `AttemptLog.at`. Must not know tokens, pages or
the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windfall.aws_api.logs.lines import LinePiece, LogLines
from windfall.control.ports import LogFile

#: How long bytes of a running attempt may wait for the record of their time before the log's last write serves.
#: Records come every 500 ms; it takes longer only when the agent is gone.
SETTLE_MS = 3_000


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Whether an attempt has ended, and when, if that is still known."""

    ended: bool
    at: int | None = None


class AttemptLog:
    """A log as it was when opened."""

    def __init__(self, file: LogFile, ending: LogEnd, now: int, *, chunk_bytes: int = 256 * 1024) -> None:
        """`ending` must have been learned before the file was opened: then all that it covers is in it."""
        self._file = file
        self._rest_at = max(file.written_at, file.timed_at)
        settled = ending.ended or now - file.written_at >= SETTLE_MS
        end = file.size if settled else min(file.size, file.timed_size)
        self.lines = LogLines(file.read, end, final=ending.ended, chunk_bytes=chunk_bytes, gap=file.gap)
        #: A last line without newline becomes an event only when the attempt ends, so that is its time.
        self._unterminated = ending.ended and end > 0 and self.lines.read(end - 1, 1) != b"\n"
        self._last_at = max(self._rest_at, ending.at or 0) if self._unterminated else self._rest_at

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return self.lines.end == 0

    @property
    def last_at(self) -> int:
        """The time of the last event, blank lines at the end counted as one."""
        at = self._file.at(self.lines.end)
        return self._last_at if self._unterminated or at is None else at

    def at(self, end: int) -> int:
        """Return the time of the event that ends at `end`.

        It is the first record's that reaches there. What lies beyond the last record has the time of the
        last write, never earlier than that record. A last line without newline has the time of the attempt's end.
        """
        if self._unterminated and end >= self.lines.end:
            return self._last_at
        at = self._file.at(end)
        return self._rest_at if at is None else at

    def position_at(self, at: int) -> int:
        """Return where the first event begins whose time is `at` or later; the bottom if there is none."""
        if self._rest_at < at:
            if self._unterminated and self._last_at >= at:
                return self.lines.first_beyond(self.lines.end - 1)
            return self.bottom()
        covered = self._file.size_before(at)
        return self.lines.first_beyond(min(covered, self.lines.end - 1) if self._unterminated else covered)

    def bottom(self) -> int:
        """Return where the next event will begin."""
        return self.lines.first_beyond(self.lines.end)

    def first_at(self) -> int | None:
        """Return the time of the first event, if one is near the top."""
        for piece in self._top():
            if piece.content:
                return self.at(piece.end)
        return None

    def _top(self) -> Iterator[LinePiece]:
        for count, piece in enumerate(self.lines.forward(0)):
            if count == 1_000:
                return
            yield piece
