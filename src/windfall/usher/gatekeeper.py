"""Which requests are let in: signed by a key that is valid now, for this service, by a role that may invoke.

Decides as the daemon does, with its verification and its keys file, so that a revoked key is refused on the next
request. Must not know endpoints: whether one exists for the caller is asked later, with the caller's tenant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from windfall.aws_api.protocol.errors import (
    AccessDeniedError,
    ApiError,
    UnknownOperationError,
    UnsupportedOperationError,
    missing_authentication,
    unrecognized_client,
)
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import HttpRequest, percent_decode
from windfall.aws_api.protocol.sigv4 import verify
from windfall.usher.client_side import Incoming

SIGNING_NAME = "sagemaker"

_PATH = re.compile(r"/endpoints/([^/]+)/(invocations|invocations-response-stream|async-invocations)")
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_CREDENTIAL = re.compile(rb"Credential=([^/ ,]+)/")


@dataclass(frozen=True, slots=True)
class InvokedPath:
    """What the path of a request names."""

    endpoint: str
    streams: bool


class Gatekeeper:
    """Lets requests in."""

    def __init__(self, find_key: Callable[[str], Key | None], clock: Callable[[], float]) -> None:
        self._find_key = find_key
        self._clock = clock

    def screen(self, method: str, url: bytes, headers: dict[bytes, bytes]) -> ApiError | None:
        """Refuse by its head what no body can make right: a request without a signature, or of an unknown key."""
        if is_health_check(method, url):
            return None
        if b"authorization" in headers:
            match = _CREDENTIAL.search(headers[b"authorization"])
            if match is not None and self._find_key(match[1].decode("latin-1")) is None:
                return unrecognized_client()
        elif b"X-Amz-Signature=" not in url:
            return missing_authentication()
        return None

    def admit(self, request: Incoming) -> tuple[str, InvokedPath]:
        """The caller's tenant and what the request is for; raises ApiError otherwise."""
        path, _, query = request.url.decode("latin-1").partition("?")
        signed = HttpRequest(request.method, path, query, request.headers, request.body)
        signer = verify(signed, self._find_key, self._clock())
        if signer.service != SIGNING_NAME:
            raise UnknownOperationError(
                f"This address serves sagemaker-runtime, and the request was signed for {signer.service}."
            )
        if signer.key.role < Role.SUBMIT:
            raise AccessDeniedError(
                "A key of the role read may not invoke endpoints; use one of the role submit or admin."
            )
        origin = request.headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != request.headers.get(b"host"):
            raise AccessDeniedError("A page of another address sent this request.")
        return signer.key.tenant, _target(request.method, path)


def is_health_check(method: str, url: bytes) -> bool:
    """Whether a request only asks if this process lives, which anybody may."""
    return url == b"/healthz" and method == "GET"


def _target(method: str, path: str) -> InvokedPath:
    match = _PATH.fullmatch(path)
    if match is None or method != "POST":
        raise UnknownOperationError(
            "This address serves POST /endpoints/NAME/invocations and .../invocations-response-stream only."
        )
    name, action = percent_decode(match[1]), match[2]
    if not _NAME.fullmatch(name):
        raise ApiError(
            "ValidationError",
            "The name of an endpoint has 1 to 63 letters, digits and hyphens, and begins and ends with no hyphen.",
        )
    if action == "async-invocations":
        raise UnsupportedOperationError("InvokeEndpointAsync")
    return InvokedPath(name, action == "invocations-response-stream")
