"""What the page shows of the past: curves of activity and reasons for waiting, in two bounded files of the leader's.

The leader adds to them every ten seconds; every daemon of the same data directory reads them. They are for people who
look, so they are written without a sync: a crash costs the last points at most. Decides how long and how finely the
past is remembered. Must not know what a point or a reason means.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windfall.accounting.prices import Rates
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.tenants.gate import ids_in, without_others
from windfall.control.ports import AttemptFiles, Store
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.loop import ControlLoop
from windfall.daemon.request_fields import needed_text, no_such_job
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.states import JobState
from windfall.store.errors import StoreError
from windfall.views.activity import (
    OF_ALL_TENANTS,
    WaitReason,
    changes_of,
    group_name,
    point,
    reasons_of,
    waiting_now,
)
from windfall.views.measurements import fresh
from windfall.views.spelling import Answer

log = logging.getLogger(__name__)

EVERY_S = 10.0
#: Six hours of every point, and a week of every thirtieth.
FINE_POINTS, COARSE_POINTS, COARSE = 2_160, 2_016, 30
HOURS_MAX, HOURS_USUAL = 168, 6
REASONS_MAX = 20_000


def activity_file(data: Path) -> Path:
    """Where the curves are."""
    return data / "page" / "activity.jsonl"


def reasons_file(data: Path) -> Path:
    """Where the reasons are."""
    return data / "page" / "reasons.jsonl"


class Lines:
    """A file of JSON lines that is cut when it has twice as many as are wanted."""

    def __init__(self, path: Path, thin: Callable[[list[Any]], list[Any]], most: int) -> None:
        self._path, self._thin, self._most = path, thin, most
        self.lines: list[Any] = thin(read_lines(path))

    def add(self, news: Sequence[Any]) -> None:
        """Append lines; OSError when that cannot be done."""
        self.lines += news
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        if len(self.lines) > 2 * self._most:
            self.lines = self._thin(self.lines)
            beside = self._path.with_suffix(".new")
            _write(beside, os.O_TRUNC, self.lines)
            beside.replace(self._path)
        elif news:
            _write(self._path, os.O_APPEND, news)


def read_lines(path: Path) -> list[Any]:
    """All lines that can be read; what a crash left half-written is passed over."""
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    lines = []
    for text in texts:
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return lines


def thinned(points: list[Answer]) -> list[Answer]:
    """The newest points, and every thirtieth of those before."""
    older, newest = points[:-FINE_POINTS], points[-FINE_POINTS:]
    coarse = [it for it in older if it.get("coarse")]
    return [*coarse[-COARSE_POINTS:], *newest]


def _write(path: Path, how: int, lines: Sequence[Any]) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


class ActivityRecorder:
    """Adds a point every ten seconds while this daemon leads, and every change of a reason."""

    def __init__(
        self, loop: ControlLoop, files: AttemptFiles, data: Path, rates: Rates, clock_ms: Callable[[], int]
    ) -> None:
        self._loop, self._files, self._rates, self._clock_ms = loop, files, rates, clock_ms
        self._data = data
        self._turn = 0
        self._finished: Counter[JobState] | None = None

    async def run(self) -> None:
        """Record until cancelled; what cannot be recorded is left out."""
        points, reasons = await asyncio.to_thread(self._open)
        latest = {it[0]: WaitReason(*it) for it in reasons.lines if isinstance(it, list) and len(it) == 4}
        # Before the first point, so that jobs which end until then count in it.
        with contextlib.suppress(OSError, StoreError):
            self._finished = await self._count()
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                answer, waiting = await self._look()
                news = changes_of(*waiting, latest, answer["at"])
                latest |= {reason.group: reason for reason in news}
                latest = dict(list(latest.items())[-REASONS_MAX:])
                lines = [[it.group, it.at, it.code, it.text] for it in news]
                await asyncio.to_thread(points.add, [answer])
                await asyncio.to_thread(reasons.add, lines)
            except (OSError, StoreError) as error:
                log.debug("activity is not recorded: %s", error)

    def _open(self) -> tuple[Lines, Lines]:
        points = Lines(activity_file(self._data), thinned, FINE_POINTS + COARSE_POINTS)
        reasons = Lines(reasons_file(self._data), lambda lines: lines[-REASONS_MAX:], REASONS_MAX)
        return points, reasons

    async def _look(self) -> tuple[Answer, tuple[list[WaitReason], set[str]]]:
        self._turn += 1
        turn = self._turn

        def seen(state: State, offers: Offers, now: int) -> tuple[Answer, tuple[list[WaitReason], set[str]]]:
            return point(state, self._rates, now), waiting_now(state, offers, turn, now)

        answer, waiting = await self._loop.inspect(seen)
        finished = await self._count()
        before, self._finished = finished if self._finished is None else self._finished, finished
        ended = {
            name: max(0, finished[state] - before[state])
            for name, state in (("succeeded", JobState.SUCCEEDED), ("failed", JobState.FAILED))
        }
        busy = await asyncio.to_thread(self._gpu_busy)
        coarse = {"coarse": True} if turn % COARSE == 0 else {}
        return {**answer, **ended, "gpuBusy": busy, **coarse}, waiting

    async def _count(self) -> Counter[JobState]:
        counts = await self._loop.read(lambda store: store.counts())
        finished = Counter[JobState]()
        for (_, state), number in counts.items():
            finished[state] += number
        return finished

    def _gpu_busy(self) -> float | None:
        newest = self._files.machine_head()
        sample = None if newest is None else fresh(newest[1], self._clock_ms())
        busy = [gpu.busy for gpu in sample.gpus if gpu.busy == gpu.busy] if sample is not None else []
        return round(sum(busy) / len(busy), 1) if busy else None


class PageHistory:
    """The handlers of Activity and Reasons, for one caller."""

    def __init__(self, gate: TenantGateway, data: Path, clock_ms: Callable[[], int]) -> None:
        self._gate, self._data, self._clock_ms = gate, data, clock_ms

    async def activity(self, call: Call) -> Answer:
        """The curves of the last hours."""
        hours = call.params.get("hours", HOURS_USUAL)
        if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= HOURS_MAX:
            raise ApiError("Invalid", f"hours must be a number up to {HOURS_MAX}.")
        now = self._clock_ms()
        since = now - int(hours * 3_600_000)
        lines = [
            it
            for it in await asyncio.to_thread(read_lines, activity_file(self._data))
            if isinstance(it, dict)
        ]
        recent = [it for it in thinned(lines) if it.get("at", 0) >= since]
        hidden = {"coarse"} if self._gate.view.sees_all else {"coarse", *OF_ALL_TENANTS}
        points = [{name: value for name, value in it.items() if name not in hidden} for it in recent]
        return {"at": now, "everyMs": int(EVERY_S * 1000), "points": points}

    async def reasons(self, call: Call) -> Answer:
        """Why a job waited, over time."""
        job_id = JobId(needed_text(call, "jobId"))
        jobs: list[Job] = await self._gate.read(lambda store: _with_parent(store, job_id))
        if not jobs:
            raise no_such_job(job_id)
        name, lines = group_name(jobs[0]), await asyncio.to_thread(read_lines, reasons_file(self._data))
        history = [WaitReason(*it) for it in lines if isinstance(it, list) and len(it) == 4 and it[0] == name]
        reasons = reasons_of(jobs[0], history, self._clock_ms())
        if not self._gate.view.sees_all:
            own = await self._gate.own_jobs(other for it in reasons for other in ids_in(it["text"]))
            reasons = [{**it, "text": without_others(it["text"], own)} for it in reasons]
        return {"jobId": job_id, "reasons": reasons, "recordedSince": lines[0][1] if lines else None}


def _with_parent(store: Store, job_id: JobId) -> list[Job]:
    """The job; for a child without a record of its own, its array."""
    return store.jobs([job_id]) or store.jobs([JobId(job_id.partition(":")[0])])
