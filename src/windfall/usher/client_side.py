"""A client's connection: reads requests whole, one after the other, and writes their answers in order.

Decides the limits that hold before anybody is known: the size and time of a head and of a body, how long a connection
may be idle, how slowly a client may read. Must not know signatures, endpoints or replicas.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol, cast

import httptools

from windfall.aws_api.protocol.errors import ApiError
from windfall.usher.exchange import Exchange
from windfall.usher.refusals import (
    BODY_LIMIT_BYTES,
    HEAD_LIMIT_BYTES,
    body_too_slow,
    error_answer,
    malformed,
    overloaded,
    too_large,
)

#: From the first byte of a request (or from the start of a connection) to the end of its head.
HEAD_TIMEOUT_S = 10.0
#: From the end of the head to the end of the body.
BODY_TIMEOUT_S = 60.0
#: Between two requests.
IDLE_TIMEOUT_S = 120.0
#: For how long a client may take nothing of an answer.
WRITE_TIMEOUT_S = 60.0
#: What is kept of an answer that the client has not taken, before more of it is read from the replica.
_UNSENT_BYTES = 64 * 1024
#: Requests that a client may send before the answer to the first.
_AHEAD_MOST = 16
_HEADERS_MOST = 100


@dataclass(slots=True)
class Incoming:
    """One request, whole."""

    method: str
    url: bytes
    headers: dict[bytes, bytes]
    body: bytes
    began_at: float
    received_at: float
    keep_alive: bool


class Requests(Protocol):
    """What a connection reports of its requests."""

    #: Bytes of all bodies that are in memory, and what they may be together.
    held_bytes: int
    held_bytes_most: int

    def screen(self, method: str, url: bytes, headers: dict[bytes, bytes]) -> ApiError | None:
        """Refuse a request by its head alone, before its body takes any memory."""

    def on_request(self, client: ClientConnection, request: Incoming) -> None:
        """A request is whole."""

    def on_refused(self) -> None:
        """A request was refused by this connection itself."""

    def on_client_left(self, client: ClientConnection, exchange: Exchange | None) -> None:
        """The connection is closed; `exchange` is the request that was being answered."""

    def new_request_id(self) -> str:
        """An id for an answer."""


class ClientConnection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        #: The request that is being answered.
        self.exchange: Exchange | None = None
        self._busy = False
        self._keep_alive = True
        self._ready: deque[Incoming] = deque()
        self._refusal: ApiError | None = None
        self._refused = False
        self._reads_nothing = False
        #: A client that has closed its side still gets the answers to what it asked.
        self._half_closed = False
        #: When what the connection waits for began; in which stage it is.
        self._since = self._loop.time()
        self._in_head = self._in_body = False
        self._unsent_since: float | None = None
        self._head_bytes = 0
        self._held = 0
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._began_at = 0.0
        self._expects_body = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is none by inheritance.
        self.transport.set_write_buffer_limits(high=_UNSENT_BYTES)

    def data_received(self, data: bytes) -> None:
        """Parse what the client says."""
        if self._refused:
            return  # It was told why; what it still sends is nobody's.
        if not self._in_body:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refusal = self._refusal or malformed()
        if self._in_head and self._head_bytes > HEAD_LIMIT_BYTES:
            self._refusal = self._refusal or malformed()
        self._advance()
        more = bool(self._ready) or self._in_head or self._in_body
        if self._busy and more and not self._reads_nothing and not self._refused:
            # What follows is read when the answer is sent. Most clients send nothing until then.
            self._reads_nothing = True
            self.transport.pause_reading()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begin()
        self._in_head, self._in_body = True, False
        self._since = self._began_at = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._url += url
        if len(self._url) > HEAD_LIMIT_BYTES:
            raise ValueError("the request line is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        headers = self._headers
        name = name.lower()
        if len(headers) >= _HEADERS_MOST:
            raise ValueError("too many headers")
        headers[name] = value if name not in headers else headers[name] + b"," + value

    def on_headers_complete(self) -> None:
        """The head is whole: refuse now what can be refused, before a body takes memory."""
        self._in_head, self._in_body = False, True
        self._head_bytes = 0
        self._since = self._loop.time()
        headers = self._headers
        length = headers.get(b"content-length")
        self._expects_body = (length is not None and length != b"0") or b"transfer-encoding" in headers
        if self._refusal is None:
            self._refusal = self._requests.screen(self._parser.get_method().decode(), self._url, headers)
        if (
            self._refusal is None
            and length is not None
            and (len(length) > 9 or int(length) > BODY_LIMIT_BYTES)
        ):
            self._refusal = too_large()
        if (
            self._refusal is None
            and headers.get(b"expect", b"").lower() == b"100-continue"
            and not self._busy
        ):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._refusal is not None:
            return
        self._size += len(body)
        self._hold(len(body))
        if self._size > BODY_LIMIT_BYTES:
            self._refusal = too_large()
        elif self._requests.held_bytes > self._requests.held_bytes_most:
            self._refusal = overloaded()
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._in_body = False
        if self._refusal is not None:
            return
        if len(self._ready) >= _AHEAD_MOST:
            self._refusal = malformed()
            return
        parts = self._parts
        self._ready.append(
            Incoming(
                self._parser.get_method().decode(),
                self._url,
                self._headers,
                parts[0] if len(parts) == 1 else b"".join(parts),
                self._began_at,
                self._loop.time(),
                self._parser.should_keep_alive(),
            )
        )

    def eof_received(self) -> bool:
        """The client sends no more; it may still wait for answers."""
        self._half_closed = True
        return self._busy or bool(self._ready)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The client is gone."""
        self._hold(-self._held)
        exchange, self.exchange = self.exchange, None
        self._ready.clear()
        self._refused = True
        self._requests.on_client_left(self, exchange)

    def _hold(self, number: int) -> None:
        self._held += number
        self._requests.held_bytes += number

    def _advance(self) -> None:
        while not self._busy and self._ready and not self.transport.is_closing():
            request = self._ready.popleft()
            self._busy = True
            self._keep_alive = request.keep_alive
            self._requests.on_request(self, request)
        if self._refusal is not None and not self._busy and not self._refused:
            self._requests.on_refused()
            self._refuse(self._refusal)

    def _refuse(self, error: ApiError) -> None:
        """Answer and close: what follows on this connection cannot be told apart any more."""
        self._refused = True
        if not self.transport.is_closing():
            self.transport.write(error_answer(error, self._requests.new_request_id(), close=True))
            if self._in_body and self._expects_body:
                # The client may still be sending: closing at once could reset the answer away before it is read.
                self._since = self._loop.time()
                if self.transport.can_write_eof():
                    self.transport.write_eof()
            else:
                self.transport.close()

    @property
    def closes(self) -> bool:
        """Whether the answer that comes next is the last on this connection."""
        return not self._keep_alive or self._half_closed

    def write(self, content: bytes) -> None:
        """A part of an answer."""
        if not self.transport.is_closing():
            self.transport.write(content)

    @property
    def is_behind(self) -> bool:
        """Whether the client has not taken what was sent to it."""
        return self._unsent_since is not None

    def end_answer(self, content: bytes) -> None:
        """The rest of an answer; then the next request is begun."""
        if self.transport.is_closing():
            return
        self.transport.write(content)
        self.exchange = None
        self._busy = False
        self._since = self._loop.time()
        if not self._in_body:
            self._hold(-self._held)
        if self.closes and not self._ready:
            self.transport.close()
            return
        if self._reads_nothing:
            self._reads_nothing = False
            self.transport.resume_reading()
        if self._ready or self._refusal is not None:
            self._loop.call_soon(self._advance)

    def pause_writing(self) -> None:
        """The client takes nothing: nor does the usher from its replica."""
        self._unsent_since = self._loop.time()
        if self.exchange is not None and self.exchange.connection is not None:
            self.exchange.connection.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client takes again."""
        self._unsent_since = None
        if self.exchange is not None and self.exchange.connection is not None:
            self.exchange.connection.transport.resume_reading()

    def check_times(self, now: float) -> None:
        """Close a connection whose client takes too long for what it has to do next."""
        if self._unsent_since is not None and now - self._unsent_since > WRITE_TIMEOUT_S:
            self.transport.abort()
        elif self._refused:
            if now - self._since > HEAD_TIMEOUT_S:
                self.transport.abort()
        elif self._busy:
            return
        elif self._in_body:
            if now - self._since > BODY_TIMEOUT_S:
                self._requests.on_refused()
                self._refuse(body_too_slow(BODY_TIMEOUT_S))
        elif self._in_head or not self._began_at:
            if now - self._since > HEAD_TIMEOUT_S:
                self.transport.abort()
        elif now - self._since > IDLE_TIMEOUT_S:
            self.transport.close()

    def close_if_idle(self) -> None:
        """The usher ends: a connection without a request is closed, and one with a request after its answer."""
        self._keep_alive = False
        if not self._busy and not self._ready:
            self.transport.close()


class RefusedConnection(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it at once."""
        transport.close()
