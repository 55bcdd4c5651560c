"""The kept part of a request as text: written when it is sent, read when it is described.

The core carries these texts without looking inside. Must not know what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

EMPTY = "{}"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def write_document(members: Mapping[str, Any]) -> str:
    """The members as JSON."""
    return _encode(members).decode() if members else EMPTY


def read_document(document: str) -> dict[str, Any]:
    """The members that were kept."""
    return {} if document == EMPTY else _decode(document)


def without(params: Mapping[str, Any], *members: str) -> dict[str, Any]:
    """A request without the members that the core holds as its own fields."""
    return {name: value for name, value in params.items() if name not in members}
