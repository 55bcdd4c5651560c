"""`windfall down`: asks the daemon to stop, and waits until it has."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import counted

POLL_S = 0.1
TELL_EVERY_S = 5.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.option("--kill", is_flag=True, help="Also stop the jobs that run; without it they go on.")
@click.option("--timeout", "timeout_s", type=float, default=120, show_default=True, help="Seconds to wait.")
@data_option
@json_option
def down(kill: bool, timeout_s: float, data: Path | None, as_json: bool) -> None:
    """Stop the daemon.

    Jobs that run go on without it and are adopted by the next `windfall up`, unless --kill is given. Of several
    daemons on one PostgreSQL it is the leader that stops, and another one leads.
    """
    client = connect(data)
    answer = client.own("Down", kill=kill)
    pid, running = int(answer["pid"]), answer["runningJobs"]
    if running:
        fate = "being stopped" if kill else "left running; the next `windfall up` adopts what still runs"
        note(f"{counted(running, 'running job')}: {fate}")
    _wait(client, pid, timeout_s)
    if as_json:
        print_json({"runningJobs": running, "stopped": True})
    else:
        click.echo("windfall has stopped")


def _wait(client: Client, pid: int, timeout_s: float) -> None:
    begun = time.monotonic()
    reported_at = begun
    local = urlsplit(client.endpoint.url).hostname in LOOPBACK
    while client.answers() or (local and _lives(pid)):
        now = time.monotonic()
        if now - begun > timeout_s:
            raise CliError(
                f"the daemon (pid {pid}) has not stopped after {timeout_s:g} s; look at its output, "
                f"or end it with `kill {pid}`: no job is lost by that"
            )
        if now - reported_at >= TELL_EVERY_S:
            reported_at = now
            note(f"the daemon is stopping, for {now - begun:.0f} s now")
        time.sleep(POLL_S)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether it has ended and only its parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
