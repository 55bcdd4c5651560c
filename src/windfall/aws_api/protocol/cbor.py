"""CBOR bodies of services that speak Smithy's rpc-v2-cbor, as botocore's CloudWatch client does.

Decides how plain values lie in CBOR: timestamps are tag 1, texts and numbers themselves. Must not know operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import cbor2

from windfall.aws_api.protocol.errors import ApiError, SerializationError
from windfall.aws_api.protocol.request import HttpRequest, Response

CBOR = b"application/cbor"
_PROTOCOL_HEADER = b"smithy-protocol"
_PROTOCOL = b"rpc-v2-cbor"
_EPOCH_TAG = 1
_DEPTH_MOST = 64


def speaks_cbor(request: HttpRequest) -> bool:
    """Whether a client that sent this expects CBOR, told before its signature says which service it means."""
    return request.headers.get(_PROTOCOL_HEADER, b"").strip() == _PROTOCOL


def read_cbor(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a map; an empty body counts as an empty one. Timestamps become seconds."""
    if not body:
        return {}
    try:
        parsed = cbor2.loads(body)
    except (cbor2.CBORError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        raise SerializationError("The request body is not valid CBOR.") from None
    value = _plain(parsed, _DEPTH_MOST)
    if not isinstance(value, dict):
        raise SerializationError("The request body must be a CBOR map.")
    return value


def _plain(value: Any, depth: int) -> Any:
    if depth == 0:
        raise SerializationError("The request body is nested too deeply.")
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise SerializationError("A name in the request body is not a string.")
        return {key: _plain(item, depth - 1) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    raise SerializationError("The request body holds a value that no operation takes.")


def epoch(seconds: float) -> cbor2.CBORTag:
    """Write seconds since the epoch as the tagged number that clients read as a time."""
    return cbor2.CBORTag(_EPOCH_TAG, float(seconds))


def cbor_answer(value: Any) -> Response:
    """Write the answer of an operation with the header by which clients know its form."""
    return Response(200, CBOR, cbor2.dumps(value), ((_PROTOCOL_HEADER, _PROTOCOL),))


def cbor_refusal(error: ApiError, _request_id: str = "") -> Response:
    """An error; clients of services that once spoke the query protocol read its code from a header too."""
    message = error.message.encode("utf-8", "replace").decode("utf-8")
    side = "Sender" if error.status < 500 else "Receiver"
    return Response(
        error.status,
        CBOR,
        cbor2.dumps({**error.members, "__type": error.code, "message": message}),
        (
            (_PROTOCOL_HEADER, _PROTOCOL),
            (b"x-amzn-query-error", f"{error.code};{side}".encode("ascii")),
        ),
    )
