"""Finds the scalars in a TensorBoard event file. A program of its own, because what a job wrote may be anything.

The kernel ends it when it has used up its CPU time or memory. Reads the file from its input, and prints one JSON line
[tag, [[at, step, value], ...]] for each scalar, `at` in milliseconds; at last {"bad": n}, the number of records that
did not verify. Knows the frame of a record (length, checksum, data, checksum) and those few fields of the protocol
buffers Event, Summary and Tensor that hold scalars; all other fields are skipped. Uses the standard library alone and
runs without the package.
"""

from __future__ import annotations

import json
import math
import resource
import struct
import sys
from collections.abc import Iterator

_MEMORY_BYTES, _CPU_S = 1 << 30, 20
#: Records beyond this are pictures, graphs or sounds.
RECORD_BYTES = 1 << 16
TAGS_MAX, TAG_LENGTH = 40, 100
POINTS_MAX = 500
_FLOAT, _DOUBLE = 1, 2  # of TensorFlow's types
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # of protocol buffers' wire types

Field = tuple[int, int, int | bytes]
Point = tuple[int, int, float]


class MalformedError(Exception):
    """These bytes do not make a message."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC = _crc_table()


def masked_crc(content: bytes) -> int:
    """The checksum of a record: CRC-32C, rotated and shifted, as the format has it."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(content: bytes) -> Iterator[bytes | None]:
    """The records of a file; None for one that is damaged. Ends where the frame cannot be followed."""
    at = 0
    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        (crc,) = struct.unpack_from("<I", content, at + 8)
        if masked_crc(content[at : at + 8]) != crc:
            yield None
            return
        end = at + 12 + length
        if end + 4 > len(content):
            return  # still being written
        if length <= RECORD_BYTES:
            data = content[at + 12 : end]
            yield data if struct.unpack_from("<I", content, end)[0] == masked_crc(data) else None
        at = end + 4


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message: number, wire type, value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(message, at)
        else:
            if kind == _BYTES:
                length, at = _varint(message, at)
            elif kind in (_FIXED64, _FIXED32):
                length = 8 if kind == _FIXED64 else 4
            else:
                raise MalformedError
            value, at = message[at : at + length], at + length
            if at > len(message):
                raise MalformedError
        yield key >> 3, kind, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise MalformedError


def scalars(event: bytes) -> Iterator[tuple[str, Point]]:
    """The scalars of one event, by tag."""
    wall_s, step = 0.0, 0
    values: list[bytes] = []
    for number, kind, value in fields(event):
        if number == 1 and kind == _FIXED64 and isinstance(value, bytes):
            (wall_s,) = struct.unpack("<d", value)
        elif number == 2 and kind == _VARINT and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5 and isinstance(value, bytes):
            values += [inner for n, k, inner in fields(value) if n == 1 and isinstance(inner, bytes)]
    if not math.isfinite(wall_s) or not 0 < wall_s < 1e11:
        return
    for message in values:
        tag, scalar = _summary_value(message)
        if tag and scalar is not None and math.isfinite(scalar):
            yield tag, (int(wall_s * 1000), step, scalar)


def _summary_value(message: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, kind, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")[:TAG_LENGTH]
        elif number == 2 and kind == _FIXED32 and isinstance(value, bytes):
            (scalar,) = struct.unpack("<f", value)
        elif number == 8 and isinstance(value, bytes):
            scalar = _tensor_scalar(value)
    return tag, scalar


def _tensor_scalar(message: bytes) -> float | None:
    """The number of a tensor that has only one."""
    kind_of_number, content = 0, b""
    for number, kind, value in fields(message):
        if number == 1 and isinstance(value, int):
            kind_of_number = value
        elif (number == 4 and kind == _BYTES) or number == {_FLOAT: 5, _DOUBLE: 6}.get(kind_of_number):
            content = value if isinstance(value, bytes) else b""
    form = {(_FLOAT, 4): "<f", (_DOUBLE, 8): "<d"}.get((kind_of_number, len(content)))
    return None if form is None else float(struct.unpack(form, content)[0])


def curves_of(content: bytes) -> tuple[dict[str, list[Point]], int]:
    """All scalars by tag, thinned to a bounded number of points, and how many records were damaged."""
    curves: dict[str, list[Point]] = {}
    bad = 0
    for record in records(content):
        try:
            points = None if record is None else list(scalars(record))
        except MalformedError:
            points = None
        if points is None:
            bad += 1
            continue
        for tag, point in points:
            if tag in curves or len(curves) < TAGS_MAX:
                curve = curves.setdefault(tag, [])
                curve.append(point)
                if len(curve) > 4 * POINTS_MAX:
                    del curve[1:-1:2]
    return curves, bad


def main() -> None:
    """Read one file and print its curves."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    curves, bad = curves_of(sys.stdin.buffer.read())
    for tag, points in curves.items():
        sys.stdout.write(json.dumps([tag, points]) + "\n")
    sys.stdout.write(json.dumps({"bad": bad}) + "\n")


if __name__ == "__main__":
    main()
