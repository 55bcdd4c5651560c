"""The files of the newest committed picture under their own names below the prefix, as SageMaker has it.

Decides what must be put and removed there, by a record of what stands there already; it is written down before anything
new appears, so that nothing is forgotten when this process is killed. Objects that the job never had are left alone.
Must not know when to commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from windfall.agent.sync.archive import Archive
from windfall.agent.sync.errors import AbandonedError
from windfall.agent.sync.manifests import PUBLISHED, FileEntry, Manifest, chunk_key
from windfall.agent.sync.reports import Happening, Say, Stage, SyncEvent
from windfall.agent.sync.uploading import ShouldStop, read_piece
from windfall.objects.errors import NotFound

_THREADS = 4


class Publisher:
    """Keeps plain names in step with manifests."""

    def __init__(self, archive: Archive, directory: str, say: Say, stage: Stage) -> None:
        self._archive = archive
        self._directory = directory
        self._say = say
        self._stage = stage
        #: What stands under each plain name: a content's name, or "" for what may or may not be there.
        self._record: dict[str, str] | None = None
        self._order: object = None
        self._told: set[str] = set()

    def adopt(self, entries: Sequence[FileEntry]) -> None:
        """Take over objects that were there before the first manifest."""
        self._write({entry.path: _as_plain(entry) for entry in entries})

    def claim(self, paths: Collection[str]) -> None:
        """Take over names that another writer may have put something under."""
        if paths:
            self._write({**self._loaded(), **dict.fromkeys(paths, "")})

    def disown(self, paths: Collection[str]) -> None:
        """Leave names to somebody else who has put something newer there."""
        if paths:
            self._write({path: content for path, content in self._loaded().items() if path not in paths})

    def is_behind(self, manifest: Manifest) -> bool:
        """Whether a manifest's files have yet to be published."""
        return self._order != manifest.order

    def publish(self, manifest: Manifest, should_stop: ShouldStop) -> None:
        """Make the plain names show a committed picture; may be called again after any failure."""
        record = self._loaded()
        wanted = {file.path: file for file in manifest.files if self._can_be_named(file.path)}
        new = [
            file for path, file in wanted.items() if record.get(path) not in (file.content, _as_plain(file))
        ]
        gone = [path for path in record if path not in wanted]
        if new or gone:
            self._archive.check_fence()
            self._write({**record, **{file.path: "" for file in new}})
            self._remove(gone if not new else _in_the_way(gone, new))
            self._put(new, manifest.chunk_bytes, should_stop)
            self._stage("published")
            self._archive.check_fence()
            self._remove(gone)
            self._write({path: file.content for path, file in wanted.items()})
        self._order = manifest.order

    def _put(self, new: Sequence[FileEntry], chunk_bytes: int, should_stop: ShouldStop) -> None:
        def put(file: FileEntry) -> None:
            if should_stop():
                raise AbandonedError("called off")
            if len(file.pieces) == 1:
                self._archive.objects.copy(chunk_key(file.pieces[0]), file.path)
            else:
                self._archive.objects.put_pieces(file.path, self._pieces(file, chunk_bytes))
            self._stage("name-published")

        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="windfall-publish")
        try:
            for _ in pool.map(put, new):
                pass
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _pieces(self, file: FileEntry, chunk_bytes: int) -> Iterator[bytes]:
        """A committed file's content: from the local file while it is still the same, else from the store."""
        for index, digest in enumerate(file.pieces):
            try:
                content = read_piece(self._directory, file.path, index * chunk_bytes, chunk_bytes)
            except OSError:
                content = b""
            if hashlib.sha256(content).hexdigest() != digest:
                content = self._archive.get_piece(digest)
            yield content

    def _remove(self, paths: Sequence[str]) -> None:
        if paths:
            self._archive.objects.delete(paths)
            self._stage("names-removed")

    def _loaded(self) -> dict[str, str]:
        if self._record is None:
            try:
                found = json.loads(self._archive.objects.get(PUBLISHED))
            except (NotFound, ValueError):
                found = {}
            self._record = {str(path): str(content) for path, content in found.items()}
        return self._record

    def _write(self, record: dict[str, str]) -> None:
        if record != self._record:
            self._archive.objects.put(PUBLISHED, json.dumps(record, separators=(",", ":")).encode())
            self._record = record

    def _can_be_named(self, path: str) -> bool:
        try:
            path.encode()
        except UnicodeEncodeError:
            if path not in self._told:
                self._told.add(path)
                text = f"{path!r} is kept, but not under its own name: object names must be UTF-8"
                self._say(SyncEvent(Happening.LEFT_OUT, text))
            return False
        return True


def _as_plain(file: FileEntry) -> str:
    """Tells an object that was brought by its plain name from a file that has changed since."""
    return f"plain {file.bytes} {file.mtime_ns}"


def _in_the_way(gone: Sequence[str], new: Sequence[FileEntry]) -> list[str]:
    """Names that cannot stand beside new ones in a store with real directories: `a` and `a/b`."""
    names = {file.path for file in new}
    parents = {name[:cut] for name in names for cut in range(len(name)) if name[cut] == "/"}
    return [
        path
        for path in gone
        if path in parents or any(path[:cut] in names for cut in range(len(path)) if path[cut] == "/")
    ]
