"""What goes over the line of a session, between the process that keeps it and the client: pieces with a kind each.

Decides the form and nothing else. The daemon passes on what the keeper sends without looking into it. Imported by the
keeper: the standard library alone.
"""

from __future__ import annotations

import json
import struct

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: To the keeper: bytes for the command's standard input, their end, and the size of the client's terminal.
INPUT, INPUT_END, WINDOW = b"i", b"e", b"w"
#: From the keeper: the command runs; what it wrote to its standard output and its standard error; how it ended.
STARTED, OUTPUT, ERRORS, ENDED = b"s", b"o", b"x", b"q"

_HEAD = struct.Struct(">cI")
_WINDOW = struct.Struct(">HH")
MOST_BYTES = 1 << 20


class BadFrame(Exception):
    """What came over the line is not a frame."""


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """One piece as it goes over the line."""
    return _HEAD.pack(kind, len(content)) + content


def window(rows: int, columns: int) -> bytes:
    """The frame that tells the size of a terminal."""
    return frame(WINDOW, _WINDOW.pack(rows, columns))


def read_window(content: bytes) -> tuple[int, int]:
    """The rows and columns in such a frame."""
    try:
        rows, columns = _WINDOW.unpack(content)
    except struct.error:
        raise BadFrame("a size of a terminal has two numbers") from None
    return rows, columns


def ended(code: int | None, message: str | None = None) -> bytes:
    """The last frame: the command's exit code, or why there is none; and what to tell the person, if anything."""
    return frame(ENDED, json.dumps({"code": code, "message": message}).encode())


def read_ended(content: bytes) -> tuple[int | None, str | None]:
    """The exit code and the message in the last frame."""
    try:
        told = json.loads(content)
        return told["code"], told["message"]
    except (ValueError, LookupError, TypeError):
        raise BadFrame("the end of a session has a code and a message") from None


class FrameReader:
    """Cuts a stream into frames and keeps the unfinished one."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the kind and content of each frame that is complete now; raises BadFrame."""
        self._rest += chunk
        while len(self._rest) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest)
            if length > MOST_BYTES:
                raise BadFrame(f"a frame has at most {MOST_BYTES} bytes")
            end = _HEAD.size + length
            if len(self._rest) < end:
                return
            content = bytes(self._rest[_HEAD.size : end])
            del self._rest[:end]
            yield kind, content
