"""JobMetrics: a job's own numbers as curves, from what it prints, from its checkpoints, and from event files.

A log is read once: each request looks at what was added since the last one, in a process that cannot outlast its limits
(curve_scan.py). What is remembered is bounded: points of each curve, curves of each attempt, and attempts. Of a long
log only the end is read the first time, and the answer says from where on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windfall.aws_api.logs.attempt_log import AttemptLog, LogEnd
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker.documents import read_document
from windfall.control.ports import AttemptFiles
from windfall.daemon.event_files import EventCurves, EventFiles
from windfall.daemon.job_files import JobFiles
from windfall.daemon.request_fields import needed_text, no_such_job
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job, JobKind
from windfall.views.spelling import Answer

POINTS_MAX, CURVES_MAX, ATTEMPTS_SHOWN, ATTEMPTS_REMEMBERED = 500, 40, 20, 200
SCAN_BYTES, LINE_BYTES = 16 << 20, 16 << 10
#: How much CPU time one pattern may take; many times what an honest one needs.
PATTERN_S = 0.5
#: How long a caller waits while others search, before it is answered with what was known.
PATIENCE_S = 2.0

log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("curve_scan.py")


@dataclass(slots=True)
class LogCurves:
    """What is known of one attempt's log."""

    #: The part of the log that was read.
    begin: int = 0
    position: int = 0
    #: By name and source: points of (time, step, value), and how many there were before any was left out.
    curves: dict[tuple[str, str], list[list[Any]]] = field(default_factory=dict)
    left_out: int = 0


class Curves:
    """The curves of attempts, for all callers; reads each log once."""

    def __init__(self, files: AttemptFiles, python: str = sys.executable) -> None:
        self._files = files
        self._python = python
        self._attempts: OrderedDict[str, LogCurves] = OrderedDict()
        #: One search at a time: many callers must not become many processes.
        self._searching = threading.Lock()

    def of(self, attempt: Attempt, patterns: Sequence[tuple[str, str]], now: int) -> LogCurves:
        """What an attempt has printed so far; called in a thread."""
        if self._searching.acquire(timeout=PATIENCE_S):
            try:
                self._look(attempt, patterns, now)
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                # Earlier results still hold, and the next call tries again.
                log.warning("the metrics of %s could not be read: %s", attempt.token, type(error).__name__)
            finally:
                self._searching.release()
        return self._attempts.get(attempt.task_id, LogCurves())

    def _look(self, attempt: Attempt, patterns: Sequence[tuple[str, str]], now: int) -> None:
        seen_before = self._attempts.setdefault(attempt.task_id, LogCurves())
        self._attempts.move_to_end(attempt.task_id)
        while len(self._attempts) > ATTEMPTS_REMEMBERED:
            self._attempts.popitem(last=False)
        ending = LogEnd(attempt.stopped_at is not None, attempt.stopped_at)
        opened = AttemptLog(self._files.log(attempt.task_id), ending, now)
        bottom = opened.lines.end if ending.ended else opened.bottom()
        if bottom <= seen_before.position:
            return
        start = max(seen_before.position, bottom - SCAN_BYTES)
        if seen_before.position == 0:
            seen_before.begin = start
        piece = opened.lines.read(start, bottom - start)
        for name, source, points in self._search(piece, patterns):
            key = (name, source)
            if key not in seen_before.curves and len(seen_before.curves) >= CURVES_MAX:
                seen_before.left_out += 1
                continue
            curve = seen_before.curves.setdefault(key, [])
            curve += [[opened.at(start + end), step, value] for end, step, value in points]
            while len(curve) > POINTS_MAX:
                del curve[1:-1:2]
        seen_before.position = bottom

    def _search(self, piece: bytes, patterns: Sequence[tuple[str, str]]) -> list[Any]:
        request = {
            "seconds": PATTERN_S,
            "line_bytes": LINE_BYTES,
            "points": POINTS_MAX,
            "patterns": [list(pattern) for pattern in patterns],
        }
        # -I and -S: nothing of the user's environment or site, which also makes the start quick.
        done = subprocess.run(
            [self._python, "-I", "-S", str(_PROGRAM)],
            input=json.dumps(request).encode() + b"\n" + piece,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=10 * PATTERN_S * len(patterns) + 30,
        )
        return [json.loads(line) for line in done.stdout.splitlines() if line.endswith(b"]")]


class PageMetrics:
    """The handler, for one caller."""

    def __init__(
        self,
        gate: TenantGateway,
        curves: Curves,
        clock_ms: Callable[[], int],
        events: EventFiles,
        files: JobFiles,
    ) -> None:
        self._gate, self._curves, self._clock_ms = gate, curves, clock_ms
        self._events, self._files = events, files

    async def metrics(self, call: Call) -> Answer:
        """The curves of a job's attempts, the newest attempts if there are many."""
        job_id, number = JobId(needed_text(call, "jobId")), call.params.get("attempt")
        if number is not None and (type(number) is not int or number < 1):
            raise ApiError("Invalid", f"attempt must be an integer of at least 1, not {number!r}.")
        jobs: list[Job] = await self._gate.read(lambda store: store.jobs([job_id]))
        if not jobs:
            raise no_such_job(job_id)
        chosen = [it for it in jobs[0].begun_attempts if number in (None, it.number)][-ATTEMPTS_SHOWN:]
        patterns, now = patterns_of(jobs[0]), self._clock_ms()

        events = await self._events.of(jobs[0], self._files)

        def read() -> list[Answer]:
            return [_answer(it, self._curves.of(it, patterns, now), events) for it in chosen]

        return {"jobId": job_id, "attempts": await asyncio.to_thread(read)}


def patterns_of(job: Job) -> list[tuple[str, str]]:
    """The metrics that a training job was created with, as (name, regex)."""
    if job.submission.kind is not JobKind.TRAINING:
        return []
    algorithm = read_document(job.submission.document).request.get("AlgorithmSpecification", {})
    return [(metric["Name"], metric["Regex"]) for metric in algorithm.get("MetricDefinitions", ())]


def _answer(attempt: Attempt, log_curves: LogCurves, events: EventCurves) -> Answer:
    series = [_series(name, source, points) for (name, source), points in log_curves.curves.items() if points]
    series += [_series(name, "tensorboard", points) for name, points in events.during(attempt).items()]
    steps: list[list[Any]] = [
        [mark.state_at, mark.step, mark.step] for mark in attempt.marks if mark.step is not None
    ]
    progress = attempt.progress
    if progress is not None and progress.step is not None:
        steps.append([progress.at, progress.step, progress.step])
    # Reports and checkpoints may overtake one another.
    steps.sort(key=lambda point: point[0])
    if steps:
        series.append(_series("step", "windfall.checkpoint", steps))
    losses: list[list[Any]] = [list(point) for point in attempt.losses]
    if progress is not None and progress.loss is not None and (not losses or losses[-1][0] < progress.at):
        losses.append([progress.at, progress.step, progress.loss])
    if losses and not any(it["name"] == "loss" for it in series):
        series.append(_series("loss", "windfall.checkpoint", losses))
    return {
        "attempt": attempt.number,
        "series": series,
        "fromByte": log_curves.begin,
        "leftOut": log_curves.left_out + events.left_out,
    }


def _series(name: str, source: str, points: list[list[Any]]) -> Answer:
    values = [point[2] for point in points]
    return {
        "name": name,
        "source": source,
        "points": points,
        "last": values[-1],
        "min": min(values),
        "max": max(values),
    }
