"""Cuts a stream of bytes into the lines that processes of an agent say to one another. Knows no message."""

from __future__ import annotations

from windfall.agent.errors import ProtocolError


class LineReader:
    """Cuts a byte stream into complete lines and keeps the unfinished one."""

    def __init__(self, bytes_max: int | None = None) -> None:
        """`bytes_max` is for the lines of strangers; None trusts the other side."""
        self._rest = b""
        self._bytes_max = bytes_max

    def feed(self, chunk: bytes) -> bytes:
        """Return all complete lines seen so far, as one piece; raises ProtocolError for a line without an end."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._rest += chunk
            if self._bytes_max is not None and len(self._rest) > self._bytes_max:
                raise ProtocolError(f"the other side sent a line of more than {self._bytes_max >> 20} MiB")
            return b""
        lines = self._rest + chunk[: end + 1]
        self._rest = chunk[end + 1 :]
        return lines
