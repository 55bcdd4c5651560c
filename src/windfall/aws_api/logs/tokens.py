"""Tokens: where the next page begins, in an opaque form that clients pass back.

Decides the forms and detects tokens that were changed, or that belong to another stream or request. The check
catches mistakes, not attackers: a position in a log that the caller may read is not secret. Must not know events.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import secrets
from typing import Any, Literal

from windfall.aws_api.logs.errors import token_invalid

Direction = Literal["f", "b"]

_POSITION = re.compile(r"([fb])/(\d{39})(\d{17})/s", re.ASCII)
_CHECK_BYTES = 8
#: Nobody can make a token that was not given, so what comes out of one needs no second look.
_SECRET = secrets.token_bytes(32)


def position_token(direction: Direction, task_id: str, position: int) -> str:
    """Write a place in one stream as CloudWatch's `f/<56 digits>/s`."""
    return f"{direction}/{_check_digits(direction, task_id, position)}{position:017d}/s"


def read_position(token: str, task_id: str) -> tuple[Direction, int]:
    """Return the direction and the place of a token that was given out for this stream."""
    match = _POSITION.fullmatch(token)
    if match is None:
        raise token_invalid()
    direction: Direction = "f" if match[1] == "f" else "b"
    position = int(match[3])
    if match[2] != _check_digits(direction, task_id, position):
        raise token_invalid()
    return direction, position


def event_id(task_id: str, start: int) -> str:
    """Name an event by its stream and its place, which no other event shares."""
    return f"{int(task_id, 16):039d}{start:017d}"


def sealed(question: object, place: object) -> str:
    """Write the place in the answers to a question as one opaque word."""
    body = json.dumps(place, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_check(question, body) + body).decode().rstrip("=")


def unsealed(question: object, token: str) -> Any:
    """Return the place that was sealed for the same question."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise token_invalid() from None
    body = raw[_CHECK_BYTES:]
    if not body or raw[:_CHECK_BYTES] != _check(question, body):
        raise token_invalid()
    return json.loads(body)


def _check(question: object, body: bytes) -> bytes:
    encoded = json.dumps(question, sort_keys=True).encode()
    return hashlib.blake2b(encoded + b"\0" + body, digest_size=_CHECK_BYTES, key=_SECRET).digest()


def _check_digits(direction: str, task_id: str, position: int) -> str:
    digest = hashlib.blake2b(f"{direction}:{task_id}:{position}".encode(), digest_size=16).digest()
    return f"{int.from_bytes(digest):039d}"
