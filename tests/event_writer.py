"""Writes scalars as TensorBoard's writers do, with the standard library alone: jobs of tests import it by its path."""

from __future__ import annotations

import struct


def a_record(data: bytes) -> bytes:
    """A record with its length and checksums."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def a_scalar(tag: str, value: float, step: int = 1, at: float = 1_700_000_000.0) -> bytes:
    """An event with one scalar, `at` in seconds."""
    name = tag.encode()
    message = b"\x0a" + _varint(len(name)) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + _varint(len(message)) + message
    event = b"\x09" + struct.pack("<d", at) + b"\x10" + _varint(step)
    return a_record(event + b"\x2a" + _varint(len(summary)) + summary)


def masked(content: bytes) -> int:
    """CRC-32C bit by bit, with the format's mask."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(number: int) -> bytes:
    content = b""
    while number >= 0x80:
        content += bytes([number & 0x7F | 0x80])
        number >>= 7
    return content + bytes([number])
