"""What the groups and streams of the logs look like from outside: DescribeLogGroups and DescribeLogStreams.

Decides orders, pages and ARNs. Its functions are questions for the gate and look at files, so they run off
the event loop. Must not know events beyond the times of the first and the last.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from windfall.aws_api.logs.attempt_log import AttemptLog, LogEnd
from windfall.aws_api.logs.errors import InvalidParameter, token_invalid
from windfall.aws_api.logs.streams import (
    DEFAULT_GROUP,
    declared_groups,
    group_exists,
    identified_group,
    require_group,
    walk_streams,
)
from windfall.aws_api.logs.tokens import sealed, unsealed
from windfall.control.changes import LogStream
from windfall.control.ports import AttemptFiles, Store
from windfall.jobs.log_groups import LogGroup

_PAGE = 50
#: A group is as old as the oldest of its first streams; looking at all of them would cost more than it tells.
_AGE_STREAMS = 100
#: Old clients send it back with PutLogEvents, which nothing here takes.
_SEQUENCE_TOKEN = "4" + "9" * 55


def describe_groups(
    store: Store, params: Mapping[str, Any], region: str, account_id: str, now: int
) -> dict[str, Any]:
    """Return a page of log groups by name."""
    prefix, pattern = params.get("logGroupNamePrefix"), params.get("logGroupNamePattern")
    identifiers = params.get("logGroupIdentifiers")
    if sum(value is not None for value in (prefix, pattern, identifiers)) > 1:
        raise InvalidParameter(
            "Specify only one of logGroupNamePrefix, logGroupNamePattern and logGroupIdentifiers."
        )
    declared = declared_groups(store)
    names = sorted(
        name for name in {DEFAULT_GROUP, *store.log_groups(), *declared} if group_exists(store, name)
    )
    if prefix is not None:
        names = [name for name in names if name.startswith(prefix)]
    if pattern is not None:
        names = [name for name in names if pattern in name]
    if identifiers is not None:
        identified = {identified_group(identifier, account_id) for identifier in identifiers}
        names = [name for name in names if name in identified]
    if params.get("logGroupClass", "STANDARD") != "STANDARD":
        names = []
    question = ["groups", prefix, pattern, identifiers]
    if "nextToken" in params:
        after = unsealed(question, params["nextToken"])
        names = [name for name in names if name > after]
    limit = params.get("limit", _PAGE)
    page = [_group(store, name, region, account_id, now, declared.get(name)) for name in names[:limit]]
    answer: dict[str, Any] = {"logGroups": page}
    if len(names) > limit:
        answer["nextToken"] = sealed(question, names[limit - 1])
    return answer


def _group(
    store: Store, name: str, region: str, account_id: str, now: int, declared: LogGroup | None
) -> dict[str, Any]:
    oldest = [stream.created_at for stream in islice(walk_streams(store, name, ""), _AGE_STREAMS)]
    if declared is not None and declared.declared:
        oldest.append(declared.created_at)
    arn = _group_arn(name, region, account_id)
    described: dict[str, Any] = {
        "logGroupName": name,
        "creationTime": min(oldest, default=now),
        "metricFilterCount": 0,
        "arn": f"{arn}:*",
        "logGroupArn": arn,
        # The true number would cost a look at every file of the group; CloudWatch's own lags by hours.
        "storedBytes": 0,
        "logGroupClass": "STANDARD",
    }
    if declared is not None and declared.retention_days is not None:
        described["retentionInDays"] = declared.retention_days
    return described


def describe_streams(
    store: Store, group: str, params: Mapping[str, Any], region: str, account_id: str, files: AttemptFiles
) -> dict[str, Any]:
    """Return a page of a group's streams, by name or by the time of their last event."""
    prefix, order = params.get("logStreamNamePrefix", ""), params.get("orderBy", "LogStreamName")
    descending, limit = params.get("descending", False), params.get("limit", _PAGE)
    if prefix and order == "LastEventTime":
        raise InvalidParameter("Cannot order by LastEventTime with a logStreamNamePrefix.")
    require_group(store, group)
    question = ["streams", group, prefix, order, descending]
    after = unsealed(question, params["nextToken"]) if "nextToken" in params else None
    if after is not None and not isinstance(after, list):
        raise token_invalid()
    if order == "LastEventTime":
        keyed = _by_last_event(store, group, files)
    elif descending:
        keyed = ((0, stream.name, stream) for stream in walk_streams(store, group, prefix))
    else:
        # The store's own order: only the page itself is read.
        name = None if after is None else after[1]
        keyed = ((0, stream.name, stream) for stream in walk_streams(store, group, prefix, name))
    page = _page(keyed, after, limit + 1, descending=descending, sort=order == "LastEventTime" or descending)
    answer: dict[str, Any] = {
        "logStreams": [_stream(entry[2], region, account_id, files) for entry in page[:limit]]
    }
    if len(page) > limit:
        answer["nextToken"] = sealed(question, page[limit - 1][:2])
    return answer


def _page(
    keyed: Iterator[tuple[int, str, LogStream]],
    after: list[Any] | None,
    count: int,
    *,
    descending: bool,
    sort: bool,
) -> list[tuple[int, str, LogStream]]:
    """Take the first `count` behind `after`, keeping no more than those in memory."""
    if not sort:
        return list(islice(keyed, count))
    if after is not None:
        last = (after[0], after[1])
        keyed = (entry for entry in keyed if (entry[:2] < last if descending else entry[:2] > last))
    pick = heapq.nlargest if descending else heapq.nsmallest
    return pick(count, keyed, key=lambda entry: entry[:2])


def _by_last_event(store: Store, group: str, files: AttemptFiles) -> Iterator[tuple[int, str, LogStream]]:
    for stream in walk_streams(store, group, ""):
        log = _opened(stream, files)
        # A stream that has no events yet stands where it was made.
        yield stream.created_at if log.empty else log.last_at, stream.name, stream


def _opened(stream: LogStream, files: AttemptFiles) -> AttemptLog:
    # As if it had ended: for a description, bytes that no event shows yet are signs of life too.
    return AttemptLog(files.log(stream.task_id), LogEnd(ended=True), 0)


def _stream(stream: LogStream, region: str, account_id: str, files: AttemptFiles) -> dict[str, Any]:
    described: dict[str, Any] = {
        "logStreamName": stream.name,
        "creationTime": stream.created_at,
        "uploadSequenceToken": _SEQUENCE_TOKEN,
        "arn": f"{_group_arn(stream.group, region, account_id)}:log-stream:{stream.name}",
        "storedBytes": 0,
    }
    log = _opened(stream, files)
    first_at = log.first_at()
    if first_at is not None:
        described["firstEventTimestamp"] = first_at
        described["lastEventTimestamp"] = log.last_at
        described["lastIngestionTime"] = log.last_at
    return described


def _group_arn(name: str, region: str, account_id: str) -> str:
    return f"arn:aws:logs:{region}:{account_id}:log-group:{name}"
