"""A request and an answer as plain values, and the reading of paths and queries.

Decides how bytes of a URL become text: strictly, and the same way for the signature and for the parameters,
so that what is acted upon is what was signed. Must not know services, keys or ASGI.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from windfall.aws_api.protocol.errors import SerializationError

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request, its body complete."""

    method: str
    #: The path as sent, still percent-encoded, without the query.
    path: str
    #: The query as sent, still percent-encoded.
    query: str
    #: Names in lower case; repeated headers joined by a comma, as signatures do it.
    headers: Mapping[bytes, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP answer; the request id is added by the application."""

    status: int
    content_type: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    #: More of the body, sent as it comes.
    more: AsyncIterator[bytes] | None = None


def percent_decode(text: str) -> str:
    """Decode percent-escapes, which must give UTF-8; a plus sign stays a plus sign."""
    if not text.isascii():
        raise SerializationError("The URL has characters that must be percent-encoded.")
    if "%" not in text:
        return text
    if _BAD_ESCAPE.search(text):
        raise SerializationError("The URL has a percent sign that is not followed by two hexadecimal digits.")
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise SerializationError("The URL is not UTF-8 after percent-decoding.") from None


def query_pairs(query: str) -> list[tuple[str, str]]:
    """Split a query into decoded pairs, in the order sent."""
    if not query:
        return []
    pairs = []
    for piece in query.split("&"):
        name, _, value = piece.partition("=")
        pairs.append((percent_decode(name), percent_decode(value)))
    return pairs
