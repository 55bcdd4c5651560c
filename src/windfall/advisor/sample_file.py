"""How samples lie in a file: a line of JSON that says what they are of, then records of one size.

The first record is the newest sample as it was taken; the others are the history, oldest first. A history that is full
is halved: each two neighbours become one, and from then on one record stands for twice as many samples, so that a file
has a largest size and a job of a week still has thousands of points of one width. Each record ends with a checksum:
one that was half written when its writer was killed is not a record. Decides bytes; must not open files.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

from windfall.advisor.samples import NAN, GpuSample, Recording, Sample, SampledGpu

VERSION = 1
#: Records in the history of a full file.
MOST_RECORDS = 4096
#: A first line that is longer is not ours.
HEADER_MAX_BYTES = 64 << 10
#: The end of the year 9999, and a number of bytes that no machine has.
_LAST_MOMENT, _MOST_NUMBER = 253_402_300_799_999, 1 << 60

_TIMES = ("at", "span_ms")
_FIELDS = tuple(field.name for field in fields(Sample) if field.name not in (*_TIMES, "gpus"))
_GPU_FIELDS = tuple(field.name for field in fields(GpuSample))
#: What must fit somewhere is kept at its peak, what was counted is added up; all else is a mean over time.
_PEAKS = frozenset({"memory_bytes"})
_AMOUNTS = frozenset({"steps", "data_wait_s", "stall_s"})
_BITS = frozenset({"throttle"})


@dataclass(frozen=True, slots=True)
class Header:
    """What the records of a file are of."""

    token: str
    vcpus: float
    memory_mib: int
    gpus: tuple[SampledGpu, ...] = ()
    #: How many samples one record of the history stands for.
    merges: int = 1

    def encode(self) -> bytes:
        """Return the first line of the file."""
        document = {"version": VERSION, **asdict(self)}
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


Read = TypeVar("Read", Header, SampledGpu)


class SampleLayout:
    """The records of a file whose attempt has this many GPUs."""

    def __init__(self, gpu_count: int) -> None:
        self._gpu_count = gpu_count
        self._values = struct.Struct(f"<QI{len(_FIELDS) + gpu_count * len(_GPU_FIELDS)}f")
        #: Bytes of one record, with the checksum behind its values.
        self.size = self._values.size + 4

    def pack(self, sample: Sample) -> bytes:
        """Return one record."""
        floats = [getattr(sample, name) for name in _FIELDS]
        for gpu in sample.gpus:
            floats += [getattr(gpu, name) for name in _GPU_FIELDS]
        values = self._values.pack(sample.at, sample.span_ms, *floats)
        return values + zlib.crc32(values).to_bytes(4, "little")

    def unpack(self, record: bytes) -> Sample | None:
        """Return the sample, or None where the record is torn."""
        values, checksum = record[:-4], record[-4:]
        if len(record) != self.size or zlib.crc32(values).to_bytes(4, "little") != checksum:
            return None
        at, span_ms, *floats = self._values.unpack(values)
        if at > _LAST_MOMENT:
            return None
        # What is beyond all measure would be no JSON, and no integer.
        floats = [NAN if math.isinf(value) else value for value in floats]
        own, width = len(_FIELDS), len(_GPU_FIELDS)
        gpus = tuple(GpuSample(*floats[begin : begin + width]) for begin in range(own, len(floats), width))
        return Sample(at, span_ms, **dict(zip(_FIELDS, floats, strict=False)), gpus=gpus)


def parse_header(content: bytes) -> tuple[Header, int] | None:
    """Return the header and where the records begin; None for what is not such a file."""
    end = content.find(b"\n", 0, HEADER_MAX_BYTES)
    if end < 0:
        return None
    # Another machine may have written it: every member has its type, or it is none of ours.
    try:
        document = json.loads(content[:end], parse_constant=_refuse)
        if document.pop("version") != VERSION:
            return None
        gpus = tuple(_checked(SampledGpu(**gpu)) for gpu in document.pop("gpus"))
        return _checked(Header(**document, gpus=gpus)), end + 1
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a measure")


def _checked(read: Read) -> Read:
    """What was read, if texts are texts and numbers are numbers that a machine can have; raises ValueError."""
    for field in fields(read):
        value = getattr(read, field.name)
        if field.type == "str":
            is_sound = isinstance(value, str)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            is_sound = 0 <= value <= _MOST_NUMBER and (isinstance(value, int) or "float" in str(field.type))
        else:
            is_sound = isinstance(value, tuple) or (value is None and "None" in str(field.type))
        if not is_sound:
            raise ValueError(f"{field.name} cannot be {value!r:.80}")
    return read


def parse(content: bytes) -> tuple[Header, list[Sample]] | None:
    """Return the header and the history of a whole file; None for what is not such a file."""
    parsed = parse_header(content)
    if parsed is None:
        return None
    header, begin = parsed
    layout = SampleLayout(len(header.gpus))
    history = []
    for offset in range(begin + layout.size, len(content) - layout.size + 1, layout.size):
        sample = layout.unpack(content[offset : offset + layout.size])
        if sample is not None:
            history.append(sample)
    return header, history


def recording(content: bytes) -> Recording | None:
    """Return what a whole file tells."""
    parsed = parse(content)
    if parsed is None:
        return None
    header, history = parsed
    return Recording(header.token, header.vcpus, header.memory_mib, header.gpus, tuple(history))


def newest(content: bytes) -> tuple[tuple[SampledGpu, ...], Sample] | None:
    """Return the newest sample with the GPUs that it is of, from a file or from its beginning."""
    parsed = parse_header(content)
    if parsed is None:
        return None
    header, begin = parsed
    layout = SampleLayout(len(header.gpus))
    sample = layout.unpack(content[begin : begin + layout.size])
    return None if sample is None else (header.gpus, sample)


def merged(first: Sample, second: Sample) -> Sample:
    """Return one sample for two that follow one another; what only one of them knows is that one's."""
    spans = first.span_ms, second.span_ms
    values = {name: _merge(name, getattr(first, name), getattr(second, name), spans) for name in _FIELDS}
    gpus = tuple(
        GpuSample(
            *(_merge(name, getattr(earlier, name), getattr(later, name), spans) for name in _GPU_FIELDS)
        )
        for earlier, later in zip(first.gpus, second.gpus, strict=True)
    )
    return Sample(second.at, sum(spans), **values, gpus=gpus)


def halved(history: Sequence[Sample]) -> list[Sample]:
    """Return a history with each two neighbours made one; an odd last one stays."""
    pairs = [merged(*history[n : n + 2]) for n in range(0, len(history) - 1, 2)]
    return pairs + list(history[len(pairs) * 2 :])


def _merge(name: str, first: float, second: float, spans: tuple[int, int]) -> float:
    if math.isnan(first) or math.isnan(second):
        return second if math.isnan(first) else first
    if name in _PEAKS:
        return max(first, second)
    if name in _AMOUNTS:
        return first + second
    if name in _BITS:
        return float(int(first) | int(second))
    whole = sum(spans)
    return (first * spans[0] + second * spans[1]) / whole if whole else NAN
