"""The ASGI application: from bytes on a connection to a service, and back.

Decides the order in which a request is checked: size, signature, service. Gives every answer a request id and
every error AWS's form; internal errors go to the log and not to the caller. Must not know operations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from windfall.aws_api.protocol.cbor import cbor_refusal, speaks_cbor
from windfall.aws_api.protocol.errors import (
    AccessDeniedError,
    AnsweredElsewhereError,
    ApiError,
    RequestSizeError,
    RequestTimeoutError,
    ServiceDefinitionError,
    UnknownOperationError,
    internal_failure,
)
from windfall.aws_api.protocol.keys import KeyRing
from windfall.aws_api.protocol.refusals import JSON, json_refusal, speaks_query, xml_refusal
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.service import ApiService, Caller
from windfall.aws_api.protocol.sigv4 import Signer, verify

logger = logging.getLogger(__name__)

BODY_LIMIT_BYTES = 1024 * 1024
BODY_TIMEOUT_S = 30.0

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: Answers a GET of one path; None leaves it to the services.
Page = Callable[[HttpRequest], Awaitable[Response | None]]
#: Has a request answered by another daemon, as it was signed; None when there is none that can.
Elsewhere = Callable[[HttpRequest], Awaitable[Response | None]]

#: Answers all requests below one folder itself, from connection to answer.
Folder = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEALTHY = Response(200, JSON, b'{"status":"ok"}')


class _ClientLeft(Exception):
    """The connection was closed before the request was complete, so no answer is possible."""


class Application:
    """Serves all given services on one address; the signature of a request says which one is meant."""

    def __init__(
        self,
        services: Sequence[ApiService],
        keys: KeyRing,
        clock: Callable[[], float],
        new_request_id: Callable[[], str],
        *,
        body_timeout_s: float = BODY_TIMEOUT_S,
        pages: Mapping[str, Page] | None = None,
        elsewhere: Elsewhere | None = None,
        folders: Mapping[str, Folder] | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch. `pages` are read by GET, and see to readers' rights themselves.

        A page whose path ends in a slash answers for all paths below it, except for the root. `folders` are paths that
        end in a slash; whatever is below one is answered there, signatures included.
        """
        self._folders = folders or {}
        self._pages = pages or {}
        self._elsewhere = elsewhere
        self._services = {service.signing_name: service for service in services}
        if len(self._services) != len(services):
            raise ServiceDefinitionError("Two services have the same signing name.")
        self._keys = keys
        self._clock = clock
        self._new_request_id = new_request_id
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection scope."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        folder = self._folders.get(_first_folder(scope["path"]))
        if folder is not None:
            await folder(scope, receive, send)
            return
        request_id = self._new_request_id()
        try:
            response = await self._respond(scope, receive, request_id)
        except _ClientLeft:
            return
        if response.more is None:
            await _send_response(send, response, request_id)
        else:
            await _send_while_heard(receive, send, response, request_id)

    async def _respond(self, scope: Scope, receive: Receive, request_id: str) -> Response:
        if scope["path"] == "/healthz" and scope["method"] == "GET":
            return _HEALTHY
        refuse: Callable[[ApiError, str], Response] = _refuse_in_json
        request: HttpRequest | None = None
        try:
            request = await self._read(scope, receive)
            if (answer := await self._page(request)) is not None:
                return answer
            _check_origin(request)
            if speaks_query(request):
                refuse = xml_refusal
            elif speaks_cbor(request):
                refuse = cbor_refusal
            signer = verify(request, self._keys.find, self._clock())
            service = self._services.get(signer.service)
            if service is None:
                raise UnknownOperationError(
                    f"Windfall does not serve {signer.service}, only {', '.join(sorted(self._services))}. "
                    "Point this client at AWS or set the endpoint of the right service."
                )
            if not speaks_cbor(request):
                refuse = service.refuse_to(request)
            return await service.answer(request, _caller(signer), signer.region, request_id)
        except AnsweredElsewhereError as error:
            if request is None or self._elsewhere is None:
                return refuse(error, request_id)
            return await self._elsewhere(request) or refuse(error, request_id)
        except ApiError as error:
            return refuse(error, request_id)
        except _ClientLeft:
            raise
        except Exception:
            # The edge of the loop: one faulty request must not take the others with it.
            logger.exception("request %s failed: %s %r", request_id, scope["method"], scope["path"][:200])
            return refuse(internal_failure(), request_id)

    async def _page(self, request: HttpRequest) -> Response | None:
        if request.method != "GET":
            return None
        page = self._pages.get(request.path) or self._pages.get(_first_folder(request.path))
        return None if page is None else await page(request)

    async def _read(self, scope: Scope, receive: Receive) -> HttpRequest:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = value if name not in headers else headers[name] + b"," + value
        raw_path: bytes = scope["raw_path"]
        return HttpRequest(
            scope["method"],
            raw_path.decode("latin-1"),
            scope["query_string"].decode("latin-1"),
            headers,
            await self._read_body(headers, receive),
        )

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        length = headers.get(b"content-length")
        if length is None and b"transfer-encoding" not in headers:
            return b""
        if length is not None and length.isdigit() and len(length) < 20 and int(length) > BODY_LIMIT_BYTES:
            raise RequestSizeError(BODY_LIMIT_BYTES)
        try:
            async with asyncio.timeout(self._body_timeout_s):
                return await _collect(receive)
        except TimeoutError:
            raise RequestTimeoutError(self._body_timeout_s) from None


