"""A relay in front of the embedded S3 server: passes bytes on, and completes the heads of a few requests.

Decides where a request's head ends and its body begins; answers are passed on unread. It authorises nothing: SeaweedFS
checks every signature itself. Must not know what a completion is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import cast
from xml.sax.saxutils import escape

from windfall.daemon.s3_resigning import CannotComplete

#: Changes the head of a request; CannotComplete refuses it.
Complete = Callable[[bytes], bytes]

_HEAD_LIMIT_BYTES = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)
#: The length of a body that lasts until the connection ends.
_ENDLESS = 1 << 62


async def serve_relay(
    hosts: Sequence[str], port: int, upstream: tuple[str, int], complete: Complete
) -> asyncio.Server:
    """Listen at addresses and relay to another one."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Client(upstream, complete), hosts, port, backlog=512)


class _Side(asyncio.Protocol):
    """One end of a relayed connection: what it receives goes to the other end, no faster than that one accepts it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's class.
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's own signature)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def send(self, content: bytes | memoryview) -> None:
        """Send to this end."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(content)


class _Server(_Side):
    """The end at the S3 server."""

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.send(data)


class _Client(_Side):
    """The end at the client, where heads are read."""

    def __init__(self, upstream: tuple[str, int], complete: Complete) -> None:
        super().__init__()
        self._upstream = upstream
        self._complete = complete
        self._head = bytearray()
        self._early = bytearray()
        #: How much of the current request's body is still to come.
        self._body_left = 0
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        assert self.transport is not None
        server = _Server()
        server.other = self
        try:
            await asyncio.get_running_loop().create_connection(lambda: server, *self._upstream)
        except OSError:
            self._refuse(503, "ServiceUnavailable", "The S3 server is being started; try again.")
            return
        self.other = server
        if self.transport.is_closing():
            assert server.transport is not None
            server.transport.close()
        elif self._early:
            early, self._early = bytes(self._early), bytearray()
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            # Connecting to the server takes less time than a client needs to send much.
            self._early += data
            return
        rest = memoryview(data)
        while rest and self.transport is not None:
            if self.transport.is_closing():
                return
            if self._body_left:
                passing = rest[: self._body_left]
                self.other.send(bytes(passing))
                self._body_left -= len(passing)
                rest = rest[len(passing) :]
                continue
            # The end of a head may be split across two reads.
            looked_at = max(0, len(self._head) - 3)
            before = len(self._head)
            self._head += rest
            end = self._head.find(b"\r\n\r\n", looked_at)
            if end < 0:
                if len(self._head) > _HEAD_LIMIT_BYTES:
                    self._refuse(400, "RequestHeaderSectionTooLarge", "The head of the request is too large.")
                return
            head, self._head = bytes(self._head[: end + 4]), bytearray()
            rest = rest[end + 4 - before :]
            self._pass_head(head)

    def _pass_head(self, head: bytes) -> None:
        assert self.other is not None
        try:
            head = self._complete(head)
        except CannotComplete as error:
            self._refuse(501, "NotImplemented", str(error))
            return
        if _CHUNKED.search(head):
            # Its end could be found only by parsing every chunk, so it is the connection's last request.
            head = _CONNECTION.sub(b"", head).removesuffix(b"\r\n\r\n") + b"\r\nConnection: close\r\n\r\n"
            self._body_left = _ENDLESS
        elif length := _LENGTH.search(head):
            self._body_left = int(length[1])
        self.other.send(head)

    def _refuse(self, status: int, code: str, text: str) -> None:
        assert self.transport is not None
        body = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
            f"<Message>{escape(text)}</Message></Error>"
        ).encode()
        head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.send(head.encode() + body)
        self.transport.close()
