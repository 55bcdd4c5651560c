"""Hands requests of endpoints that came to the daemon on to the usher, as they were signed.

For clients that have one URL for everything. Decides nothing about a request: the usher verifies it. Bodies pass in
pieces in both directions, so that the daemon holds none. Must not know what a request means.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

import httptools

from windfall.aws_api.protocol.application import Receive, Scope, Send
from windfall.aws_api.protocol.errors import ApiError
from windfall.usher.refusals import endpoint_not_found, error_body

#: The folder of the usher's requests.
ENDPOINTS = "/endpoints/"

_READ_BYTES = 1 << 16
_NOT_COPIED = (b"connection", b"keep-alive", b"transfer-encoding", b"expect")


class UsherRelay:
    """Answers everything below /endpoints/ by asking the usher."""

    def __init__(self, address: Callable[[], str | None]) -> None:
        """`address` returns where the usher listens; None while there is none."""
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        url = self._address()
        if url is None:
            await _refuse(send, endpoint_not_found(scope["path"].split("/")[2][:63]))
            return
        parts = urlsplit(url)
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            await _refuse(send, ApiError("ServiceUnavailable", "The usher is being started. Try again.", 503))
            return
        try:
            # An usher that refuses does not wait for the rest of a body: its answer is there all the same.
            with contextlib.suppress(OSError):
                if not await _send_request(scope, receive, writer):
                    return
            await _send_answer(reader, receive, send)
        finally:
            writer.close()


async def _send_request(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> bool:
    """Pass a request on; returns whether its client has stayed."""
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    names = {name for name, _ in scope["headers"]}
    chunked = b"content-length" not in names and b"transfer-encoding" in names
    lines = [b"%b %b%b HTTP/1.1\r\n" % (scope["method"].encode("ascii"), scope["raw_path"], query)]
    lines += [b"%b: %b\r\n" % header for header in scope["headers"] if header[0] not in _NOT_COPIED]
    lines += [b"transfer-encoding: chunked\r\n"] if chunked else []
    lines.append(b"connection: close\r\n\r\n")
    writer.write(b"".join(lines))
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return False
        part = message.get("body", b"")
        if part:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        if not message.get("more_body"):
            break
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _send_answer(reader: asyncio.StreamReader, receive: Receive, send: Send) -> None:
    """Pass an answer back as it comes, until its end or until the client leaves."""
    sending = asyncio.create_task(_copy(reader, send))
    leaving = asyncio.create_task(_left(receive))
    await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
    for task in (sending, leaving):
        task.cancel()
    results = await asyncio.gather(sending, leaving, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Answer:
    """What the parser has read and nobody has sent."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.has_head = self.has_ended = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _NOT_COPIED:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.has_ended = True


async def _copy(reader: asyncio.StreamReader, send: Send) -> None:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    begun = False
    try:
        while not answer.has_ended and (content := await reader.read(_READ_BYTES)):
            parser.feed_data(content)
            if answer.has_head and not begun:
                begun = True
                status = parser.get_status_code()
                await send({"type": "http.response.start", "status": status, "headers": answer.headers})
            if begun and answer.parts:
                body, answer.parts = b"".join(answer.parts), []
                await send({"type": "http.response.body", "body": body, "more_body": True})
    except OSError:
        pass  # What is missing of the answer is missing for the client too.
    if answer.has_ended:
        await send({"type": "http.response.body", "body": b""})
    elif not begun:
        gone = "The usher ended before it answered; the model may have begun with the request."
        await _refuse(send, ApiError("ServiceUnavailable", gone, 503))


async def _refuse(send: Send, error: ApiError) -> None:
    body = error_body(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-amzn-errortype", error.code.encode("ascii")),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