async def _collect(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > BODY_LIMIT_BYTES:
            raise RequestSizeError(BODY_LIMIT_BYTES)
        return body
    pieces, size = [body], len(body)
    while message["type"] == "http.request" and message.get("more_body"):
        if size > BODY_LIMIT_BYTES:
            raise RequestSizeError(BODY_LIMIT_BYTES)
        message = await receive()
        piece = message.get("body", b"")
        size += len(piece)
        pieces.append(piece)
    if message["type"] != "http.request":
        raise _ClientLeft
    if size > BODY_LIMIT_BYTES:
        raise RequestSizeError(BODY_LIMIT_BYTES)
    return b"".join(pieces)


def _first_folder(path: str) -> str:
    return path[: path.find("/", 1) + 1]


def _check_origin(request: HttpRequest) -> None:
    """Refuse what a page of another address made a browser send, whatever its signature."""
    origin = request.headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != request.headers.get(b"host"):
        raise AccessDeniedError(
            "A page of another address sent this request. Open Windfall's own page, or use the command line."
        )


def _caller(signer: Signer) -> Caller:
    if signer.parent is None or signer.ends_at is None:
        return Caller.of(signer.key)
    return Caller.of_session(signer.key, signer.parent, signer.ends_at)


def _refuse_in_json(error: ApiError, _request_id: str) -> Response:
    return json_refusal(error, JSON)


async def _send_while_heard(receive: Receive, send: Send, response: Response, request_id: str) -> None:
    """Send an answer of many parts until its end, or until its client has left."""
    sending = asyncio.create_task(_send_response(send, response, request_id))
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            await sending
    finally:
        for task in (sending, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        # One that was cancelled between two parts has not ended by that.
        if isinstance(response.more, AsyncGenerator):
            await response.more.aclose()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_response(send: Send, response: Response, request_id: str) -> None:
    more = response.more
    length = [] if more is not None else [(b"content-length", b"%d" % len(response.body))]
    await send(
        {
            "type": "http.response.start",
            "status": response.status,
            "headers": [
                (b"content-type", response.content_type),
                *length,
                (b"x-amzn-requestid", request_id.encode("ascii")),
                *response.headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": response.body, "more_body": more is not None})
    if more is not None:
        async for part in more:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
