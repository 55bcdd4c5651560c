"""Brings a job's checkpoint and outputs to this machine, into a directory of the caller's own, for `windfall get`.

Decides which checkpoint is taken where the newest cannot be, and how an interrupted call goes on. A checkpoint is
restored by the code that attempts restore with, so its pieces are verified and its names cannot lead elsewhere. Must
not know where the files are put in the end.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from windfall.agent.sync.errors import NeighbourDamagedError
from windfall.agent.sync.manifests import Manifest, chunk_key, is_safe
from windfall.agent.sync.reports import no_stage
from windfall.agent.sync.restoring import Place, Source, bytes_on_disk, restore
from windfall.agent.sync.shared_prefix import Neighbour, merged
from windfall.cli.attempts import size
from windfall.cli.errors import CliError
from windfall.cli.marks import ListedMark, chosen, marks_of
from windfall.cli.notes import note
from windfall.cli.stored import READ_BYTES, SMALL_BYTES, StoredPart
from windfall.cli.terminal_text import for_terminal
from windfall.cli.wording import counted
from windfall.objects.errors import NotFound
from windfall.objects.port import Entry, ObjectStore

T = TypeVar("T")

THREADS = 4
#: How many ranges of a large object are in memory at once.
_AHEAD = 8
_SAY_EVERY_S = 0.2


class FetchProgress:
    """One line on a terminal that says how far it is; nothing where stderr goes elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._total = 0
        self._done = 0
        self._said_at = 0.0
        self._shown = sys.stderr.isatty()
        self._lock = threading.Lock()

    def expect(self, count: int) -> None:
        """This many bytes are to come."""
        self._total, self._done = count, 0

    def add(self, count: int) -> None:
        """This many more have come."""
        with self._lock:
            self._done += count
            now = time.monotonic()
            if self._shown and now - self._said_at > _SAY_EVERY_S:
                self._said_at = now
                print(
                    f"\r\x1b[K{self._what}: {size(self._done)} of {size(self._total)}",
                    end="",
                    file=sys.stderr,
                )

    def clear(self) -> None:
        """Take the line away."""
        if self._said_at:
            self._said_at = 0.0
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def fetch_checkpoint(
    part: StoredPart, directory: Path, at: str | None, progress: FetchProgress
) -> str | None:
    """Restore a checkpoint into a new directory; what was fetched, in words. None if none is saved."""
    unusable: set[tuple[int, Any]] = set()
    while True:
        marks = [mark for mark in marks_of(part) if (mark.writer.writer, mark.order) not in unusable]
        picked = chosen(marks, at)
        if not picked:
            if at is None and not marks and not unusable:
                return None
            raise CliError(_none_of(marks, at))
        if at is None:
            for passed in marks[: marks.index(picked[0])]:
                if (passed.writer.writer, passed.order) not in unusable:
                    note(f"{passed.title} is {passed.state} ({passed.problem}); taking the one before it")
        try:
            return _restored(part, picked, directory, progress)
        except NeighbourDamagedError as error:
            # Of a running job an old checkpoint may be removed meanwhile; then there is a newer one.
            [bad] = [mark for mark in picked if mark.writer.writer == error.writer]
            if at is not None:
                raise
            unusable.add((bad.writer.writer, bad.order))
            note(f"{bad.title} cannot be used: {error}; taking another one")
        finally:
            progress.clear()


def _none_of(marks: Sequence[ListedMark], at: str | None) -> str:
    if at is None:
        return (
            "none of the job's checkpoints can be used; `windfall checkpoints` says what is wrong with each"
        )
    titles = (for_terminal(mark.title, colours=False) for mark in marks if mark.manifest is not None)
    choices = ", ".join(dict.fromkeys(titles))
    return f"there is no checkpoint at {at!r}; there are: {choices or 'none'}"


