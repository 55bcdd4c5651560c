"""`windfall run`: a command as a job, with its log on stdout and its exit code as ours.

Ctrl-C stops the job; a second one leaves it stopping. What is happening meanwhile is told on stderr.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import BadUsage
from windfall.cli.notes import note
from windfall.cli.options import (
    data_option,
    env_option,
    json_option,
    print_json,
    queue_option,
    read_variables,
)
from windfall.cli.progress import ArrayProgress, Progress, exit_code
from windfall.cli.submitting import Wanted, in_place, rehearse, submit
from windfall.cli.watching import Interruption, watch

INTERRUPTED = 130
STOPPED = "Ctrl-C in windfall run"


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--gpus", type=click.IntRange(min=0), help="GPUs that the job gets for itself.")
@click.option(
    "--gpu-model", metavar="NAME", help="Only GPUs with this in their name, such as H100 or 'A100*80GB'."
)
@click.option(
    "--gpu-memory-gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Only GPUs with at least so much memory.",
)
@click.option(
    "--gpu-share",
    type=click.FloatRange(min=0.01, max=1),
    metavar="PART",
    help="A part of one GPU that others share, such as 0.5, instead of all of it.",
)
@click.option(
    "--on-gpu-oom",
    type=click.Choice(["fail", "larger"]),
    help="What to do when a GPU's memory is too small: fail, or try a larger one.",
)
@click.option("--vcpus", type=click.IntRange(min=1), default=1, show_default=True, help="vCPUs.")
@click.option(
    "--memory-mib",
    type=click.IntRange(min=4),
    default=2048,
    show_default=True,
    help="Memory in MiB; a job that takes more is killed.",
)
@click.option(
    "--image", metavar="IMAGE", help="Run it in a container of this image; without a CMD, the image's own."
)
@click.option(
    "--runtime",
    type=click.Choice(["auto", "process", "container"]),
    help="What the job is (auto: a container, if it has an image and an engine answers).",
)
@click.option(
    "--pull", type=click.Choice(["missing", "always", "never"]), help="When the image is fetched (missing)."
)
@queue_option
@click.option(
    "--share", metavar="NAME", help="The share of the queue that it counts for, where it has shares."
)
@click.option(
    "--priority",
    type=click.IntRange(0, 9999),
    metavar="N",
    help="Who goes first within the share: the higher.",
)
@click.option("--array", type=click.IntRange(2, 10_000), metavar="N", help="Run it N times, as an array.")
@click.option("--name", help="Name of the job (from the command).")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Run in this directory instead of the current one.",
)
@click.option(
    "--clean",
    is_flag=True,
    help="Take nothing along: an empty directory, no variables but those of --env.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be submitted, and submit nothing.")
@env_option
@click.option("--timeout", type=click.IntRange(min=60), metavar="S", help="Seconds that an attempt may take.")
@click.option("--attempts", type=click.IntRange(1, 10), metavar="N", help="Tries in all, if it fails (1).")
@click.option("--spot", is_flag=True, help="Run on capacity that may be taken back, with notice.")
@click.option(
    "--checkpoint",
    metavar="URI",
    is_flag=False,
    flag_value="true",
    help="Keep $WINDFALL_CHECKPOINT_DIR safe and restore it for the next attempt; --checkpoint=URI names where.",
)
@click.option("--git", metavar="URL@REV", help="Run in a fresh checkout of this repository at this revision.")
@click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), help="Save and stop when spent.")
@click.option(
    "--tag",
    "tags",
    metavar="K=V",
    multiple=True,
    help="A tag of the job, such as windfall:profile=true; may be repeated.",
)
@click.option("--detach", is_flag=True, help="Print the job's id and leave it running.")
@data_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def run(**options: Any) -> int:
    """Run a command as a job, follow its log, exit with its code.

    Exits with the job's exit code; with 1 when it ended without one; for an array with the number of
    children that failed, at most 100. Ctrl-C stops the job (exit 130), a second one does not wait for it.
    """
    data, as_json, detach = options.pop("data"), options.pop("as_json"), options.pop("detach")
    dry_run = options.pop("dry_run")
    variables = read_variables(options.pop("variables"))
    timeout_s = options.pop("timeout")
    options["gpus"], tags = _gpus(options), _tags(options.pop("tags"))
    wanted = Wanted(**options, variables=variables, timeout_s=timeout_s, own_tags=tags)
    _check(wanted)
    if dry_run:
        return _rehearse(wanted, data, as_json=as_json)
    return submit_and_follow(wanted, data, detach=detach, as_json=as_json)


def _gpus(options: dict[str, Any]) -> int:
    """How many GPUs are meant: who says what they must be wants one of them."""
    names = ("gpu_model", "gpu_memory_gib", "gpu_share", "on_gpu_oom")
    said = [f"--{name.replace('_', '-')}" for name in names if options[name] is not None]
    if options["gpus"] is None:
        return int(bool(said))
    if options["gpus"] == 0 and said:
        raise BadUsage(f"--gpus 0 asks for no GPU, and {said[0]} is about one; leave one of them out")
    return int(options["gpus"])


def _tags(written: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for one in written:
        name, equals, tags[name] = one.partition("=")
        if not name or not equals:
            raise BadUsage(f"--tag {one!r} is no tag; write it as KEY=VALUE")
    return tags


def _check(wanted: Wanted) -> None:
    """Refuse what an image and the host cannot both have."""
    if wanted.image is None:
        if not wanted.command:
            raise BadUsage(
                "there is nothing to run: write the command after --, or name an image with --image"
            )
        if wanted.runtime == "container" or wanted.pull is not None:
            raise BadUsage("a container needs an image: name one with --image")
    elif wanted.directory is not None and wanted.runtime != "process":
        raise BadUsage(
            "--dir is a directory of this host, which a container does not see: put the files into the image, take them"
            " from Git with --git, or register a job definition with mountPoints"
        )


def _rehearse(wanted: Wanted, data: Path | None, *, as_json: bool) -> int:
    """Show the request that would be sent, and what is taken along."""
    client = connect(data)
    wanted, remarks = in_place(client, wanted, _environment())
    asked = rehearse(client, wanted)
    if as_json:
        print_json({name: value for name, value in asked.items() if value is not None})
        return 0
    needs = {each["type"]: each["value"] for each in asked["containerOverrides"]["resourceRequirements"]}
    lines = {
        "name": asked["jobName"],
        "queue": asked["jobQueue"],
        "command": shlex.join(wanted.command) or f"that of {wanted.image}",
        "directory": str(
            wanted.directory or ("a checkout of " + wanted.git if wanted.git else "empty, removed afterwards")
        ),
        "resources": ", ".join(f"{name} {value}" for name, value in needs.items()),
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


def _environment() -> dict[str, str]:
    """The variables of this shell, with the user's name also where nothing has set it."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return dict(os.environ)
    return {"USER": name, **os.environ}


