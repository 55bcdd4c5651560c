"""The socket of the HTTP server, and one connection to it: limits the time and size of a request's head.

uvicorn limits neither, so anyone who can connect could hold a connection, or fill the memory, without a key. Bodies are
limited where they are read (aws_api/protocol/application.py). Must not know what requests mean.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windfall.daemon.errors import DaemonError

HEAD_TIMEOUT_S = 30.0
#: Several times what the longest signed request line and headers of AWS's clients take.
HEAD_LIMIT_BYTES = 64 * 1024
_TOO_LARGE = f"The request line and headers may have at most {HEAD_LIMIT_BYTES} bytes."


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol over httptools with limits on heads."""

    #: A class attribute, so that tests can shorten it in a subclass: uvicorn makes the objects.
    head_timeout_s = HEAD_TIMEOUT_S

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        #: True from the first byte of a connection or request to the end of its headers.
        self._awaits_head = True
        #: Of the current head: bytes that the parser has reported, and bytes of reads that held nothing else.
        self._parsed_bytes = self._read_bytes = 0
        #: Whether a request ended in the bytes being parsed.
        self._ended_one = False
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Start waiting for the first head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, and limit the time for the rest of a head."""
        self._ended_one = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._awaits_head:
            if not self._ended_one:
                self._read_bytes += len(data)
            if self._read_bytes > HEAD_LIMIT_BYTES:
                self.send_400_response(_TOO_LARGE)
            elif self.flow.read_paused:
                # Requests before this one are being answered: its client cannot go on yet.
                self._unwatch()
            else:
                self._watch()
        elif self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # Bytes after an answer that do not begin a request: uvicorn has just stopped its keep-alive timer.
            self._watch()
        else:
            self._unwatch()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._awaits_head = True
        self._parsed_bytes = self._read_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, whole."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is complete; the body has its own limits."""
        self._awaits_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request has ended; the next may begin in the same read."""
        self._ended_one = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse and close; other requests of this connection lose their client."""
        for cycle in (self.cycle, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:
                cycle.disconnected = True
        self.pipeline.clear()
        super().send_400_response(_TOO_LARGE if self._parsed_bytes > HEAD_LIMIT_BYTES else msg)

    def _count(self, number: int) -> None:
        self._parsed_bytes += number
        if self._parsed_bytes > HEAD_LIMIT_BYTES:
            # Ends the parser, and uvicorn answers with send_400_response.
            raise ValueError(_TOO_LARGE)

    def _watch(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _unwatch(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; DaemonError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(512)
            listening.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise DaemonError(
            f"cannot listen on {host}:{port}: {error.strerror};"
            " choose another with --port (0 takes a free one)"
        ) from None
    return listening


def url_of(listening: socket.socket, host: str) -> str:
    """Where a socket that listens is reached."""
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