def _restored(part: StoredPart, marks: Sequence[ListedMark], directory: Path, progress: FetchProgress) -> str:
    pictures = [(mark.writer, cast(Manifest, mark.manifest)) for mark in marks]
    sources, keys = [], []
    for piece in merged(None, pictures):
        writer = cast(Neighbour, piece.source)
        digests = [digest for file in piece.files for digest in file.pieces]
        keys += [writer.objects.place_of(chunk_key(digest)) for digest in digests]
        sources.append(Source(piece.manifest, piece.files, writer.get_piece, piece.links))
    part.plan(keys)
    progress.expect(sum(map(bytes_on_disk, sources)))
    label = hashlib.sha256(repr([(mark.writer.writer, mark.order) for mark in marks]).encode()).hexdigest()
    # Nothing is asked of the store itself.
    store = cast(ObjectStore, part)
    restore(sources, (), store, Place(str(directory), resumed_as=label[:12]), THREADS, no_stage)
    files = [file for source in sources for file in source.files]
    return f"{marks[0].title}, {counted(len(files), 'file')}, {size(sum(file.bytes for file in files))}"


def fetch_output(
    part: StoredPart, output: dict[str, Any], number: int, directory: Path, progress: FetchProgress
) -> str | None:
    """Bring an output into a directory, as it is stored; what was fetched, in words. None if it is not stored."""
    entries = list(part.list())
    if not entries:
        return None
    name = output["name"] if is_safe(output["name"]) else f"output-{number}"
    target = directory / name
    progress.expect(sum(entry.bytes for entry in entries))
    try:
        with ThreadPoolExecutor(THREADS, thread_name_prefix="windfall-get") as pool:
            if output["isArchive"]:
                _bring_large(pool, part, entries[0], target)
                return f"{name} ({size(entries[0].bytes)}, unpack it with `tar -xzf`)"
            safe = [entry for entry in entries if is_safe(entry.key) and _is_text(entry.key)]
            for entry in safe:
                if entry.bytes > SMALL_BYTES:
                    _bring_large(pool, part, entry, target / entry.key)
            small = [entry for entry in safe if entry.bytes <= SMALL_BYTES]
            part.plan([entry.key for entry in small])
            for group in _groups(small, 1000):
                list(pool.map(lambda entry: _bring_small(part, entry, target / entry.key), group))
    except NotFound as error:
        raise CliError(f"{name} was replaced or removed while it was fetched ({error}); try again") from None
    finally:
        progress.clear()
    if len(safe) < len(entries):
        note(
            f"{counted(len(entries) - len(safe), 'file')} of {name} left out: their names cannot be file names"
        )
    return f"{name} ({counted(len(safe), 'file')}, {size(sum(entry.bytes for entry in safe))})"


def _is_text(key: str) -> bool:
    """Whether a request can name an object; a file of a store on a disk may have any bytes in its name."""
    try:
        return bool(key.encode())
    except UnicodeEncodeError:
        return False


def _bring_small(part: StoredPart, entry: Entry, path: Path) -> None:
    if path.exists() and path.stat().st_size == entry.bytes:
        return  # from a call that was interrupted; it appears when it is whole
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(
        f".{hashlib.sha256(path.name.encode(errors='surrogateescape')).hexdigest()}.part"
    )
    partial.write_bytes(part.get(entry.key))
    _finish(partial, path, entry)


def _bring_large(pool: ThreadPoolExecutor, part: StoredPart, entry: Entry, path: Path) -> None:
    """Bring an object range by range, from where an interrupted call of the same object has stopped."""
    if path.exists() and path.stat().st_size == entry.bytes:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    label = hashlib.sha256(repr(entry).encode(errors="surrogateescape")).hexdigest()[:32]
    partial = path.with_name(f".{label}.part")
    with open(partial, "ab") as file:
        begun = min(file.tell(), entry.bytes)
        file.truncate(begun)
        for starts in _groups(range(begun, entry.bytes, READ_BYTES), _AHEAD):
            ends = [min(start + READ_BYTES, entry.bytes) for start in starts]
            file.writelines(pool.map(part.get_range, [entry.key] * len(starts), starts, ends))
    _finish(partial, path, entry)


def _finish(partial: Path, path: Path, entry: Entry) -> None:
    if partial.stat().st_size != entry.bytes:
        partial.unlink()
        raise NotFound(f"{entry.key} is not as long as it was")
    os.utime(partial, ns=(entry.changed_at * 1_000_000, entry.changed_at * 1_000_000))
    partial.rename(path)


def _groups(items: Sequence[T], count: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while group := list(islice(remaining, count)):
        yield group