def submit_and_follow(wanted: Wanted, data: Path | None, *, detach: bool, as_json: bool) -> int:
    """Submit, watch to the end, and answer the exit code."""
    client = connect(data)
    wanted, remarks = in_place(client, wanted, _environment())
    for remark in remarks:
        note(remark)
    queue, submitted = submit(client, wanted)
    job_id = str(submitted["jobId"])
    if detach:
        print_json(submitted) if as_json else click.echo(job_id)
        return 0
    note(f"job {job_id} ({submitted['jobName']}) is in queue {queue}")
    out = sys.stderr if as_json else sys.stdout
    progress = ArrayProgress(job_id) if wanted.array else Progress(job_id, out)
    with Interruption() as interruption:
        stopping = False

        def look(asked: Client, job: dict[str, Any]) -> bool:
            nonlocal stopping
            if interruption.asked and not stopping:
                asked.batch("TerminateJob", jobId=job_id, reason=STOPPED)
                stopping = True
                note("stopping the job; Ctrl-C again leaves without waiting for its end")
            return progress.look(asked, job)

        try:
            job = watch(client, data, job_id, look, progress.ended)
        except KeyboardInterrupt:
            if not stopping:
                # Both came before the first could be acted upon.
                client.batch("TerminateJob", jobId=job_id, reason=STOPPED)
            note(f"left; see how it ends with `windfall describe {job_id}`")
            return INTERRUPTED
    progress.tell_end(client, job)
    if as_json:
        print_json(job)
    return INTERRUPTED if stopping else exit_code(job)
