"""The frames of `application/vnd.amazon.eventstream`, which carry a streamed answer.

Decides bytes only: a prelude with both lengths and its checksum, headers, the payload, and a checksum over all. Must
not know where the payload comes from.
"""

from __future__ import annotations

import struct
from binascii import crc32

CONTENT_TYPE = b"application/vnd.amazon.eventstream"
#: A larger part of an answer is sent in several frames: clients hold one whole frame in memory.
PAYLOAD_BYTES_MAX = 64 * 1024

_PRELUDE = struct.Struct("!II")
_CHECKSUM = struct.Struct("!I")
_STRING = 7
#: Prelude with its checksum, and the checksum at the end.
_AROUND_BYTES = 16


def _header(name: bytes, value: bytes) -> bytes:
    return struct.pack(f"!B{len(name)}sBH", len(name), name, _STRING, len(value)) + value


def frame(headers: bytes, payload: bytes) -> bytes:
    """One message with headers that are encoded already."""
    prelude = _PRELUDE.pack(_AROUND_BYTES + len(headers) + len(payload), len(headers))
    checked = prelude + _CHECKSUM.pack(crc32(prelude)) + headers + payload
    return checked + _CHECKSUM.pack(crc32(checked))


_PART_HEADERS = (
    _header(b":event-type", b"PayloadPart")
    + _header(b":content-type", b"application/octet-stream")
    + _header(b":message-type", b"event")
)


def payload_parts(payload: bytes) -> bytes:
    """A part of an answer as frames; nothing for an empty one."""
    if len(payload) <= PAYLOAD_BYTES_MAX:
        return frame(_PART_HEADERS, payload) if payload else b""
    return b"".join(
        frame(_PART_HEADERS, payload[start : start + PAYLOAD_BYTES_MAX])
        for start in range(0, len(payload), PAYLOAD_BYTES_MAX)
    )


def exception(kind: str, payload: bytes) -> bytes:
    """The frame that ends a stream with an error of the service's model; `payload` is its JSON."""
    headers = (
        _header(b":exception-type", kind.encode("ascii"))
        + _header(b":content-type", b"application/json")
        + _header(b":message-type", b"exception")
    )
    return frame(headers, payload)
