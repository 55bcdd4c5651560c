"""`windfall run`: a command as a job, with its log on stdout and its exit code as ours.

Ctrl-C stops the job after a moment in which a second one detaches from it. What is happening meanwhile is told on
stderr.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.progress import ArrayProgress, Progress, exit_code
from windfall.cli.run_options import job_options, wanted_of
from windfall.cli.submitting import Wanted, completed, rehearse, submit
from windfall.cli.watching import Interruption, watch

INTERRUPTED = 130
STOPPED = "Ctrl-C in windfall run"
#: How long after Ctrl-C the job is stopped.
STOPS_AFTER_S = 3.0


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@job_options
@click.option("--dry-run", is_flag=True, help="Show what would be submitted, and submit nothing.")
@click.option("--detach", is_flag=True, help="Print the job's id and leave it running.")
@data_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def run(data: Path | None, as_json: bool, detach: bool, dry_run: bool, **options: Any) -> int:
    """Run a command as a job, follow its log, exit with its code.

    The job starts in the current directory, with your PATH, virtual environment and home directory.

    Exits with the job's exit code; with 1 when it ended without one; for an array with the number of
    children that failed, at most 100. Ctrl-C stops the job after 3 seconds (exit 130); a second one within
    them detaches and leaves it running.
    """
    wanted = wanted_of(options)
    client = connect(data)
    wanted, remarks = completed(client, wanted, _environment())
    if dry_run:
        return _rehearse(client, wanted, remarks, as_json=as_json)
    for remark in remarks:
        note(remark)
    queue, submitted = submit(client, wanted)
    if detach:
        print_json(submitted) if as_json else click.echo(submitted["jobId"])
        return 0
    note(f"job {submitted['jobId']} ({submitted['jobName']}) is in queue {queue}")
    return _follow(client, data, wanted, str(submitted["jobId"]), as_json=as_json)


def _environment() -> dict[str, str]:
    """The variables of this shell, with the user's name also where nothing has set it."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return dict(os.environ)
    return {"USER": name, **os.environ}


def _rehearse(client: Client, wanted: Wanted, remarks: list[str], *, as_json: bool) -> int:
    """Show the request that would be sent, and what is taken along."""
    asked = rehearse(client, wanted)
    if as_json:
        print_json({name: value for name, value in asked.items() if value is not None})
        return 0
    directory = f"a checkout of {wanted.git}" if wanted.git else "empty, and removed afterwards"
    memory = f"{wanted.memory_mib:,} MiB of memory"
    gpus = [f"GPUs: {wanted.gpus}"] if wanted.gpus else []
    lines = {
        "name": asked["jobName"],
        "queue": asked["jobQueue"],
        "command": shlex.join(wanted.command) or f"that of {wanted.image}",
        "directory": str(wanted.directory or directory),
        "resources": ", ".join([f"vCPUs: {wanted.vcpus}", *gpus, memory]),
        **({"after": ", ".join(wanted.after)} if wanted.after else {}),
        **wanted.tags,
    }
    for name, value in lines.items():
        click.echo(f"{name:<10}  {value}")
    click.echo("environment")
    for name, value in wanted.variables.items():
        click.echo(f"  {name}={value}")
    for remark in remarks:
        note(remark)
    note("nothing was submitted (--dry-run)")
    return 0


def _follow(client: Client, data: Path | None, wanted: Wanted, job_id: str, *, as_json: bool) -> int:
    """Watch a job to its end and answer the exit code."""
    out = sys.stderr if as_json else sys.stdout
    progress = ArrayProgress(job_id) if wanted.array else Progress(job_id, out)
    words = f"stopping the job in {STOPS_AFTER_S:g} s; press Ctrl-C again to detach and leave it running"
    with Interruption(words) as interruption:
        stopping = False

        def look(asked: Client, job: dict[str, Any]) -> bool:
            nonlocal stopping
            asked_at = interruption.asked_at
            if asked_at is not None and not stopping and time.monotonic() - asked_at >= STOPS_AFTER_S:
                asked.batch("TerminateJob", jobId=job_id, reason=STOPPED)
                stopping = True
                note("stopping the job; press Ctrl-C again to leave without waiting for its end")
            return progress.look(asked, job)

        try:
            job = watch(client, data, job_id, look, progress.ended)
        except KeyboardInterrupt:
            if stopping:
                note(f"left; see how it ends with `windfall describe {job_id}`")
            else:
                note(
                    f"detached, the job goes on; follow it with `windfall logs -f {job_id}`,"
                    f" stop it with `windfall terminate {job_id}`"
                )
            return INTERRUPTED
    progress.tell_end(client, job)
    if as_json:
        print_json(job)
    return INTERRUPTED if stopping else exit_code(job)
