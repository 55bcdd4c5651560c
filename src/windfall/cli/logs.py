"""`windfall logs`: the log of a job, attempt by attempt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.listing import FINISHED, describe_job
from windfall.cli.log_reading import LogFollower, has_ended, log_group, read_all, read_tail, streams
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.terminal_text import for_terminal, wants_colours
from windfall.cli.watching import watch
from windfall.cli.wording import moment

Event = dict[str, Any]
Job = dict[str, Any]


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended, over its attempts.")
@click.option("--attempt", type=click.IntRange(min=1), help="Number of the attempt (the latest).")
@click.option("--tail", "-n", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("-t", "--timestamps", is_flag=True, help="The time before each line.")
@click.option(
    "--raw", is_flag=True, help="The bytes as the job wrote them, with sequences that steer a terminal."
)
@job_argument
@data_option
@json_option
def logs(
    follow: bool,
    attempt: int | None,
    tail: int | None,
    timestamps: bool,
    raw: bool,
    job: str,
    data: Path | None,
    as_json: bool,
) -> None:
    """Show the log of a job, or follow it.

    With --json the events are one document; with --follow too, one document to a line.
    """
    client = connect(data)
    detail = describe_job(client, job)
    if "size" in (detail.get("arrayProperties") or {}):
        raise BadUsage(
            f"{detail['jobId']} is an array, whose children have logs; name one, such as {detail['jobId']}:0"
        )
    stream = _stream(detail, attempt, follow=follow)
    if follow:
        emit = _emit_json if as_json else _Printer(timestamps=timestamps, raw=raw).emit
        _follow(client, data, detail, stream, attempt, tail, emit)
        return
    assert stream is not None
    group = log_group(detail)
    last = [] if tail is None else [read_tail(client, group, stream, tail)[0]]
    pages = read_all(client, group, stream) if tail is None else iter(last)
    if as_json:
        print_json({"logStreamName": stream, "events": [event for page in pages for event in page]})
        return
    printer = _Printer(timestamps=timestamps, raw=raw)
    for page in pages:
        printer.emit(page)


def _stream(job: Job, attempt: int | None, *, follow: bool) -> str | None:
    """The stream to show; None when there is none yet and it is going to be waited for."""
    stream_names = streams(job)
    if attempt is not None:
        if attempt > len(stream_names):
            raise CliError(f"{job['jobId']} has no attempt {attempt}; it has had {len(stream_names)}")
        chosen = stream_names[attempt - 1]
        if chosen is None:
            raise CliError(f"attempt {attempt} of {job['jobId']} never started; see `windfall describe`")
        return chosen
    latest = stream_names[-1] if stream_names else None
    if latest is None and (job["status"] in FINISHED or not follow):
        raise CliError(f"{job['jobId']} is {job['status']} and has no log; see `windfall why {job['jobId']}`")
    return latest


def _follow(
    client: Client,
    data: Path | None,
    job: Job,
    stream: str | None,
    attempt: int | None,
    tail: int | None,
    emit: Any,
) -> None:
    earlier = {name for name in streams(job) if name is not None and name != stream}
    follower = LogFollower(emit, skip=earlier, only=stream if attempt is not None else None)
    if tail is not None and stream is not None:
        events, token = read_tail(client, log_group(job), stream, max(tail, 1))
        if tail:
            emit(events)
        if token is not None:
            follower.start_at(log_group(job), stream, token)

    def ended(now: Job) -> bool:
        if attempt is not None and stream is not None:
            return has_ended(now, stream)
        return now["status"] in FINISHED

    watch(client, data, job["jobId"], follower.catch_up, ended)


class _Printer:
    """Writes lines to stdout, each page at once; what would steer a terminal is made harmless unless `raw`."""

    def __init__(self, *, timestamps: bool, raw: bool) -> None:
        self._timestamps = timestamps
        self._raw = raw
        self._colours = wants_colours(sys.stdout)

    def emit(self, events: list[Event]) -> None:
        lines = []
        for event in events:
            time = f"{moment(event['timestamp'])} " if self._timestamps else ""
            message = event["message"]
            text = message if self._raw else for_terminal(message, colours=self._colours)
            lines.append(f"{time}{text}\n")
        sys.stdout.write("".join(lines))
        sys.stdout.flush()


def _emit_json(events: list[Event]) -> None:
    sys.stdout.write("".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events))
    sys.stdout.flush()
