"""One connection of the HTTP server: how long a client may take over the head of a request, and how large it may be.

uvicorn bounds neither, so that anybody who can connect could hold a connection, or fill the memory, without a key.
Bodies are bounded where they are read (aws_api/protocol/application.py). Must not know what requests mean.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_TIMEOUT_S = 30.0
#: Several times what the longest signed request line and headers of AWS's clients take.
HEAD_LIMIT_BYTES = 64 * 1024
_TOO_LARGE = f"The head of a request may have {HEAD_LIMIT_BYTES} bytes."


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol over httptools with bounds on heads."""

    #: Tests make it shorter in a class of their own: uvicorn makes the objects.
    head_timeout_s = HEAD_TIMEOUT_S

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        #: From a connection's, or a request's, first byte to the end of its headers.
        self._awaits_head = True
        #: Of the head that is being read: what the parser has handed out, and what came in reads that are its alone.
        self._parsed_bytes = self._read_bytes = 0
        #: Whether a request ended in what is being parsed.
        self._ended_one = False
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and see to it that the rest of a head comes too."""
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
            # Bytes after an answer that begin no request: uvicorn has just stopped to watch the idle connection.
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
        """A head is complete; what follows has other bounds."""
        self._awaits_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request has ended; the next may begin in the same read."""
        self._ended_one = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse and close; requests of this connection that are still being answered have nobody to answer."""
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
