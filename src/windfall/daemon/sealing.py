"""Seals small values with a secret, so that a copy of where they are kept opens nothing.

Decides the form: a keystream and a tag, both of HMAC-SHA-256, under keys that are derived for each label. A value that
was sealed under one label, or with one context, cannot be opened under another. Must not know what is sealed.
"""

from __future__ import annotations

import hmac
import secrets

_NONCE_BYTES = _TAG_BYTES = 32


class Seal:
    """One secret, and what is sealed with it."""

    def __init__(self, master: bytes) -> None:
        self._master = master

    def __repr__(self) -> str:
        return "Seal()"

    def sealed(self, label: str, plain: bytes, context: bytes = b"") -> bytes:
        """The value in a form that only `opened` reads."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = self._masked(label, nonce, plain)
        return nonce + self._tag(label, nonce, hidden, context) + hidden

    def opened(self, label: str, content: bytes, context: bytes = b"") -> bytes:
        """The value; ValueError if it was sealed otherwise, or changed since."""
        nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        tag, hidden = rest[:_TAG_BYTES], rest[_TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(label, nonce, hidden, context)):
            raise ValueError("it was sealed with another secret, or was changed")
        return self._masked(label, nonce, hidden)

    def _masked(self, label: str, nonce: bytes, content: bytes) -> bytes:
        key = self._derived("mask", label)
        blocks = range((len(content) + 31) // 32)
        stream = b"".join(hmac.digest(key, nonce + block.to_bytes(4, "big"), "sha256") for block in blocks)
        return bytes(byte ^ mask for byte, mask in zip(content, stream, strict=False))

    def _tag(self, label: str, nonce: bytes, hidden: bytes, context: bytes) -> bytes:
        parts = (nonce, hidden, context)
        framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._derived("tag", label), framed, "sha256")

    def _derived(self, use: str, label: str) -> bytes:
        return hmac.digest(self._master, f"{use}\0{label}".encode(), "sha256")
