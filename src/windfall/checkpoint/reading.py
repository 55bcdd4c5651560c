"""Finds the newest checkpoint that is whole, and reads it into memory with many threads, verifying on the way.

Nothing of a model is touched before every byte has been compared with its checksum. It does not know what the
bytes mean.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from windfall.checkpoint import directory as places
from windfall.checkpoint import manifest
from windfall.checkpoint.errors import Damaged, Mismatch
from windfall.checkpoint.leaves import ReadLeaf, StoredLeaf

_THREADS = min(16, max(4, os.cpu_count() or 4))


def read_manifest(checkpoint: Path) -> manifest.Manifest:
    """The manifest of one checkpoint directory; raises Damaged."""
    try:
        return manifest.decode((checkpoint / manifest.FILE_NAME).read_bytes())
    except (OSError, ValueError) as error:
        raise Damaged(f"its manifest.json cannot be read: {error}") from error


def read_image(checkpoint: Path, checkpoint_manifest: manifest.Manifest, target: memoryview) -> None:
    """Reads all segments into memory; raises Damaged when one byte is not what was written."""
    descriptors: list[int] = []
    try:
        for segment in checkpoint_manifest.segments:
            try:
                descriptors.append(os.open(checkpoint / segment.file, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                raise Damaged(f"{segment.file} cannot be opened: {error.strerror}") from error
            if os.fstat(descriptors[-1]).st_size != segment.length:
                raise Damaged(f"{segment.file} does not have its {segment.length} bytes")
        with ThreadPoolExecutor(_THREADS) as threads:
            tasks = [
                threads.submit(_read_piece, descriptor, segment, number, target)
                for descriptor, segment in zip(descriptors, checkpoint_manifest.segments, strict=True)
                for number in range(len(segment.crc32))
            ]
            for task in tasks:
                task.result()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _read_piece(descriptor: int, segment: manifest.StoredSegment, number: int, target: memoryview) -> None:
    at = number * segment.piece_bytes
    length = min(segment.piece_bytes, segment.length - at)
    piece = target[segment.start + at : segment.start + at + length]
    done = 0
    while done < length:
        try:
            count = os.preadv(descriptor, [piece[done:]], at + done)
        except OSError as error:
            raise Damaged(f"{segment.file} cannot be read at {at + done}: {error.strerror}") from error
        if count == 0:
            raise Damaged(f"{segment.file} ends at {at + done}")
        done += count
    if zlib.crc32(piece) != segment.crc32[number]:
        raise Damaged(f"{segment.file} is not what was written, between {at} and {at + length}")


def newest_whole(
    directory: Path,
    room: Callable[[int], memoryview],
    passed_over: Callable[[int, str], None],
) -> manifest.Manifest | None:
    """Reads the newest checkpoint that verifies into `room(size)`; reports each that does not; None if none does."""
    for step in places.committed_steps(directory):
        checkpoint = directory / places.name_of(step)
        try:
            candidate = read_manifest(checkpoint)
            if candidate.step != step:
                raise Damaged(f"its manifest is that of step {candidate.step}")
            read_image(checkpoint, candidate, room(candidate.size))
        except Damaged as damage:
            passed_over(step, str(damage))
        else:
            return candidate
    return None


def leaf_reader(checkpoint_manifest: manifest.Manifest, image: memoryview, name: str) -> ReadLeaf:
    """What a framework reads the leaves of one tracked object with."""

    def read(path: str) -> StoredLeaf:
        extent = checkpoint_manifest.leaves.get(f"{name}/{path}")
        if extent is None:
            raise Mismatch(
                f"the checkpoint of step {checkpoint_manifest.step} has no {path!r} for {name!r}: track the same"
                " objects as the run that saved it, or open another directory"
            )
        return StoredLeaf(extent.dtype, extent.shape, image[extent.offset : extent.offset + extent.nbytes])

    return read
