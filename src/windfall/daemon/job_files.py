"""ListFiles and ReadFile: what a job has stored as plain files, for the page.

Decides which files are shown: those of its newest whole checkpoint, its outputs, and its logs. A file is read range by
range, each answer bounded, so that followers can hand it on; `content` names the version that was listed, so that no
file is put together from two. Pieces of a checkpoint are verified. Must not know how the caller keeps them.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from windfall.agent.sync.errors import NeighbourDamagedError
from windfall.agent.sync.manifests import FileEntry, Manifest, is_safe
from windfall.agent.sync.shared_prefix import Neighbour, merged, neighbours
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.service import Call
from windfall.control.node_parts import own_staging
from windfall.control.ports import AttemptFiles
from windfall.daemon.request_fields import needed_count, needed_text
from windfall.daemon.stored_files import ReadablePart, StoredFiles
from windfall.jobs.job import Job
from windfall.objects.port import Entry, ObjectStore
from windfall.views import jobs
from windfall.views.spelling import Answer

FILES_MAX = 1000
#: What one answer has at most; a piece of a checkpoint is as long.
READ_BYTES = 16 << 20
#: For how long a picture serves those who read its files, and how many are remembered.
PICTURE_LASTS_S, _PICTURES_MAX = 30.0, 32
#: No writer's own number, so that all writers are others.
_NOBODY = -1
#: Above every fence: an attempt's number in time.
_ANY_FENCE = 1 << 62


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A file of a checkpoint, and whose picture it is in."""

    writer: Neighbour
    manifest: Manifest
    entry: FileEntry

    def read(self, start: int) -> bytes:
        """From `start` to the end of the piece that holds it; nothing at the end of the file."""
        size = self.manifest.chunk_bytes
        index = start // size
        if start >= self.entry.bytes or index >= len(self.entry.pieces):
            return b""
        piece = self.writer.get_piece(self.entry.pieces[index])
        return piece[start - index * size : size]


class Pictures:
    """The newest whole checkpoints of jobs, for all callers; each is looked up anew after a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pictures: OrderedDict[str, tuple[float, dict[str, PictureFile]]] = OrderedDict()

    def of(self, job: Job, store: ObjectStore, *, anew: bool = False) -> dict[str, PictureFile]:
        """The files of a job's newest whole checkpoint, by path; called in a thread."""
        made = self._pictures.get(job.id)
        if made is not None and not anew and self._clock() < made[0]:
            return made[1]
        newest = [
            (writer, manifest)
            for writer in neighbours(store, _NOBODY)
            if (manifest := writer.newest(_ANY_FENCE)) is not None
        ]
        files = {
            file.path: PictureFile(part.source, part.manifest, file)
            for part in merged(None, newest)
            if part.source is not None
            for file in part.files
        }
        self._pictures[job.id] = (self._clock() + PICTURE_LASTS_S, files)
        while len(self._pictures) > _PICTURES_MAX:
            self._pictures.popitem(last=False)
        return files


