"""`windfall hold` and `windfall release`: which jobs may start."""

from __future__ import annotations

from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.errors import CliError
from windfall.cli.listing import job_id
from windfall.cli.notes import note
from windfall.cli.options import data_option, jobs_argument, json_option, print_json


@click.command()
@jobs_argument
@data_option
@json_option
def hold(jobs: tuple[str, ...], data: Path | None, as_json: bool) -> int:
    """Keep jobs that have not started from starting.

    They keep their place in the queue. An array is held as a whole: children that run go on.
    """
    said = ("is held; `windfall release` lets it start", "was held before")
    return _change("Hold", jobs, data, said, as_json=as_json)


@click.command()
@jobs_argument
@data_option
@json_option
def release(jobs: tuple[str, ...], data: Path | None, as_json: bool) -> int:
    """Let held jobs start."""
    return _change("Release", jobs, data, ("may start", "was not held"), as_json=as_json)


def _change(
    operation: str, jobs: tuple[str, ...], data: Path | None, said: tuple[str, str], *, as_json: bool
) -> int:
    """Ask for each job; one that is refused does not keep the others from it."""
    client = connect(data)
    answers, failed = [], False
    for text in jobs:
        try:
            held_id = job_id(client, text)
            changed = bool(client.own(operation, jobId=held_id)["changed"])
        except CliError as error:
            note(str(error))
            failed = True
            continue
        answers.append({"jobId": held_id, "changed": changed})
        if not as_json:
            name = "" if text == held_id else f"{text} "
            click.echo(f"{name}{held_id} {said[0] if changed else said[1]}")
    if as_json:
        print_json({"jobs": answers})
    return int(failed)
