"""`windfall doctor`: whether this host can do what jobs will ask of it, and how to fix what it cannot.

Needs no daemon; with one that answers, its own view is asked for too. Must not know how anything is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windfall.cli.errors import CliError, NoDaemon
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import counted

if TYPE_CHECKING:
    from windfall.agent.checkup.verdicts import Verdict

_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red", "skip": "dim"}


@click.command()
@click.option("--job-user", metavar="USER", help="User that jobs are to run as (as set for the daemon).")
@click.option("--container-socket", metavar="PATH", help="Socket of the container engine (as set, or found).")
@data_option
@json_option
def doctor(job_user: str | None, container_socket: str | None, data: Path | None, as_json: bool) -> int:
    """Check this host for GPU jobs, and say how to fix problems.

    Looks at the NVIDIA driver, the container engine, shared memory, cgroups, namespaces, disk, clock and limits, with
    the settings that `windfall up` would have. Exits with 1 if something is bad: jobs that need it would fail.
    """
    verdicts = list(_examine(job_user, container_socket, data))
    found_bad = any(verdict.state == "bad" for verdict in verdicts)
    if as_json:
        print_json(
            {
                "healthy": not found_bad,
                "checks": [
                    {
                        "subject": verdict.subject,
                        "state": verdict.state,
                        "seen": verdict.seen,
                        "mend": verdict.mend,
                    }
                    for verdict in verdicts
                ],
            }
        )
    else:
        _print(verdicts)
    return int(found_bad)


def _examine(job_user: str | None, container_socket: str | None, data: Path | None) -> Iterator[Verdict]:
    from windfall.agent.checkup.clock import check_clock
    from windfall.agent.checkup.engine import check_engine
    from windfall.agent.checkup.gpu_driver import check_driver
    from windfall.agent.checkup.host import ThisHost
    from windfall.agent.checkup.isolation import check_isolation
    from windfall.agent.checkup.programs import check_git
    from windfall.agent.checkup.room import check_room
    from windfall.agent.checkup.verdicts import bad
    from windfall.agent.gpus import find_gpus
    from windfall.daemon.errors import BadSetting
    from windfall.daemon.settings import Settings, default_data, read_settings

    try:
        settings = read_settings({"data": data})
    except BadSetting as error:
        settings = Settings((data or default_data()).absolute())
        yield bad("settings", str(error), "correct it: `windfall up` does not start with it")
    host = ThisHost()
    gpus = find_gpus("auto")
    yield from check_driver(host, gpus)
    yield from check_engine(host, container_socket or settings.container_socket, has_gpus=bool(gpus))
    yield from check_isolation(host, job_user or settings.job_user)
    yield from check_room(host, str(settings.data))
    yield check_clock(host)
    yield check_git(host)
    yield _daemon(data)


def _daemon(data: Path | None) -> Verdict:
    import time

    from windfall.agent.checkup.verdicts import bad, doubtful, good, skipped
    from windfall.cli.client import connect

    began = time.time()
    try:
        status = connect(data, timeout_s=5).own("Status")
    except NoDaemon as error:
        return skipped("daemon", str(error))
    except CliError as error:
        return bad("daemon", str(error), "look at its output; `windfall up` starts it again")
    warnings = [str(line) for line in status.get("warnings", [])]
    seen = f"version {status['version']} answers in {(time.time() - began) * 1000:.0f} ms"
    if warnings:
        return doubtful("daemon", f"{seen}; it says: {'; '.join(warnings)}", "see the lines above")
    return good("daemon", seen)


def _print(verdicts: list[Verdict]) -> None:
    from rich.table import Table
    from rich.text import Text

    from windfall.cli.tables import console, plain, print_grid

    out = console()
    grid = Table.grid(padding=(0, 2, 0, 0))
    for verdict in verdicts:
        said = Text(plain(verdict.seen))
        if verdict.mend:
            said.append(f"\n{plain(verdict.mend)}", style="cyan")
        grid.add_row(
            Text(verdict.state, style=_STYLES[verdict.state]), Text(verdict.subject, style="bold"), said
        )
    print_grid(grid)
    counts = {state: sum(verdict.state == state for verdict in verdicts) for state in ("bad", "warn")}
    if counts["bad"]:
        out.print(f"{counted(counts['bad'], 'thing')} must be fixed before jobs that need it can run")
    elif counts["warn"]:
        out.print(f"jobs run here; {counted(counts['warn'], 'thing')} could be better")
    else:
        out.print("jobs run here, and nothing is missing")
