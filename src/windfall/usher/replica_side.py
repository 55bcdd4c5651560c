"""The usher's connections to replicas: one request at a time on each, used again while both sides keep it open.

Decides what is certain about a request whose connection failed: it was not begun if no connection was made, and
otherwise it may have been. A connection that its replica has closed meanwhile is not used again. Must not know
clients.
"""

from __future__ import annotations

import asyncio
import select
from typing import Protocol, cast

import httptools

from windfall.usher.balance import LiveReplica
from windfall.usher.exchange import Exchange

#: A replica on this host accepts in microseconds; one of another machine in a few milliseconds.
CONNECT_TIMEOUT_S = 1.0
#: A connection that was idle for this time is closed before the replica may close it.
IDLE_S = 30.0
#: Idle connections that are kept for one replica.
_IDLE_MOST = 256
_HEADERS_MOST = 100
_HEAD_BYTES_MOST = 64 * 1024


class Answers(Protocol):
    """What a connection reports of an answer as it comes."""

    def on_answer_begun(self, exchange: Exchange, status: int, headers: dict[bytes, bytes]) -> None:
        """Status and headers are there."""

    def on_answer_part(self, exchange: Exchange, part: bytes) -> None:
        """A part of the body."""

    def on_answer_ended(self, exchange: Exchange) -> None:
        """The body is whole."""

    def on_answer_broken(self, exchange: Exchange, why: str) -> None:
        """The answer will never be whole; the request may have been begun."""

    def on_unreachable(self, exchange: Exchange, replica: LiveReplica) -> None:
        """No connection could be made: the request was certainly not begun."""


class ReplicaConnection(asyncio.Protocol):
    """One connection to a replica."""

    def __init__(self, pool: ReplicaPool) -> None:
        self._pool = pool
        self.transport: asyncio.Transport
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self._poll = select.poll()
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        #: Bytes of the headers, and bytes that were read while there was no whole head.
        self._head_bytes = self._head_read = 0
        self._has_length = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is none by inheritance.
        handle = transport.get_extra_info("socket")
        self._poll.register(handle.fileno(), select.POLLIN | select.POLLRDHUP)

    @property
    def is_fresh(self) -> bool:
        """Whether the replica has neither closed it nor sent anything that nobody asked for."""
        return not self.transport.is_closing() and not self._poll.poll(0)

    def send(self, exchange: Exchange) -> None:
        """Let the replica begin with a request."""
        self.exchange = exchange
        exchange.connection = self
        self.transport.write(exchange.to_model)

    def data_received(self, data: bytes) -> None:
        """Parse what the replica says."""
        exchange = self.exchange
        if exchange is None:
            self.transport.abort()  # It speaks without being asked.
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._break("its answer is not valid HTTP")
        except httptools.HttpParserUpgrade:
            self._break("it wants to change the protocol")
        else:
            if self.exchange is exchange and not self._status:
                self._head_read += len(data)
                if self._head_read > _HEAD_BYTES_MOST:
                    self._break("the head of its answer is too large")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer."""
        self._head_bytes += len(name) + len(value)
        if len(self._headers) >= _HEADERS_MOST or self._head_bytes > _HEAD_BYTES_MOST:
            raise ValueError("too many headers")
        if b"\n" not in value and b"\r" not in value:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head of the answer is whole."""
        status = self._parser.get_status_code()
        if status < 200:
            return  # An interim answer; the real one follows.
        self._status = status
        self._has_length = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if self.exchange is not None:
            self._pool.answers.on_answer_begun(self.exchange, status, self._headers)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self.exchange is not None:
            self._pool.answers.on_answer_part(self.exchange, body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._status < 200:
            self._headers, self._head_bytes = {}, 0
            return
        self._end()

    def _end(self) -> None:
        exchange, self.exchange = self.exchange, None
        keep = self._has_length and self._parser.should_keep_alive()
        if exchange is None:
            return
        exchange.connection = None
        if keep:
            self._status, self._headers = 0, {}
            self._head_bytes = self._head_read = 0
            self._pool.put_back(self)
        else:
            self.transport.close()
        self._pool.answers.on_answer_ended(exchange)

    def _break(self, why: str) -> None:
        exchange, self.exchange = self.exchange, None
        self.transport.abort()
        if exchange is not None:
            exchange.connection = None
            self._pool.answers.on_answer_broken(exchange, why)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by either side."""
        self._pool.forget(self)
        if self.exchange is None:
            return
        if self._status and not self._has_length and exc is None:
            self._end()  # The end of the connection is the end of such an answer.
        else:
            self._break("it closed the connection before its answer was whole")

    def abandon(self) -> None:
        """Nobody waits for the answer any more: let the replica notice."""
        self.exchange = None
        self.transport.abort()


class ReplicaPool:
    """The connections to one replica."""

    def __init__(self, replica: LiveReplica, answers: Answers) -> None:
        self.replica = replica
        self.answers = answers
        self._idle: list[ReplicaConnection] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    def send(self, exchange: Exchange) -> None:
        """Send a request on an idle connection, or on a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh:
                connection.send(exchange)
                return
            connection.transport.abort()
        task = asyncio.get_running_loop().create_task(self._open(exchange))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, exchange: Exchange) -> None:
        route = self.replica.route
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: ReplicaConnection(self), route.host, route.port
                )
        except (OSError, TimeoutError):
            if not exchange.ended:
                self.answers.on_unreachable(exchange, self.replica)
            return
        if exchange.ended:  # Its client has left, or it took too long.
            self.put_back(connection)
        else:
            connection.send(exchange)

    def put_back(self, connection: ReplicaConnection) -> None:
        """Keep a connection for the next request."""
        if self._closed or len(self._idle) >= _IDLE_MOST:
            connection.transport.close()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def forget(self, connection: ReplicaConnection) -> None:
        """A connection was closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self, now: float) -> None:
        """Close what was not used for long."""
        while self._idle and now - self._idle[0].idle_since > IDLE_S:
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        """The replica has left the table: no new connections; those with a request go on."""
        self._closed = True
        while self._idle:
            self._idle.pop().transport.close()
