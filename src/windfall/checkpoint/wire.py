"""How trainer and writer speak: one JSON object a line over a socket pair, descriptors beside it.

A line that was cut off by the death of the sender is not a message. Nothing here knows what messages mean.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from typing import Any

#: More than one descriptor never travels with one message; a batch of messages may bring several.
_MOST_DESCRIPTORS = 16
_READ_BYTES = 1 << 18


class SocketEnd:
    """One end of the socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._rest = b""
        self._descriptors: list[int] = []

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends a message whole or raises OSError; waits while the other side is behind."""
        self.send_text(json.dumps(message, separators=(",", ":")), descriptors)

    def send_text(self, text: str, descriptors: Sequence[int] = ()) -> None:
        """The same for a message that is JSON already."""
        raw = text.encode() + b"\n"
        if descriptors:
            sent = socket.send_fds(self.end, [raw], list(descriptors))
            raw = raw[sent:]
        self.end.sendall(raw)

    def receive(self) -> list[dict[str, Any]] | None:
        """Waits for the next messages; None when the other side has closed."""
        try:
            raw, descriptors, _, _ = socket.recv_fds(self.end, _READ_BYTES, _MOST_DESCRIPTORS)
        except ConnectionError:
            return None
        self._descriptors += descriptors
        if not raw:
            return None
        return list(self._messages(raw))

    def _messages(self, raw: bytes) -> Iterator[dict[str, Any]]:
        *lines, self._rest = (self._rest + raw).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def take_descriptor(self) -> int:
        """The descriptor that came with the message in hand."""
        return self._descriptors.pop(0)
