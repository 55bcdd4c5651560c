"""`windfall top`: the host, its GPUs and what runs, live on one screen, once as a table, or as JSON.

Decides when the screen is drawn and what leaves it; what is on it is top_screen.py's. The daemon may be away for a
while: jobs go on, and so does this.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import CliError, NoDaemon, RequestRefused
from windfall.cli.options import data_option, json_option, print_json

#: More often than samples are taken, nothing is new.
LEAST_INTERVAL_S = 0.5
LEAVE = ("q", "Q", "\x03", "\x04", "\x1b")

Answer = dict[str, Any]
#: Waiting jobs that are listed at most.
FRONT_JOBS = 10


@click.command()
@click.option("--once", is_flag=True, help="Print it once and leave.")
@click.option(
    "--interval",
    type=click.FloatRange(LEAST_INTERVAL_S),
    metavar="S",
    help="Seconds between two looks (as often as samples are taken).",
)
@data_option
@json_option
def top(once: bool, interval: float | None, data: Path | None, as_json: bool) -> None:
    """Watch the host, its GPUs and what jobs use, live.

    q or Ctrl-C leaves. A job shows figures from about two seconds after its start; shorter ones are not measured.
    """
    client = connect(data)
    answer = _asked(client)
    if as_json:
        print_json(answer)
        return
    from windfall.cli.tables import console
    from windfall.cli.top_screen import screen

    out = console()
    if once or not (out.is_terminal and sys.stdin.isatty()):
        for line in screen(answer, min(out.width, 200), None):
            line.rstrip()
            out.print(line, soft_wrap=True)
        return
    _watch(client, data, answer, interval or max(1.0, answer["sampleEveryS"] or 2.0))


def _watch(client: Client, data: Path | None, answer: Answer, interval_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from windfall.cli.tables import console
    from windfall.cli.top_screen import screen

    out = console()
    trouble: str | None = None
    with _keys() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            lines = screen(answer, out.width, out.height, trouble)
            live.update(Text("\n").join(lines), refresh=True)
            if pressed(interval_s):
                return
            try:
                answer, trouble = _asked(client), None
            except NoDaemon:
                trouble = f"the daemon at {client.endpoint.url} is away; jobs go on"
                # It may come back at another port.
                with contextlib.suppress(CliError):
                    client.endpoint = find_endpoint(data)


def _asked(client: Client) -> Answer:
    """What runs, and as `front` the jobs that start next."""
    answer = client.own("Top")
    return answer | {"front": _front(client) if answer["waiting"] else []}


def _front(client: Client) -> list[Answer]:
    """The first waiting jobs of each queue, in the order in which they start."""
    jobs: list[Answer] = []
    for queue in client.queue_names():
        try:
            front = client.batch("GetJobQueueSnapshot", jobQueue=queue)["frontOfQueue"]["jobs"]
            ids = [job["jobArn"].rpartition("/")[2] for job in front[: FRONT_JOBS - len(jobs)]]
            described = client.batch("DescribeJobs", jobs=ids)["jobs"] if ids else []
        except RequestRefused:
            continue  # It was deleted meanwhile.
        by_id = {job["jobId"]: job for job in described}
        jobs += [by_id[job_id] | {"jobQueue": queue} for job_id in ids if job_id in by_id]
        if len(jobs) >= FRONT_JOBS:
            break
    return jobs


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Takes single keys for as long as it is open: a function that waits and says whether one of them leaves."""
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def pressed(within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            if select.select([fd], [], [], left_s)[0]:
                key = os.read(fd, 16).decode(errors="replace")
                # An arrow key begins with an escape too, and is more than one character.
                if not key or key in LEAVE:
                    return True
        return False

    tty.setcbreak(fd)
    try:
        yield pressed
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
