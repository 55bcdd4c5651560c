"""LogWindow and FindInLog: lines of one attempt's log by byte position, in both directions, and a search over bytes.

A window costs its own length wherever it lies in the log, because lines are found from a position and never counted. A
search looks at a bounded piece for each request and says how far it came. Must not know pages or how lines are cut.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from windfall.aws_api.logs.attempt_log import AttemptLog, LogEnd
from windfall.aws_api.logs.lines import LinePiece
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import AttemptFiles
from windfall.daemon.request_fields import needed_text, no_such_job
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.views.spelling import Answer

LINES_MAX, LINES_USUAL = 5_000, 500
#: Bytes of one window.
WINDOW_BYTES = 1 << 20
MATCHES_MAX, MATCHES_USUAL = 200, 50
TEXT_MAX = 1_000
#: What one search request looks at.
SEARCH_BYTES, SEARCH_S = 64 << 20, 0.5
_PIECE_BYTES = 4 << 20

#: Where a line begins, its time, and its text.
Line = list[Any]


class PageLogs:
    """The handlers, for one caller."""

    def __init__(self, gate: TenantGateway, files: AttemptFiles, clock_ms: Callable[[], int]) -> None:
        self._gate = gate
        self._files = files
        self._clock_ms = clock_ms

    async def window(self, call: Call) -> Answer:
        """Lines after, before or around a position; the last ones without any."""
        given = [name for name in ("after", "before", "around") if call.params.get(name) is not None]
        if len(given) > 1:
            raise ApiError("Invalid", "after, before and around exclude one another.")
        side = given[0] if given else "end"
        position = _position(call, given[0]) if given else 0
        count = _number(call, "lines", LINES_USUAL, LINES_MAX)
        job, attempt = await self._attempt(call)
        if attempt is None:
            return {**_about(job, None, 0, ended=job.finished), **_nothing()}

        def read() -> Answer:
            log, size = self._opened(attempt, job)
            return {
                **_about(job, attempt, size, ended=_ended(job, attempt).ended),
                **_window(log, side, position, count),
            }

        return await asyncio.to_thread(read)

    async def size(self, call: Call) -> Answer:
        """How long the log of an attempt is."""
        job, attempt = await self._attempt(call)
        if attempt is None:
            return _about(job, None, 0, ended=job.finished)

        def look() -> Answer:
            file = self._files.log(attempt.task_id)
            about = _about(job, attempt, file.size, ended=_ended(job, attempt).ended)
            return {**about, "writtenAt": file.written_at}

        return await asyncio.to_thread(look)

    async def find(self, call: Call) -> Answer:
        """Lines that contain a text, from a position on towards the end or the beginning."""
        text = needed_text(call, "text")
        if len(text) > TEXT_MAX or "\n" in text:
            raise ApiError("Invalid", f"text must be one line of at most {TEXT_MAX} characters.")
        direction = call.params.get("direction", "after")
        if direction not in ("after", "before"):
            raise ApiError("Invalid", "direction must be after or before.")
        wanted = _Wanted(text.encode("utf-8", "replace"), ignores_case=call.params.get("case") is not True)
        start = None if call.params.get("from") is None else _position(call, "from")
        limit = _number(call, "limit", MATCHES_USUAL, MATCHES_MAX)
        job, attempt = await self._attempt(call)
        if attempt is None:
            return {"matches": [], "scannedTo": 0, "done": True, "size": 0}

        def search() -> Answer:
            log, size = self._opened(attempt, job)
            searching = _Search(log, wanted, limit)
            result = searching.after(start or 0) if direction == "after" else searching.before(start)
            return {**result, "size": size}

        return await asyncio.to_thread(search)

    def _opened(self, attempt: Attempt, job: Job) -> tuple[AttemptLog, int]:
        file = self._files.log(attempt.task_id)
        return AttemptLog(file, _ended(job, attempt), self._clock_ms()), file.size

    async def _attempt(self, call: Call) -> tuple[Job, Attempt | None]:
        job_id, number = JobId(needed_text(call, "jobId")), call.params.get("attempt")
        if number is not None and (type(number) is not int or number < 1):
            raise ApiError("Invalid", f"attempt must be an integer of at least 1, not {number!r}.")
        jobs: list[Job] = await self._gate.read(lambda store: store.jobs([job_id]))
        if not jobs:
            raise no_such_job(job_id)
        chosen = [attempt for attempt in jobs[0].attempts if number in (None, attempt.number)][-1:]
        if number is not None and not chosen:
            raise ApiError(
                "NotFound", f"Job {job_id} has no attempt {number}; it has {len(jobs[0].attempts)}.", 404
            )
        return jobs[0], chosen[0] if chosen else None


def _ended(job: Job, attempt: Attempt) -> LogEnd:
    if attempt.stopped_at is not None:
        return LogEnd(ended=True, at=attempt.stopped_at)
    return LogEnd(ended=job.finished, at=job.stopped_at if job.finished else None)


def _about(job: Job, attempt: Attempt | None, size: int, *, ended: bool) -> Answer:
    number = None if attempt is None else attempt.number
    return {"jobId": job.id, "attempt": number, "size": size, "ended": ended}


def _nothing() -> Answer:
    return {"start": 0, "end": 0, "lines": [], "more": {"before": False, "after": False}}


def _window(log: AttemptLog, side: str, position: int, count: int) -> Answer:
    bottom = log.bottom()
    if side == "around":
        begin = log.lines.first_beyond(min(position, bottom))
        before = _taken(log.lines.backward(begin), max(1, count // 2))
        after = _taken(log.lines.forward(begin), count - len(before))
        pieces = before[::-1] + after
    elif side == "after":
        begin = log.lines.first_beyond(min(position, bottom))
        pieces = _taken(log.lines.forward(begin), count)
    else:
        begin = bottom if side == "end" else log.lines.boundary(min(position, bottom))
        pieces = _taken(log.lines.backward(begin), count)[::-1]
    if not pieces:
        return {
            **_nothing(),
            "start": begin,
            "end": begin,
            "more": {"before": begin > 0, "after": begin < bottom},
        }
    start, end = pieces[0].start, pieces[-1].end
    return {
        "start": start,
        "end": end,
        "lines": [_line(log, piece) for piece in pieces],
        "more": {"before": start > 0, "after": end < bottom},
    }


def _taken(pieces: Iterator[LinePiece], count: int) -> list[LinePiece]:
    taken: list[LinePiece] = []
    size = 0
    for piece in pieces:
        size += len(piece.content)
        if taken and (len(taken) >= count or size > WINDOW_BYTES):
            break
        taken.append(piece)
    return taken


def _line(log: AttemptLog, piece: LinePiece) -> Line:
    return [piece.start, log.at(piece.end), piece.content.decode("utf-8", "replace")]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is looked for. Not a regular expression: one that ignores case can need a time that grows with the product
    of both lengths, in which nothing else of the daemon runs."""

    text: bytes
    ignores_case: bool

    def within(self, content: bytes) -> tuple[bytes, bytes]:
        """The text and where to look for it, such that equal bytes are a match."""
        return (self.text.lower(), content.lower()) if self.ignores_case else (self.text, content)


