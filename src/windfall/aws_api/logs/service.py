"""CloudWatch Logs as a service: its operations, put together from the gate, the files and the pages.

Decides the order of looking: what the store knows of an attempt's end is read before its file, so that an
attempt seen as ended has all its bytes there. All reading of files happens off the event loop. Must not
know bytes or lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from windfall.aws_api.logs.attempt_log import AttemptLog, LogEnd
from windfall.aws_api.logs.describe import describe_groups, describe_streams
from windfall.aws_api.logs.errors import InvalidParameter
from windfall.aws_api.logs.groups import LogGroups
from windfall.aws_api.logs.pages import PAGE_EVENTS, Page, ReadBudget, Window, page_after, page_before
from windfall.aws_api.logs.patterns import parse_pattern
from windfall.aws_api.logs.search import EventPosition, SearchQuery, SearchResult, search, worth_searching
from windfall.aws_api.logs.streams import (
    endings,
    group_name,
    require_group,
    require_stream,
    walk_streams,
)
from windfall.aws_api.logs.tokens import position_token, read_position, sealed, unsealed
from windfall.aws_api.protocol.service import Call, ModelledService, Role
from windfall.aws_api.tenants.gate import TenantGate, view_of
from windfall.control.changes import LogStream
from windfall.control.ports import AttemptFiles, CorePort, Store


@dataclass(frozen=True, slots=True)
class Batching:
    """How much of a group one FilterLogEvents looks at; the rest is for the next page."""

    #: Streams with something to show, which are read together in order of time.
    streams: int = 500
    #: Streams whose files are looked at for that.
    looks: int = 20_000


def logs_service(
    gate: CorePort,
    files: AttemptFiles,
    account_id: str,
    clock_ms: Callable[[], int],
    *,
    batch: Batching | None = None,
) -> ModelledService:
    """Make the service that shows the logs in `files`, whose attempts the gate's store knows."""
    operations = _Operations(gate, files, account_id, clock_ms, batch or Batching())
    handlers = {
        "GetLogEvents": operations.get_log_events,
        "FilterLogEvents": operations.filter_log_events,
        "DescribeLogGroups": operations.describe_log_groups,
        "DescribeLogStreams": operations.describe_log_streams,
    }
    roles = dict.fromkeys(handlers, Role.READ)
    groups = LogGroups(gate, account_id)
    reading = dict.fromkeys(("ListTagsForResource", "ListTagsLogGroup"), groups.list_tags)
    changing = {
        "CreateLogGroup": groups.create,
        "DeleteLogGroup": groups.delete,
        "PutRetentionPolicy": groups.put_retention,
        "DeleteRetentionPolicy": groups.delete_retention,
        **dict.fromkeys(("TagResource", "TagLogGroup"), groups.tag),
        **dict.fromkeys(("UntagResource", "UntagLogGroup"), groups.untag),
    }
    handlers |= {**reading, **changing}
    roles |= {**dict.fromkeys(reading, Role.READ), **dict.fromkeys(changing, Role.ADMIN)}
    return ModelledService(
        "logs",
        handlers,
        roles,
        tenant_names={"LogGroupName": ":"},
        validation_code="InvalidParameterException",
    )


