"""Reads the log streams of a job's attempts, forward, from its end, or as they grow.

A stream that is followed is read to its end after the job was seen to have ended, so that its last line is
never missing. Must not print: what is read goes to the `emit` that was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windfall.cli.client import Client
from windfall.cli.containers import container_of
from windfall.cli.errors import RequestRefused
from windfall.cli.listing import FINISHED

DEFAULT_GROUP = "/aws/batch/job"
PAGE_MAX = 10_000

Event = dict[str, Any]
Job = dict[str, Any]
Emit = Callable[[list[Event]], None]


def log_group(job: Job) -> str:
    """The group that the job's definition asks for, or the one that AWS Batch uses."""
    options = (container_of(job).get("logConfiguration") or {}).get("options") or {}
    return str(options.get("awslogs-group") or DEFAULT_GROUP)


def streams(job: Job) -> list[str | None]:
    """The stream of each attempt, in order, the running one included; None for one that never started."""
    ended = [container_of(attempt).get("logStreamName") for attempt in job.get("attempts") or []]
    latest = container_of(job).get("logStreamName")
    return ended if latest is None or latest in ended else [*ended, latest]


def read_all(client: Client, group: str, stream: str) -> Iterator[list[Event]]:
    """All pages of a stream from its head to its present end."""
    follower = StreamPosition(group, stream)
    while page := follower.next_page(client):
        yield page


def read_tail(client: Client, group: str, stream: str, count: int) -> tuple[list[Event], str | None]:
    """The last `count` events, and the token behind them, from which on a follower goes on."""
    pages: list[list[Event]] = []
    missing = count
    forward: str | None = None
    token: str | None = None
    while missing > 0:
        answer = _get(client, group, stream, token, min(missing, PAGE_MAX), from_head=False)
        if answer is None:
            break
        forward = forward or answer["nextForwardToken"]
        events = answer["events"]
        pages.insert(0, events)
        missing -= len(events)
        if answer["nextBackwardToken"] == token:
            break
        token = answer["nextBackwardToken"]
    return [event for page in pages for event in page], forward


class StreamPosition:
    """How far a stream has been read."""

    def __init__(self, group: str, stream: str, token: str | None = None) -> None:
        self._group = group
        self._stream = stream
        self._token = token

    def next_page(self, client: Client) -> list[Event]:
        """The next events; none when there are none yet."""
        while True:
            answer = _get(client, self._group, self._stream, self._token, PAGE_MAX, from_head=True)
            if answer is None:
                return []
            at_end = answer["nextForwardToken"] == self._token
            self._token = answer["nextForwardToken"]
            if answer["events"] or at_end:
                events: list[Event] = answer["events"]
                return events


class LogFollower:
    """Emits every line of a job's streams once, attempt after attempt."""

    def __init__(self, emit: Emit, *, skip: set[str] | None = None, only: str | None = None) -> None:
        """`skip` are streams not to show; `only` is the one stream to show."""
        self._emit = emit
        self._done: set[str] = set(skip or ())
        self._only = only
        self._positions: dict[str, StreamPosition] = {}

    def start_at(self, group: str, stream: str, token: str | None) -> None:
        """Take a stream's beginning up to the token as emitted already."""
        self._positions[stream] = StreamPosition(group, stream, token)

    def catch_up(self, client: Client, job: Job) -> bool:
        """Emit all that is new; answer whether anything was. `job` must have been described just before."""
        said = False
        every = [stream for stream in streams(job) if stream is not None]
        for stream in every:
            if stream in self._done or self._only not in {None, stream}:
                continue
            position = self._positions.setdefault(stream, StreamPosition(log_group(job), stream))
            while page := position.next_page(client):
                self._emit(page)
                said = True
            if has_ended(job, stream):
                self._done.add(stream)
        return said


def has_ended(job: Job, stream: str) -> bool:
    """Whether the attempt of this stream writes no more."""
    ended = [container_of(attempt).get("logStreamName") for attempt in job.get("attempts") or []]
    return job["status"] in FINISHED or stream in ended


def _get(
    client: Client, group: str, stream: str, token: str | None, limit: int, *, from_head: bool
) -> dict[str, Any] | None:
    """One answer of GetLogEvents; None while the stream does not exist yet."""
    try:
        return client.logs(
            "GetLogEvents",
            logGroupName=group,
            logStreamName=stream,
            nextToken=token,
            limit=limit,
            startFromHead=from_head,
        )
    except RequestRefused as refusal:
        if refusal.code.endswith("ResourceNotFoundException"):
            return None
        raise