class _Search:
    """One request's look at a log."""

    def __init__(self, log: AttemptLog, wanted: _Wanted, limit: int) -> None:
        self._log = log
        self._wanted = wanted
        self._limit = limit
        self._deadline = time.monotonic() + SEARCH_S

    def after(self, start: int) -> Answer:
        """Matches from a position on."""
        lines, end = self._log.lines, self._log.bottom()
        position, looked = lines.first_beyond(min(start, end)), 0
        matches: list[Line] = []
        while position < end and not self._is_spent(looked):
            gap, behind = lines.gap(position)
            if gap == position:
                position = behind
                continue
            # A piece ends where a line ends, so no match lies across two pieces.
            until = end if position + _PIECE_BYTES >= end else lines.boundary(position + _PIECE_BYTES)
            until = min(gap, until if until > position else min(end, position + _PIECE_BYTES))
            content = lines.read(position, until - position)
            for begin in self._lines_with_a_match(content):
                if len(matches) == self._limit:
                    return {"matches": matches, "scannedTo": position + begin, "done": False}
                matches.append(self._line_at(position + begin))
            looked += until - position
            position = until
        return {"matches": matches, "scannedTo": position, "done": position >= end}

    def before(self, start: int | None) -> Answer:
        """Matches before a position, the nearest first."""
        lines, bottom = self._log.lines, self._log.bottom()
        position, looked = bottom if start is None else lines.boundary(min(start, bottom)), 0
        matches: list[Line] = []
        while (position := lines.before_gap(position)) > 0 and not self._is_spent(looked):
            low = 0 if position <= _PIECE_BYTES else lines.boundary(position - _PIECE_BYTES)
            content = lines.read(low, position - low)
            for begin in reversed(list(self._lines_with_a_match(content))):
                matches.append(self._line_at(low + begin))
                if len(matches) == self._limit:
                    return {"matches": matches, "scannedTo": low + begin, "done": low + begin == 0}
            looked += position - low
            position = low
        return {"matches": matches, "scannedTo": position, "done": position == 0}

    def _lines_with_a_match(self, content: bytes) -> Iterator[int]:
        """Where lines begin that have a match, each once."""
        text, content, at = *self._wanted.within(content), 0
        while (match_at := content.find(text, at)) >= 0:
            yield content.rfind(b"\n", 0, match_at) + 1
            newline = content.find(b"\n", match_at + len(text))
            if newline < 0:
                return
            at = newline + 1

    def _line_at(self, start: int) -> Line:
        return _line(self._log, next(self._log.lines.forward(start)))

    def _is_spent(self, looked: int) -> bool:
        return looked >= SEARCH_BYTES or (looked > 0 and time.monotonic() >= self._deadline)


def _position(call: Call, name: str) -> int:
    value = call.params.get(name)
    if type(value) is not int or not 0 <= value < 1 << 60:
        raise ApiError("Invalid", f"{name} must be a position in bytes, 0 or more.")
    return value


def _number(call: Call, name: str, default: int, most: int) -> int:
    value = call.params.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        raise ApiError("Invalid", f"{name} must be a whole number from 1 to {most}.")
    return value
