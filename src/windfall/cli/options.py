"""Options and arguments that several commands share, and how their values are read.

Must not talk to the daemon, except to complete a word in somebody's shell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from windfall.cli.errors import BadUsage, CliError

F = TypeVar("F", bound=Callable[..., Any])

_VARIABLE = re.compile(r"[^=\0]+")


def data_option(command: F) -> F:
    """Add --data, the data directory of the daemon meant."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Data directory of the daemon (default: WINDFALL_DATA, or the system's place).",
    )(command)


def json_option(command: F) -> F:
    """Add --json, for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def job_argument(command: F) -> F:
    """Add JOB, by any of its names."""
    return click.argument("job", metavar="JOB", shell_complete=_complete_job)(command)


def jobs_argument(command: F) -> F:
    """Add JOB..., at least one."""
    return click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=_complete_job)(
        command
    )


def queue_option(command: F) -> F:
    """Add --queue."""
    return click.option("--queue", metavar="QUEUE", shell_complete=_complete_queue, help="A job queue.")(
        command
    )


def env_option(command: F) -> F:
    """Add --env K=V, which may be repeated."""
    return click.option(
        "--env",
        "-e",
        "variables",
        metavar="K=V",
        multiple=True,
        help="An environment variable for the job; may be repeated.",
    )(command)


def read_variables(variables: Iterable[str]) -> dict[str, str]:
    """The variables by name; a later one of the same name wins."""
    read: dict[str, str] = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise BadUsage(f"--env {variable!r} is not a variable; write it as NAME=VALUE")
        read[name] = value
    return read


def print_json(document: Any) -> None:
    """Print one document; texts stay readable in any language."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _complete_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from windfall.cli.client import connect
    from windfall.cli.listing import newest_jobs

    try:
        client = connect(ctx.params.get("data"), timeout_s=1)
        jobs = newest_jobs(client, client.queue_names(), limit=50)
    except CliError:
        return []
    return [
        CompletionItem(job["jobId"], help=f"{job['jobName']} {job['status']}")
        for job in jobs
        if job["jobId"].startswith(incomplete) or job["jobName"].startswith(incomplete)
    ]


def _complete_queue(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[Any]:
    from windfall.cli.client import connect

    try:
        names = connect(ctx.params.get("data"), timeout_s=1).queue_names()
    except CliError:
        return []
    return [name for name in names if name.startswith(incomplete)]
