"""Decides where each leaf lies in a checkpoint image and how the image is cut into segment files. Pure.

An image is one linear range of bytes: first everything on CUDA devices, device by device, so that one flat
device buffer maps to one range of it; then the rest. It is cut into segment files between leaves. Nothing here
knows files, memory or frameworks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windfall.checkpoint.leaves import LeafForm

#: Where a leaf of at least a page begins, so that direct and mapped reads fit.
PAGE_BYTES = 4096
#: Where a smaller leaf begins: a cache line, and enough for every element type.
LINE_BYTES = 64
#: A segment file is closed by the leaf that brings it to this size; a larger leaf makes a larger file.
SEGMENT_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """The place of one leaf."""

    path: str
    form: LeafForm
    #: From the start of the image.
    offset: int
    segment: int

    @property
    def stop(self) -> int:
        """The first byte of the image behind the leaf."""
        return self.offset + self.form.nbytes


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a checkpoint: a range of the image, in whole pages."""

    file: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Region:
    """The range of the image that holds everything of one device."""

    device: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole image: extents in the order of the image, segments, and the ranges of CUDA devices."""

    extents: tuple[Extent, ...]
    segments: tuple[Segment, ...]
    regions: tuple[Region, ...]
    size: int

    def for_manifest(self) -> dict[str, Any]:
        """The leaf table as JSON, with offsets from the start of the leaf's own segment file."""
        return {
            "segments": [[segment.file, segment.start, segment.length] for segment in self.segments],
            "leaves": [
                [
                    extent.path,
                    extent.form.kind,
                    extent.form.dtype,
                    list(extent.form.shape),
                    extent.segment,
                    extent.offset - self.segments[extent.segment].start,
                    extent.form.nbytes,
                ]
                for extent in self.extents
            ],
        }


def is_cuda(form: LeafForm) -> bool:
    """Whether the engine copies this leaf itself, on the device."""
    return form.kind == "torch" and form.device.startswith("cuda")


def round_up(value: int, step: int) -> int:
    """The next multiple of `step` that is not below the value."""
    return -(-value // step) * step


def _place_key(form: LeafForm) -> tuple[int, str]:
    return (0, form.device) if is_cuda(form) else (1, "")


def plan(forms: Sequence[tuple[str, LeafForm]], segment_bytes: int = SEGMENT_BYTES) -> Layout:
    """Places leaves in their given order, those of CUDA devices first."""
    ordered = sorted(forms, key=lambda item: _place_key(item[1]))
    extents: list[Extent] = []
    starts = [0]
    bounds: dict[str, list[int]] = {}
    end = 0
    place = (-1, "")
    for path, form in ordered:
        key = _place_key(form)
        new_place = key != place
        place = key
        offset = round_up(end, PAGE_BYTES if new_place or form.nbytes >= PAGE_BYTES else LINE_BYTES)
        if offset - starts[-1] >= segment_bytes:
            offset = round_up(offset, PAGE_BYTES)
            starts.append(offset)
        extents.append(Extent(path, form, offset, len(starts) - 1))
        end = offset + form.nbytes
        if is_cuda(form):
            bounds.setdefault(form.device, [offset, end])[1] = end
    size = round_up(end, PAGE_BYTES)
    stops = [*starts[1:], size]
    segments = tuple(
        Segment(f"segment-{number:04d}.bin", start, stop - start)
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
    )
    regions = tuple(Region(device, start, stop) for device, (start, stop) in bounds.items())
    return Layout(tuple(extents), segments, regions, size)
