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


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol over httptools with bounds on heads."""

    #: Tests make it shorter in a class of their own: uvicorn makes the objects.
    head_timeout_s = HEAD_TIMEOUT_S

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        #: From a connection's, or a request's, first byte to the end of its headers.
        self._awaits_head = True
        self._head_bytes = 0
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
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._awaits_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT_BYTES:
                self.send_400_response(f"The head of a request may have {HEAD_LIMIT_BYTES} bytes.")
                return
            self._watch()
        elif self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # Bytes after an answer that begin no request: uvicorn has just stopped to watch the idle connection.
            self._watch()
        else:
            self._unwatch()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._awaits_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is complete; what follows has other bounds."""
        self._awaits_head = False
        super().on_headers_complete()

    def _watch(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _unwatch(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
