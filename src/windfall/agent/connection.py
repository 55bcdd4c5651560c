"""One connection of a daemon: bytes in, messages out, and the other way round. Never blocks; must not
know what messages mean.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence

from windfall.agent.line_reader import LineReader
from windfall.agent.messages import Message, ToAgent, decode_for_agent, encode

_CHUNK_BYTES = 1 << 20


class Connection:
    """A non-blocking stream of messages."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)  # noqa: FBT003 - it takes no keyword
        self._socket = sock
        self._reader = LineReader()
        self._unsent = bytearray()
        self.closed = False
        #: Whether the loop is waiting for the socket to take more.
        self.polled_for_writing = False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    def receive(self) -> Iterable[ToAgent]:
        """Return the messages that have arrived completely; sets `closed` at the end of the stream."""
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return ()
        except OSError:
            chunk = b""
        if not chunk:
            self.closed = True
            return ()
        lines = self._reader.feed(chunk)
        return decode_for_agent(lines) if lines else ()

    def send(self, messages: Sequence[Message]) -> None:
        """Queue messages and send what the socket takes."""
        self._unsent += encode(messages)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            del self._unsent[:sent]

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent)

    def send_bytes(self, content: bytes) -> None:
        """Send what is not a message, before the connection is closed."""
        self._unsent += content
        self.flush()

    def dup(self) -> int:
        """Another descriptor of the same line, for a process that takes it over."""
        return os.dup(self._socket.fileno())

    def close(self) -> None:
        """End the connection."""
        self.closed = True
        self._socket.close()
