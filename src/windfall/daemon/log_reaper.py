"""Removes log files whose group was deleted, or that are older than their group's retention.

Decides by the last write to a file, and never touches the log of an attempt that has not ended. A stream is kept whole
while its newest event is.
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.aws_api.logs.streams import endings
from windfall.control.changes import LogStream
from windfall.control.ports import AttemptFiles, Store
from windfall.jobs.log_groups import LogGroup

#: How often it looks.
REAP_EVERY_S = 600.0
_PAGE = 500


def reap_logs(store: Store, files: AttemptFiles, now: int) -> int:
    """Remove expired logs; returns how many."""
    removed = 0
    for group in store.declared(LogGroup):
        if group.deleted_at is None and group.retention_days is None:
            continue
        for page in _pages(store, group.name):
            unwanted = [stream for stream in page if _is_unwanted(group, stream, files, now)]
            ended = endings(store, unwanted)
            for stream in unwanted:
                if ended[stream.task_id].ended:
                    files.remove(stream.task_id, samples=False)
                    removed += 1
    return removed


def _is_unwanted(group: LogGroup, stream: LogStream, files: AttemptFiles, now: int) -> bool:
    written_at = files.log(stream.task_id).written_at
    cutoff = group.cutoff(now)
    return written_at >= 0 and (
        not group.shows(stream.created_at) or (cutoff is not None and written_at < cutoff)
    )


def _pages(store: Store, group: str) -> Iterator[list[LogStream]]:
    after = None
    while page := store.log_streams(group, "", _PAGE, after):
        yield page
        after = page[-1].name