class JobFiles:
    """The handlers, for one caller."""

    def __init__(
        self,
        stored: StoredFiles,
        logs: AttemptFiles,
        pictures: Pictures,
        clock_ms: Callable[[], int],
    ) -> None:
        self._stored, self._logs, self._pictures, self._clock_ms = stored, logs, pictures, clock_ms

    async def list_files(self, call: Call) -> Answer:
        """Every file that can be read; of many, the first ones, and how many were left out."""
        job = await self._stored.job(call)
        problems: list[str] = []
        files, left_out = await self._stored_files(job, problems)
        files += await asyncio.to_thread(self._log_files, job)
        marks = [attempt.checkpoint for attempt in job.begun_attempts if attempt.checkpoint is not None]
        return {
            "at": self._clock_ms(),
            "jobId": job.id,
            "checkpoint": jobs.checkpoint(marks[-1]) if marks else None,
            "files": files,
            "leftOut": left_out,
            "problems": problems,
        }

    async def stored_rows(self, job: Job, problems: list[str]) -> list[Answer]:
        """The files of a job without its logs; what keeps some from being listed is added to `problems`."""
        return (await self._stored_files(job, problems))[0]

    async def _stored_files(self, job: Job, problems: list[str]) -> tuple[list[Answer], int]:
        files: list[Answer] = []
        left_out = 0
        for part, number in _parts(job):
            try:
                listed, more = await self._listed(job, part, number)
            except ApiError as error:
                problems.append(f"{part}: {error.message}")
                continue
            room = max(0, FILES_MAX - len(files))
            files += listed[:room]
            left_out += more + len(listed[room:])
        return files, left_out

    async def read(self, call: Call) -> Response:
        """Bytes of one file from `start` on, as many as one answer has; none at its end."""
        part, path, start = needed_text(call, "part"), needed_text(call, "path"), needed_count(call, "start")
        job = await self._stored.job(call)
        if part == "log":
            content = await asyncio.to_thread(self._read_log, job, path, start)
        else:
            version, number = needed_text(call, "content"), call.params.get("output")
            content = await self.contents(job, (part, number), path, version, start)
        headers = ((b"x-content-type-options", b"nosniff"), (b"content-disposition", b"attachment"))
        return Response(200, b"application/octet-stream", content, headers)

    async def contents(
        self, job: Job, place: tuple[str, int | None], path: str, version: str, start: int
    ) -> bytes:
        """Bytes of a stored file, if it still is what was listed."""
        opened = await self._stored.opened(job, *place)

        def from_checkpoint() -> bytes | None:
            for anew in (False, True):
                file = self._pictures.of(job, opened.store, anew=anew).get(path)
                if file is not None and file.entry.content == version:
                    try:
                        return file.read(start)
                    except NeighbourDamagedError:
                        continue
            return None

        def from_output() -> bytes | None:
            entry = opened.store.head(path) if opened.holds(path) else None
            if entry is None or _version(entry) != version:
                return None
            return opened.store.get_range(path, start, min(start + READ_BYTES, entry.bytes))

        content = await self._stored.do(from_checkpoint if place[0] == "checkpoint" else from_output)
        if content is None:
            raise ApiError(
                "Changed", f"{path[:200]!r} was replaced or removed since it was listed; list again.", 409
            )
        return content

    async def _listed(self, job: Job, part: str, number: int | None) -> tuple[list[Answer], int]:
        opened = await self._stored.opened(job, part, number)

        def look() -> tuple[list[Answer], int]:
            entries = (
                _of_picture(self._pictures.of(job, opened.store, anew=True))
                if part == "checkpoint"
                else _of_output(opened)
            )
            shown = [_row(part, number, *entry) for entry in islice(entries, FILES_MAX)]
            return [row for row in shown if row is not None], shown.count(None) + sum(1 for _ in entries)

        return await self._stored.do(look)

    def _log_files(self, job: Job) -> list[Answer]:
        sizes = {it.number: self._logs.log(it.task_id).size for it in job.begun_attempts[-20:]}
        return [
            {"part": "log", "output": None, "path": _log_name(number), "bytes": size, "content": ""}
            for number, size in sizes.items()
            if size
        ]

    def _read_log(self, job: Job, path: str, start: int) -> bytes:
        for attempt in job.begun_attempts:
            if _log_name(attempt.number) == path:
                return self._logs.log(attempt.task_id).read(start, READ_BYTES)
        raise ApiError("NotFound", f"Job {job.id} has no log {path[:200]!r}.", 404)


def _parts(job: Job) -> list[tuple[str, int | None]]:
    staging = None if job.is_array else own_staging(job)
    if staging is None:
        return []
    checkpoints: list[tuple[str, int | None]] = [("checkpoint", None)] if staging.checkpoints else []
    return checkpoints + [("output", number) for number in range(len(staging.outputs))]


def _of_picture(files: dict[str, PictureFile]) -> Iterator[tuple[str, int, int, str]]:
    for path in sorted(files):
        entry = files[path].entry
        yield path, entry.bytes, entry.mtime_ns // 1_000_000, entry.content


def _of_output(opened: ReadablePart) -> Iterator[tuple[str, int, int, str]]:
    for entry in opened.entries():
        yield entry.key, entry.bytes, entry.changed_at, _version(entry)


def _version(entry: Entry) -> str:
    return f"{entry.bytes:x}-{entry.changed_at:x}"


def _row(
    part: str, number: int | None, path: str, size: int, changed_at: int, version: str
) -> dict[str, Any] | None:
    """One file; None for a name that no request can say, or that cannot be a file's."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return None
    if not is_safe(path):
        return None
    return {
        "part": part,
        "output": number,
        "path": path,
        "bytes": size,
        "changedAt": changed_at,
        "content": version,
    }


def _log_name(number: int) -> str:
    return f"attempt-{number}.log"
