"""What all messages between daemon and agent have in common."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, tag_field="type", tag=True, omit_defaults=True, gc=False):
    """Base of everything that crosses the socket."""
