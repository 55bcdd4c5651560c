"""How bytes of a log become events: one per line, and several for a line that is too long for one.

Decides where events begin and end, so that every reader finds the same ones wherever it starts: a line of
at most 256 KiB is one event; a longer one is cut at every multiple of 256 KiB *of the file*, which a reader
that comes from behind can compute without looking for the line's beginning. Reads bounded pieces by offset. Must not
know times, streams or tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

LINE_LIMIT_BYTES = 256 * 1024
#: A character that a cut goes through belongs to the piece in which it begins; it has at most 3 more bytes.
_SPILL_BYTES = 3
_BACKWARD_BYTES = 64 * 1024
_NEAR_BYTES = 4 * 1024
#: A log has one gap, unless the job made others itself.
_GAPS_MAX = 1_000
_MANY_NEWLINES = b"\n" * 1024


class LinePiece(NamedTuple):
    """A line or a part of one; blank lines have no content. A tuple, because a page makes thousands."""

    start: int
    content: bytes
    #: Offset behind it, its newline included.
    end: int


class LogLines:
    """The lines of one log up to `end`; when it is `final`, an unterminated rest is a line too.

    `read` takes an offset and a length, and returns fewer bytes where the log ends. `gap` finds the first part at or
    behind an offset that was not kept: `read` has newlines there, and lines go on behind it.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        end: int,
        *,
        final: bool,
        chunk_bytes: int = 256 * 1024,
        line_limit_bytes: int = LINE_LIMIT_BYTES,
        gap: Callable[[int], tuple[int, int]] | None = None,
    ) -> None:
        self._limit = line_limit_bytes
        self._read = read
        self._gap = gap
        self.end = end
        self._final = final
        self._chunk_bytes = chunk_bytes

    def read(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes that lie before the end; none when the log has gone."""
        length = min(length, self.end - offset)
        return self._read(offset, length) if length > 0 else b""

    def gap(self, position: int) -> tuple[int, int]:
        """Return the first part at or behind `position` that was not kept; the end twice where there is none."""
        start, end = (self.end, self.end) if self._gap is None else self._gap(position)
        return min(start, self.end), min(end, self.end)

    def before_gap(self, position: int) -> int:
        """Return where the part begins that was not kept and ends at `position` or holds it; else `position`."""
        at = 0
        for _ in range(_GAPS_MAX):
            start, end = self.gap(at)
            if start >= position or start == end:
                return position
            if end >= position:
                return start
            at = end
        return position

    def forward(self, position: int) -> Iterator[LinePiece]:
        """Yield pieces from `position`, which must be where one begins."""
        while position < self.end:
            start, end = self.gap(position)
            reached = (yield from self._forward(position, start)) if position < start else start
            position = end if reached == start else reached

    def _forward(self, position: int, until: int) -> Generator[LinePiece, None, int]:
        """Yield pieces up to the end, or to a part that was not kept; return how far that is."""
        final = self._final or until < self.end
        buffer, base, index = b"", position, 0
        # Whether the piece continues a line: its first bytes may end a character of the piece before.
        continued = position > 0 and self.read(position - 1, 1) != b"\n"
        while True:
            newline = buffer.find(b"\n", index, index + self._limit + 1)
            if newline >= 0:
                content = buffer[index:newline].rstrip(b"\r")
                yield LinePiece(
                    base + index, _without_spill(content) if continued else content, base + newline + 1
                )
                continued, index = False, newline + 1
                continue
            left = len(buffer) - index
            at = base + len(buffer)
            wanted = min(self._chunk_bytes, until - at)
            more = b"" if left > self._limit + _SPILL_BYTES else self.read(at, wanted)
            if more:
                if not left and more.startswith(_MANY_NEWLINES) and self.gap(at)[0] == at:
                    return at  # Dropped since this began.
                buffer, base, index = buffer[index:] + more, base + index, 0
                continue
            settled = final or buffer.find(b"\n", index + self._limit) >= 0
            if left > self._limit + (0 if settled else _SPILL_BYTES):
                cut = (base + index) // self._limit * self._limit + self._limit - base
                content = buffer[index : cut + _spill(buffer[cut : cut + _SPILL_BYTES])]
                yield LinePiece(base + index, _without_spill(content) if continued else content, base + cut)
                continued, index = True, cut
                continue
            if left and final:
                content = buffer[index:].rstrip(b"\r")
                yield LinePiece(
                    base + index, _without_spill(content) if continued else content, base + len(buffer)
                )
            return until

    def backward(self, position: int) -> Iterator[LinePiece]:
        """Yield the pieces before `position`, the nearest first."""
        while (position := self.before_gap(position)) > 0:
            low = self.boundary(position - min(self._chunk_bytes, _BACKWARD_BYTES))
            pieces = []
            for piece in self.forward(low):
                if piece.start >= position:
                    break
                pieces.append(piece)
            yield from reversed(pieces)
            position = low

    def boundary(self, position: int) -> int:
        """Return a place at or before `position` where a piece begins."""
        long = 2 * self._limit + _SPILL_BYTES + 1
        for reach in (min(_NEAR_BYTES, long), long):
            low = max(0, position - reach)
            newline = self.read(low, position - low).rfind(b"\n")
            if newline >= 0:
                return low + newline + 1
            if low == 0:
                return 0
        # Deep inside a long line, which is cut at every multiple; before the last but one nothing is pending.
        return ((position - 1) // self._limit - 1) * self._limit

    def first_beyond(self, position: int) -> int:
        """Return where the first piece begins that ends beyond `position`, complete or not."""
        start = self.boundary(min(position, self.end))
        for piece in self.forward(start):
            if piece.end > position:
                break
            start = piece.end
        gap, behind = self.gap(start)
        return behind if gap == start else start


def _spill(following: bytes) -> int:
    """Count the bytes after a cut that continue a UTF-8 character."""
    count = 0
    while count < len(following) and following[count] & 0xC0 == 0x80:
        count += 1
    return count


def _without_spill(content: bytes) -> bytes:
    return content[_spill(content[:_SPILL_BYTES]) :]
