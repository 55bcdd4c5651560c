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
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import CliError
from windfall.cli.job_file import defaults_path, in_order, read_options
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.progress import ArrayProgress, JobFollower, exit_code
from windfall.cli.run_options import JobCommand, job_options, wanted_of
from windfall.cli.submitting import JobRequest, completed, rehearse, submit
from windfall.cli.watching import Interruption, watch

INTERRUPTED = 130
STOPPED = "Ctrl-C in windfall run"
#: How long after Ctrl-C the job is stopped.
STOPS_AFTER_S = 3.0


@click.command(
    cls=JobCommand, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@job_options
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Take options from a TOML file; [[job]] tables in it are several jobs.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be submitted, and submit nothing.")
@click.option("--detach", "-d", is_flag=True, help="Print the job's id and leave it running.")
@data_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_context
def run(
    context: click.Context, /, data: Path | None, as_json: bool, dry_run: bool, file: Path | None, **_: Any
) -> int:
    """Run a command as a job, follow its log, exit with its code.

    The job starts in the current directory, with your PATH, virtual environment and home directory.

    Exits with the job's exit code; with 1 when it ended without one; for an array with the number of
    children that failed, at most 100. Ctrl-C stops the job after 3 seconds (exit 130); a second one within
    them detaches and leaves it running.
    """
    options_of_jobs = read_options(context, file, defaults_path(os.environ))
    detach = options_of_jobs[0]["detach"]
    own = ("data", "as_json", "dry_run", "file", "detach")
    jobs = [
        wanted_of({name: value for name, value in options.items() if name not in own})
        for options in options_of_jobs
    ]
    if len(jobs) > 1:
        return _run_several(connect(data), jobs, dry_run=dry_run, as_json=as_json)
    client = connect(data)
    wanted, remarks = completed(client, jobs[0], shell_environment())
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


def _run_several(client: Client, jobs: list[JobRequest], *, dry_run: bool, as_json: bool) -> int:
    """Submit the jobs of a file, all or none, and leave them running."""
    environment = shell_environment()
    # All are looked at before the first is submitted.
    ready = [
        (name, *completed(client, wanted, environment), within) for name, wanted, within in in_order(jobs)
    ]
    ids: dict[str, str] = {}
    answers: list[dict[str, Any]] = []
    for name, wanted, remarks, within in ready:
        awaited = tuple(ids.get(each, each) for each in within)
        whole = replace(wanted, name=name, after=(*wanted.after, *awaited))
        if dry_run and as_json:
            answers.append(_sent(rehearse(client, whole)))
        elif dry_run:
            _rehearse(client, whole, remarks, as_json=False)
            click.echo()
        if dry_run:
            continue
        for remark in remarks:
            note(f"{name}: {remark}")
        try:
            queue, submitted = submit(client, whole)
        except CliError as error:
            for submitted_id in ids.values():
                client.batch(
                    "TerminateJob", jobId=submitted_id, reason=f"{name} of the same file was refused"
                )
            stopped = f"; {len(ids)} submitted before it were stopped" if ids else ""
            raise CliError(f"{name}: {error}{stopped}") from None
        ids[name] = str(submitted["jobId"])
        answers.append(submitted)
        if not as_json:
            click.echo(f"{submitted['jobId']}  {name}")
            note(f"{name} is in queue {queue}")
    if as_json:
        print_json({"jobs": answers})
    return 0


def shell_environment() -> dict[str, str]:
    """The variables of this shell, with the user's name also where nothing has set it."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return dict(os.environ)
    return {"USER": name, **os.environ}


def _rehearse(client: Client, wanted: JobRequest, remarks: list[str], *, as_json: bool) -> int:
    """Show the request that would be sent, and what is taken along."""
    rehearsed = rehearse(client, wanted)
    if as_json:
        print_json(_sent(rehearsed))
        return 0
    directory = f"a checkout of {wanted.git}" if wanted.git else "empty, and removed afterwards"
    memory = f"{wanted.memory_mib:,} MiB of memory"
    gpus = [f"GPUs: {wanted.gpus}"] if wanted.gpus else []
    lines = {
        "name": rehearsed["jobName"],
        "queue": rehearsed["jobQueue"],
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


def _sent(rehearsed: dict[str, Any]) -> dict[str, Any]:
    """A request without the members that are left out."""
    return {name: value for name, value in rehearsed.items() if value is not None}


def _follow(client: Client, data: Path | None, wanted: JobRequest, job_id: str, *, as_json: bool) -> int:
    """Watch a job to its end and answer the exit code."""
    out = sys.stderr if as_json else sys.stdout
    progress = ArrayProgress(job_id) if wanted.array else JobFollower(job_id, out)
    words = f"stopping the job in {STOPS_AFTER_S:g} s; press Ctrl-C again to detach and leave it running"
    with Interruption(words) as interruption:
        stopping = False

        def look(connection: Client, job: dict[str, Any]) -> bool:
            nonlocal stopping
            asked_at = interruption.asked_at
            if asked_at is not None and not stopping and time.monotonic() - asked_at >= STOPS_AFTER_S:
                connection.batch("TerminateJob", jobId=job_id, reason=STOPPED)
                stopping = True
                note("stopping the job; press Ctrl-C again to leave without waiting for its end")
            return progress.look(connection, job)

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