class _Operations:
    """The handlers, and what they share."""

    def __init__(
        self,
        gate: CorePort,
        files: AttemptFiles,
        account_id: str,
        clock_ms: Callable[[], int],
        batching: Batching,
    ) -> None:
        self._gate = gate
        self._batching = batching
        self._files = files
        self._account_id = account_id
        self._clock_ms = clock_ms

    def _seen(self, call: Call) -> CorePort:
        return TenantGate(self._gate, view_of(call.caller))

    async def describe_log_groups(self, call: Call) -> dict[str, Any]:
        """Answer a page of groups."""
        answer: dict[str, Any] = await self._seen(call).read(
            lambda store: describe_groups(store, call.params, call.region, self._account_id, self._clock_ms())
        )
        return answer

    async def describe_log_streams(self, call: Call) -> dict[str, Any]:
        """Answer a page of a group's streams."""
        group = group_name(call.params, self._account_id)
        answer: dict[str, Any] = await self._seen(call).read(
            lambda store: describe_streams(
                store, group, call.params, call.region, self._account_id, self._files
            )
        )
        return answer

    async def get_log_events(self, call: Call) -> dict[str, Any]:
        """Answer a page of one stream, and the tokens of its neighbours, which are always there."""
        group = group_name(call.params, self._account_id)
        name = call.params["logStreamName"]

        def look(store: Store) -> tuple[LogStream, LogEnd]:
            stream = require_stream(store, group, name)
            return stream, endings(store, [stream])[stream.task_id]

        stream, ending = await self._seen(call).read(look)
        page = await asyncio.to_thread(self._page, stream.task_id, ending, call.params)
        return {
            "events": [
                {"timestamp": at, "message": message, "ingestionTime": at} for at, message in page.events
            ],
            "nextForwardToken": position_token("f", stream.task_id, page.bottom),
            "nextBackwardToken": position_token("b", stream.task_id, page.top),
        }

    def _page(self, task_id: str, ending: LogEnd, params: dict[str, Any]) -> Page:
        window = Window(params.get("startTime"), params.get("endTime"), params.get("limit", PAGE_EVENTS))
        position: int | None = None
        forward = params.get("startFromHead", False)
        if "nextToken" in params:
            direction, position = read_position(params["nextToken"], task_id)
            forward = direction == "f"
        log = AttemptLog(self._files.log(task_id), ending, self._clock_ms())
        if forward:
            return page_after(log, position or 0, window, ReadBudget())
        return page_before(log, position, window, ReadBudget())

    async def filter_log_events(self, call: Call) -> dict[str, Any]:
        """Answer a page of the matching events of many streams, by time."""
        params = call.params
        group = group_name(params, self._account_id)
        names, prefix = params.get("logStreamNames"), params.get("logStreamNamePrefix")
        if names is not None and prefix is not None:
            raise InvalidParameter("Specify either logStreamNames or logStreamNamePrefix, not both.")
        if not params.get("startFromHead", True):
            raise InvalidParameter(
                "Windfall reads from the head only; leave startFromHead out or make it true."
            )
        text, start, end = params.get("filterPattern", ""), params.get("startTime"), params.get("endTime")
        wanted = SearchQuery(parse_pattern(text), params.get("limit", PAGE_EVENTS), start, end)
        question = ["filter", group, names, prefix, text, start, end]
        cursor = _Cursor()
        if "nextToken" in params:
            cursor = _Cursor(*unsealed(question, params["nextToken"]))
        # Read before any file is opened: a running attempt may write while others are being read.
        now = self._clock_ms()

        def look(store: Store) -> _Batch:
            require_group(store, group)
            if names is not None:
                named = [require_stream(store, group, name) for name in sorted(set(names))]
                return _Batch(store, named, None)
            return self._batch(store, walk_streams(store, group, prefix or "", cursor.after), cursor, wanted)

        batch: _Batch = await self._seen(call).read(look)
        horizon = cursor.horizon
        if horizon is None and batch.until is not None:
            horizon = now
        if horizon is not None:
            wanted = replace(wanted, end=horizon if end is None else min(end, horizon))
        result: SearchResult = await asyncio.to_thread(
            search,
            self._files,
            batch.streams,
            batch.endings,
            wanted,
            None if cursor.place is None else EventPosition(*cursor.place),
            now,
            ReadBudget(),
        )
        answer: dict[str, Any] = {"events": result.events, "searchedLogStreams": []}
        if result.place is not None:
            answer["nextToken"] = sealed(question, [cursor.after, batch.until, horizon, result.place])
        elif batch.until is not None:
            answer["nextToken"] = sealed(question, [batch.until, None, horizon, None])
        return answer

    def _batch(
        self, store: Store, candidates: Iterator[LogStream], cursor: _Cursor, wanted: SearchQuery
    ) -> _Batch:
        """Collect streams worth a search: those of the batch that is being read, or enough for a new one."""
        streams: list[LogStream] = []
        for looks, stream in enumerate(candidates, start=1):
            if worth_searching(self._files, stream, wanted.start, wanted.end):
                streams.append(stream)
            full = len(streams) == self._batching.streams or looks == self._batching.looks
            # A batch keeps its end over its pages, else a stream that came meanwhile would push others
            # out of it, and what was shown of them would be shown again.
            if stream.name == cursor.until or (cursor.place is None and full):
                return _Batch(store, streams, stream.name)
        return _Batch(store, streams, None)


class _Cursor(NamedTuple):
    """How far a search over many streams has come, as its token says it."""

    #: The batch begins behind this name,
    after: str | None = None
    #: and ends with this one; None when it takes all that follow.
    until: str | None = None
    #: With more batches than one, all are read up to the time of the first request. Followers go on from the
    #: newest event that they saw, and would miss what a batch got after it was read, before the last was.
    horizon: int | None = None
    #: The last event looked at, None where a batch begins.
    place: tuple[int, str, int] | None = None


class _Batch:
    """Streams to search together, how their attempts stand, and the last name if other batches follow."""

    def __init__(self, store: Store, streams: list[LogStream], until: str | None) -> None:
        self.streams = streams
        self.endings = endings(store, streams)
        self.until = until
