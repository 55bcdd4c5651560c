"""Events of many streams in one order, page by page: what FilterLogEvents answers.

Events are ordered by (time, stream, place). That order is what makes a page cheap to continue: from the
last event looked at, every stream's own place follows by bisecting its times, so a token needs one event
and not one place per stream. Streams are searched in batches by name, which bounds the work of a request
over a group of many thousands. Must not know the store.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from windfall.aws_api.logs.attempt_log import AttemptLog, LogEnd
from windfall.aws_api.logs.lines import LinePiece
from windfall.aws_api.logs.pages import EVENT_OVERHEAD_BYTES, PAGE_BYTES, ReadBudget
from windfall.aws_api.logs.patterns import FilterPattern
from windfall.aws_api.logs.tokens import event_id
from windfall.control.changes import LogStream
from windfall.control.ports import AttemptFiles

_BUFFERS_BYTES = 8 * 1024 * 1024
#: An attempt's last record is written after its last byte, by as much as the agent is late.
_RECORD_DELAY_MS = 5_000


class EventPosition(NamedTuple):
    """The last event that was looked at: its time, its stream, and the offset behind it."""

    at: int
    stream: str
    end: int


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is searched for; both times are inclusive, as FilterLogEvents has them."""

    pattern: FilterPattern
    limit: int
    start: int | None = None
    end: int | None = None


@dataclass(slots=True)
class SearchResult:
    """Events of one request, and how far it got: None when it saw all there was."""

    events: list[dict[str, Any]] = field(default_factory=list)
    place: EventPosition | None = None


def worth_searching(files: AttemptFiles, stream: LogStream, start: int | None, end: int | None) -> bool:
    """Return whether a stream can have events in that time, at the price of a look at its files."""
    if end is not None and stream.created_at > end:
        return False
    try:
        log = files.log(stream.task_id)
        if log.size == 0 or start is None or log.written_at + _RECORD_DELAY_MS >= start:
            return log.size > 0
        # A last line without newline gets its time from the attempt's end, however old the file is.
        return log.read(log.size - 1, 1) != b"\n" or log.timed_at >= start
    except OSError:
        return False


def search(
    files: AttemptFiles,
    streams: Sequence[LogStream],
    ends: Mapping[str, LogEnd],
    wanted: SearchQuery,
    place: EventPosition | None,
    now: int,
    budget: ReadBudget,
) -> SearchResult:
    """Merge the events of a batch of streams from `place` on, until the page or the budget is full."""
    chunk_bytes = min(256 * 1024, max(4096, _BUFFERS_BYTES // max(1, len(streams))))
    task_ids = {stream.name: stream.task_id for stream in streams}
    sources = [
        _events(
            AttemptLog(files.log(stream.task_id), ends[stream.task_id], now, chunk_bytes=chunk_bytes),
            stream.name,
            _bounded(wanted, ends[stream.task_id], now),
            place,
        )
        for stream in streams
    ]
    result = SearchResult()
    size = 0
    for at, name, piece in heapq.merge(*sources):
        message = piece.content.decode("utf-8", "replace")
        if message and wanted.pattern.matches(message):
            size += len(piece.content) + EVENT_OVERHEAD_BYTES
            if result.events and (len(result.events) >= wanted.limit or size > PAGE_BYTES):
                return result
            result.events.append(
                {
                    "logStreamName": name,
                    "timestamp": at,
                    "message": message,
                    "ingestionTime": at,
                    "eventId": event_id(task_ids[name], piece.start),
                }
            )
        result.place = EventPosition(at, name, piece.end)
        if budget.spend(piece.end - piece.start):
            return result
    result.place = None
    return result


def _bounded(wanted: SearchQuery, ending: LogEnd, now: int) -> SearchQuery:
    """Leave what running attempts write while this request reads to the next one.

    Followers go on from the newest event that they saw: if the stream opened last showed what the one
    opened first could not show yet, they would never see the latter.
    """
    if ending.ended or (wanted.end is not None and wanted.end <= now):
        return wanted
    return replace(wanted, end=now)


def _events(
    log: AttemptLog, name: str, wanted: SearchQuery, place: EventPosition | None
) -> Iterator[tuple[int, str, LinePiece]]:
    """Yield a stream's events behind `place`; blank ones too, so that a long run of them is progress."""
    start = wanted.start or 0
    if place is not None and name == place.stream:
        position = place.end
    else:
        if place is not None:
            start = max(start, place.at if name > place.stream else place.at + 1)
        position = log.position_at(start) if start else 0
    for piece in log.lines.forward(position):
        at = log.at(piece.end)
        if at < start:
            continue
        if wanted.end is not None and at > wanted.end:
            return
        yield at, name, piece
