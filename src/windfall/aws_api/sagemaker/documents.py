"""What is kept of a training job beside what the core knows: the request as it was sent, and notes for
people.

The core carries the text without looking inside. Must not know what any member means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Document:
    """The request, and what has to be said about how it is carried out here."""

    request: dict[str, Any] = field(default_factory=dict)
    #: About the place it runs on, such as GPUs that this host does not have.
    capacity_note: str | None = None
    #: About what runs in place of its image.
    program_note: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Document).decode


def write_document(document: Document) -> str:
    """The document as text."""
    return _encode(document).decode()


def read_document(text: str) -> Document:
    """The document in a text."""
    return _decode(text)
