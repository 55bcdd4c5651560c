"""Which log group and which streams a request means.

Decides what exists (the group of Batch does, even before its first stream) and how groups are named: by
name or ARN. Names are the callers' own strings: an attempt's files are found by its task id alone.
The functions that take a store are questions for the gate. Must not know events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windfall.aws_api.logs.attempt_log import LogEnd
from windfall.aws_api.logs.errors import InvalidParameter, group_not_found, stream_not_found
from windfall.control.changes import LogStream
from windfall.control.ports import Store
from windfall.jobs.job import Job
from windfall.jobs.log_groups import LogGroup

#: The log group of jobs that name none.
DEFAULT_GROUP = "/aws/batch/job"

_GROUP_ARN = re.compile(r"arn:[^:]+:logs:[^:]*:(?P<account>[^:]*):log-group:(?P<name>[^:]+)(?::\*)?")
_STORE_PAGE = 1_000


def group_name(params: Mapping[str, Any], account_id: str) -> str:
    """Return the name of the group that logGroupName or logGroupIdentifier means."""
    name, identifier = params.get("logGroupName"), params.get("logGroupIdentifier")
    if name is not None and identifier is not None:
        raise InvalidParameter("Specify either logGroupName or logGroupIdentifier, not both.")
    if name is not None:
        return str(name)
    if identifier is None:
        raise InvalidParameter("Specify logGroupName or logGroupIdentifier.")
    return identified_group(identifier, account_id)


def identified_group(identifier: str, account_id: str) -> str:
    """Return the name in a group's ARN, or the identifier itself when it is a name."""
    if not identifier.startswith("arn:"):
        return identifier
    match = _GROUP_ARN.fullmatch(identifier)
    if match is None:
        raise InvalidParameter(
            "The logGroupIdentifier is not the ARN of a log group, which looks like "
            f"arn:aws:logs:us-east-1:{account_id}:log-group:{DEFAULT_GROUP}."
        )
    if match["account"] != account_id:
        raise group_not_found()
    return match["name"]


def declared_groups(store: Store) -> dict[str, LogGroup]:
    """What clients have declared of groups, by name."""
    return {group.name: group for group in store.declared(LogGroup)}


def group_exists(store: Store, group: str) -> bool:
    """Whether a group was made, or has a stream."""
    declared = declared_groups(store).get(group)
    if group == DEFAULT_GROUP or (declared is not None and declared.declared):
        return True
    return next(walk_streams(store, group, ""), None) is not None


def require_group(store: Store, group: str) -> None:
    """Raise ResourceNotFound unless the group exists."""
    if not group_exists(store, group):
        raise group_not_found()


def require_stream(store: Store, group: str, name: str) -> LogStream:
    """Return a stream; raise ResourceNotFound for what is missing, the group or the stream in it."""
    stream = store.log_stream(group, name)
    declared = declared_groups(store).get(group)
    if stream is None or (declared is not None and not declared.shows(stream.created_at)):
        require_group(store, group)
        raise stream_not_found()
    return stream


def walk_streams(store: Store, group: str, prefix: str, after: str | None = None) -> Iterator[LogStream]:
    """Yield the streams of a group by name, asking the store for one bounded page after the other."""
    declared = declared_groups(store).get(group)
    while True:
        page = store.log_streams(group, prefix, _STORE_PAGE, after)
        yield from (stream for stream in page if declared is None or declared.shows(stream.created_at))
        if len(page) < _STORE_PAGE:
            return
        after = page[-1].name


def endings(store: Store, streams: Sequence[LogStream]) -> dict[str, LogEnd]:
    """Return, by task id, whether the attempts behind these streams have ended."""
    jobs = {job.id: job for job in store.jobs(sorted({stream.job_id for stream in streams}))}
    return {stream.task_id: _ending(jobs.get(stream.job_id), stream.task_id) for stream in streams}


def _ending(job: Job | None, task_id: str) -> LogEnd:
    if job is None:
        return LogEnd(ended=True)  # its record is gone, and only finished jobs are removed
    for attempt in job.attempts:
        if attempt.task_id == task_id:
            if attempt.stopped_at is not None:
                return LogEnd(ended=True, at=attempt.stopped_at)
            return LogEnd(ended=job.finished, at=job.stopped_at if job.finished else None)
    return LogEnd(ended=job.finished)
