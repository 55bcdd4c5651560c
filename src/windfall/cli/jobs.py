"""`windfall jobs`: which jobs are shown, and what one line says about each."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.containers import container_of
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.expected_ends import LIVE, brief, ends_of
from windfall.cli.listing import ALL_STATES, FINISHED, children, job_id, newest_jobs
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json, queue_option
from windfall.cli.wording import ago, duration
from windfall.views.plain_reasons import plainly

#: How long a finished job stays in the list that nobody asked more of.
LATELY_MS = 24 * 3600 * 1000

#: How many jobs one question about owners names.
OWNERS_PAGE = 1_000

#: How long a forecast is waited for.
ENDS_WITHIN_S = 20.0

#: A name of up to this many characters is shown whole while another column can give way: it names a JOB.
NAME_WIDTH = 36

Job = dict[str, Any]


@click.command()
@queue_option
@click.option(
    "--state",
    "states",
    type=click.Choice(ALL_STATES, case_sensitive=False),
    multiple=True,
    help="Only jobs in this state; may be repeated.",
)
@click.option("--array", metavar="JOB", help="The children of this array job, by index.")
@click.option("--all", "-a", "everything", is_flag=True, help="Also jobs that finished more than a day ago.")
@click.option("--ends", "with_ends", is_flag=True, help="When live jobs are expected to end.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Lines at most.")
@data_option
@json_option
def jobs(
    queue: str | None,
    states: tuple[str, ...],
    array: str | None,
    everything: bool,
    with_ends: bool,
    limit: int,
    data: Path | None,
    as_json: bool,
) -> None:
    """List jobs: live ones and those finished lately.

    Newest first, with their owners where some are not yours.
    The shortened ids of a narrow terminal can be used wherever a JOB is asked for.
    """
    client = connect(data)
    now = time.time_ns() // 1_000_000
    wanted = tuple(state.upper() for state in states) or ALL_STATES
    if array is not None:
        if queue is not None:
            raise BadUsage("--array and --queue exclude each other; an array is in one queue")
        listed = children(client, job_id(client, array), wanted, limit + 1)
    else:
        listed = newest_jobs(client, _queues(client, queue), wanted, limit + 1)
        if not everything and not states:
            listed = [job for job in listed if _is_current(job, now)]
    shown = listed[:limit]
    owners = {} if array is not None else _owners(client, shown)
    live = [job["jobId"] for job in shown if job["status"] in LIVE] if with_ends else []
    ends = ends_of(client, live, ENDS_WITHIN_S)["ends"]
    if as_json:
        expected = {job_id: {"expectedEnd": end} for job_id, end in ends.items()}
        print_json(
            {"jobs": [job | owners.get(job["jobId"], {}) | expected.get(job["jobId"], {}) for job in shown]}
        )
        return
    if with_ends:
        shown = [job | {"end": brief(ends.get(job["jobId"]), now)} for job in shown]
    if not shown:
        note(
            "no jobs" if everything or states or array else "no live jobs, and none finished today; see --all"
        )
        return
    _print(shown, owners, now, with_queue=array is None)
    if len(listed) > limit:
        note(f"there are more than {limit}; see them with --limit N")


def _queues(client: Client, queue: str | None) -> list[str]:
    names = client.queue_names()
    if queue is None:
        return names
    if queue not in names:
        raise CliError(f"there is no queue {queue!r}; there are: {', '.join(names) or 'none yet'}")
    return [queue]


def _is_current(job: Job, now: int) -> bool:
    return (
        job["status"] not in FINISHED
        or now - int(job.get("stoppedAt") or job.get("createdAt", 0)) < LATELY_MS
    )


def _owners(client: Client, shown: list[Job]) -> dict[str, Job]:
    """Who submitted each job: `owner`, `tenant`, and whether it was the caller's own key (`mine`)."""
    owners: dict[str, Job] = {}
    for start in range(0, len(shown), OWNERS_PAGE):
        ids = [job["jobId"] for job in shown[start : start + OWNERS_PAGE]]
        owners |= client.own("Owners", jobIds=ids)["owners"]
    return owners


def _print(listed: list[Job], owners: dict[str, Job], now: int, *, with_queue: bool) -> None:
    from windfall.cli.tables import Column, has_room, print_table, shown_ids, state

    ids = shown_ids([job["jobId"] for job in listed], room=has_room())
    columns = [Column("JOB"), Column("NAME", shrinks=True, least=NAME_WIDTH)]
    if with_queue:
        columns.append(Column("QUEUE", shrinks=True, optional=2))
    with_ends = any("end" in job for job in listed)
    with_owner = not all(owner["mine"] for owner in owners.values())
    if with_owner:
        columns.append(Column("OWNER", shrinks=True))
    columns += [
        Column("STATE"),
        Column("CREATED"),
        Column("RAN", right=True, optional=1),
        *([Column("ENDS (90 %)")] if with_ends else []),
        Column("NOTE", shrinks=True, least=16),
    ]
    rows = []
    for shown_id, job in zip(ids, listed, strict=True):
        queue = [job["jobQueue"]] if with_queue else []
        owner = [owners.get(job["jobId"], {}).get("owner") or "-"] if with_owner else []
        rows.append(
            [
                shown_id,
                job["jobName"],
                *queue,
                *owner,
                state(job["status"]),
                ago(job.get("createdAt"), now),
                _ran(job, now),
                *([job["end"]] if with_ends else []),
                remark(job),
            ]
        )
    print_table(columns, rows)


def _ran(job: Job, now: int) -> str:
    started = job.get("startedAt")
    if not started or job["status"] not in {"RUNNING", *FINISHED}:
        return ""
    return duration(int(job.get("stoppedAt") or now) - int(started))


def remark(job: Job) -> str:
    """What is most worth knowing about a job beside its state, without AWS's terms."""
    return plainly(_remark(job))


def exit_words(code: int) -> str:
    """An exit code, with the signal that it stands for by the convention of shells."""
    try:
        return f"exit code {code} ({signal.Signals(code - 128).name})"
    except ValueError:
        return f"exit code {code}"


def _remark(job: Job) -> str:
    array = job.get("arrayProperties") or {}
    if "size" in array:
        summary = array.get("statusSummary") or {}
        ended = summary.get("SUCCEEDED", 0) + summary.get("FAILED", 0)
        failed = f", {summary['FAILED']:,} failed" if summary.get("FAILED") else ""
        return f"{ended:,}/{array['size']:,} done{failed}"
    container = container_of(job)
    if job["status"] != "FAILED":
        return "" if job["status"] == "SUCCEEDED" else str(job.get("statusReason") or "")
    if (job.get("isTerminated") or job.get("isCancelled")) and job.get("statusReason"):
        return str(job["statusReason"])
    if reason := container.get("reason"):
        return str(reason)
    if container.get("exitCode"):
        return exit_words(container["exitCode"])
    return str(job.get("statusReason") or "")
