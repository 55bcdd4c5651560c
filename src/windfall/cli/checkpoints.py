"""`windfall checkpoints`: the committed checkpoints of a job, newest first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windfall.cli.client import connect
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.listing import job_id
from windfall.cli.options import data_option, job_argument, json_option, print_json

if TYPE_CHECKING:
    from windfall.cli.marks import ListedMark

#: Times beyond the year 9999 cannot be shown; a manifest may say anything.
_LATEST_MS = 253_402_300_799_000


@click.command()
@job_argument
@data_option
@json_option
def checkpoints(job: str, data: Path | None, as_json: bool) -> None:
    """List the checkpoints of a job.

    The newest comes first. `windfall get JOB --at STEP` fetches one of them as plain files.
    """
    from windfall.cli.marks import marks_of
    from windfall.cli.stored import Connections, StoredPart, stored_files

    client = connect(data)
    wanted = job_id(client, job)
    stored = stored_files(client, wanted)
    refuse_array(stored)
    if stored["checkpointUri"] is None:
        raise CliError(no_checkpoints(stored))
    connections = Connections(data, patience_s=0)
    try:
        marks = marks_of(StoredPart(connections, wanted, {"part": "checkpoint"}))
    finally:
        connections.close()
    if as_json:
        print_json({"jobId": wanted, "uri": stored["checkpointUri"], "checkpoints": list(map(_shown, marks))})
        return
    if not marks:
        raise CliError(f"{wanted} has saved no checkpoint yet; it would be kept at {stored['checkpointUri']}")
    _print(marks, stored["checkpointUri"])


def refuse_array(stored: dict[str, Any]) -> None:
    """Say which child to name where the job is an array."""
    if stored["arraySize"] is not None:
        raise BadUsage(
            f"{stored['jobId']} is an array, whose children have checkpoints; name one, such as {stored['jobId']}:0"
        )


def no_checkpoints(stored: dict[str, Any]) -> str:
    """What to tell somebody who asks for the checkpoints of a job that keeps none."""
    return (
        f"{stored['jobId']} keeps no checkpoints; start a job with `windfall run --checkpoint` to keep them"
    )


def _print(marks: list[ListedMark], uri: str) -> None:
    from windfall.cli.attempts import size
    from windfall.cli.tables import Column, console, plain, print_table
    from windfall.cli.wording import ago

    now = time.time_ns() // 1_000_000
    several = len({mark.writer.writer for mark in marks}) > 1
    columns = [
        Column("CHECKPOINT"),
        *([Column("NODE", right=True)] if several else []),
        Column("SIZE", right=True),
        Column("FILES", right=True),
        Column("SAVED"),
        Column("STATE", folds=True),
    ]
    rows = []
    for mark in marks:
        manifest = mark.manifest
        rows.append(
            [
                mark.title,
                *([str(mark.writer.writer)] if several else []),
                "" if manifest is None else size(manifest.bytes),
                "" if manifest is None else f"{len(manifest.files):,}",
                "" if manifest is None else ago(max(0, min(manifest.at, _LATEST_MS)), now),
                f"{mark.state}: {mark.problem}" if mark.problem else str(mark.state),
            ]
        )
    print_table(columns, rows)
    console().print(plain(f"kept at {uri}"), soft_wrap=True)


def _shown(mark: ListedMark) -> dict[str, Any]:
    manifest = mark.manifest
    return {
        "node": mark.writer.writer,
        "name": None if manifest is None else manifest.name,
        "step": None if manifest is None else manifest.step,
        "savedAt": None if manifest is None else manifest.at,
        "stateAt": None if manifest is None else manifest.state_at,
        "bytes": None if manifest is None else manifest.bytes,
        "files": None if manifest is None else len(manifest.files),
        "state": mark.state,
        "problem": mark.problem or None,
    }
