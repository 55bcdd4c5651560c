"""TensorBoard event files among what a job has stored, as curves.

A job's event files are found in its newest checkpoint and in its outputs, so the curves are as new as those. Decides
which files are read, how much of them, and which attempt a point belongs to. What was read is remembered until the job
has stored something new. Files are read by a process that cannot outlast its limits (event_scan.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.daemon.job_files import JobFiles
from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job
from windfall.views.spelling import Answer

#: The newest files, and how much of each and of all together is read; each from its beginning.
FILES_MAX, FILE_BYTES, ALL_BYTES = 20, 16 << 20, 64 << 20
CURVES_MAX, POINTS_MAX = 40, 500
_JOBS_REMEMBERED = 100
_SCAN_S = 60.0
#: How long a caller waits while the files of others are read, before it is answered with what was known.
PATIENCE_S = 2.0

log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("event_scan.py")

#: [at, step, value], as in other curves.
Point = list[Any]


@dataclass(slots=True)
class EventCurves:
    """The scalars of a job's event files, by name."""

    curves: dict[str, list[Point]] = field(default_factory=dict)
    #: Files, or parts of them, that were not read, and records that did not verify.
    left_out: int = 0

    def during(self, attempt: Attempt) -> dict[str, list[Point]]:
        """The part of each curve that was written while an attempt ran, thinned."""
        begin, end = attempt.placed_at, attempt.stopped_at
        parts = {
            name: [point for point in points if begin <= point[0] and (end is None or point[0] <= end)]
            for name, points in self.curves.items()
        }
        return {name: _thinned(points) for name, points in parts.items() if points}


class EventFiles:
    """The event curves of jobs, for all callers; each version of a job's files is read once."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._jobs: OrderedDict[str, tuple[Any, EventCurves]] = OrderedDict()
        #: One job at a time: many callers must not become many processes.
        self._reading = asyncio.Lock()

    async def of(self, job: Job, files: JobFiles) -> EventCurves:
        """The curves of a job; empty where it has stored none. `files` are those that the caller can see."""
        stored = tuple(it.checkpoint.at for it in job.attempts if it.checkpoint is not None)
        version = (stored, job.state)
        made = self._jobs.get(job.id)
        if made is not None and made[0] == version:
            return made[1]
        try:
            await asyncio.wait_for(self._reading.acquire(), PATIENCE_S)
        except TimeoutError:
            return EventCurves() if made is None else made[1]
        try:
            problems: list[str] = []
            curves = await self._read(job, await files.stored_rows(job, problems), files)
        finally:
            self._reading.release()
        if not problems:  # A storage that was away is asked again.
            self._jobs[job.id] = (version, curves)
            while len(self._jobs) > _JOBS_REMEMBERED:
                self._jobs.popitem(last=False)
        return curves

    async def _read(self, job: Job, rows: Sequence[Answer], files: JobFiles) -> EventCurves:
        events = [row for row in rows if ".tfevents." in _base(row["path"])]
        events.sort(key=lambda row: row["changedAt"], reverse=True)
        read, room = EventCurves(left_out=max(0, len(events) - FILES_MAX)), ALL_BYTES
        events = events[:FILES_MAX]
        folders = {_folder(row["path"]) for row in events}
        # The oldest first, so that points come in the order of their time.
        for row in reversed(events):
            content = await self._content(job, files, row, min(room, FILE_BYTES))
            room -= len(content)
            read.left_out += len(content) < row["bytes"]
            prefix = f"{_base(_folder(row['path'])) or '.'}/" if len(folders) > 1 else ""
            for line in await asyncio.to_thread(self._scan, content):
                if isinstance(line, dict):
                    read.left_out += line["bad"]
                    continue
                name = prefix + line[0]
                if name in read.curves or len(read.curves) < CURVES_MAX:
                    read.curves.setdefault(name, []).extend(line[1])
                else:
                    read.left_out += 1
        for points in read.curves.values():
            points.sort(key=lambda point: point[0])
        return read

    async def _content(self, job: Job, files: JobFiles, row: Answer, most: int) -> bytes:
        content = b""
        try:
            while len(content) < min(most, row["bytes"]):
                place = (row["part"], row["output"])
                part = await files.contents(job, place, row["path"], row["content"], len(content))
                if not part:
                    break
                content += part
        except ApiError as error:
            log.info("an event file of job %s was not read: %s", job.id, error.message)
        return content[:most]

    def _scan(self, content: bytes) -> Sequence[Any]:
        try:
            # -I and -S: nothing of the user's environment or site, which also makes the start quick.
            done = subprocess.run(
                [self._python, "-I", "-S", str(_PROGRAM)],
                input=content,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=_SCAN_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("an event file could not be read: %s", type(error).__name__)
            return [{"bad": 1}]
        return [json.loads(line) for line in done.stdout.splitlines() if line.endswith((b"]", b"}"))]


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _thinned(points: list[Point]) -> list[Point]:
    """No more than a bounded number of points, evenly, the last one always."""
    stride = -(-len(points) // POINTS_MAX)
    return points[(len(points) - 1) % stride :: stride]
