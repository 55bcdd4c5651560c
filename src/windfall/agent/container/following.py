"""A container's output, from the engine's stream to the attempt's log.

The engine keeps all that the container wrote; the log is a copy of it, byte for byte and in its order. So wherever a
keeper, an engine or a line between them breaks off, the copy goes on where it is: the stream is opened from its
beginning, and as many bytes as the log has are passed over. Decides that, and must not know why the stream ended.
Imported by the keeper: the standard library alone.
"""

from __future__ import annotations

import errno
import os
import select
import stat

from windfall.agent.container.exchange import Exchange

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEADER_BYTES = 8
_FULL_DISK_PAUSE_S = 1.0


class Frames:
    """Takes the engine's frames (a header with a length, then that many bytes) and gives what is in them."""

    def __init__(self, passed_over: int = 0) -> None:
        self._raw = b""
        self._stream = self._left = 0
        self._passed_over = passed_over

    def pieces(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield what has arrived, each piece with the number of the stream that it was written to."""
        self._raw += raw
        while self._raw:
            if not self._left:
                if len(self._raw) < _HEADER_BYTES:
                    break
                self._stream = self._raw[0]
                self._left = int.from_bytes(self._raw[4:_HEADER_BYTES], "big")
                self._raw = self._raw[_HEADER_BYTES:]
                continue
            part = self._raw[: self._left]
            self._raw = self._raw[len(part) :]
            self._left -= len(part)
            yield self._stream, part

    def feed(self, raw: bytes) -> bytes:
        """Return the content of what has arrived."""
        content = b"".join(part for _, part in self.pieces(raw))
        if self._passed_over:
            skipped = min(self._passed_over, len(content))
            self._passed_over -= skipped
            content = content[skipped:]
        return content


def copy_output(stream: Exchange, log_fd: int, wake_fd: int, on_wake: Callable[[], None]) -> None:
    """Copy a stream to its end; EngineUnreachable when the line breaks. `on_wake` is called for signals meanwhile."""
    status = os.fstat(log_fd)
    frames = Frames(status.st_size if stat.S_ISREG(status.st_mode) else 0)
    while not stream.ended:
        if not stream.has_part:
            ready, _, _ = select.select([stream.fileno(), wake_fd], [], [])
            if wake_fd in ready:
                on_wake()
            if stream.fileno() not in ready:
                continue
        _write(log_fd, frames.feed(stream.receive()), wake_fd, on_wake)


def _write(fd: int, content: bytes, wake_fd: int, on_wake: Callable[[], None]) -> None:
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The engine keeps the rest until there is room again; the container runs on as long as it can.
            if select.select([wake_fd], [], [], _FULL_DISK_PAUSE_S)[0]:
                on_wake()
