"""`windfall priority`: which jobs of a share go first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.client import connect
from windfall.cli.listing import job_id
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.wording import counted


@click.command()
@job_argument
@click.argument("number", metavar="N", type=click.IntRange(0, 9999))
@click.option("--preview", is_flag=True, help="Change nothing; say what would change.")
@data_option
@json_option
def priority(job: str, number: int, preview: bool, data: Path | None, as_json: bool) -> int:
    """Let a job go before or after others of its share.

    N is from 0 to 9999, and the higher goes first. A job that runs goes on; N then counts when its place is needed.
    """
    client = connect(data)
    chosen = job_id(client, job)
    answer = client.own("SetPriority", jobId=chosen, priority=number, preview=preview)
    if as_json:
        print_json(answer)
    else:
        name = "" if job == chosen else f"{job} "
        click.echo(f"{name}{chosen} {_said(answer, preview=preview)}")
    return 0


def _said(answer: dict[str, Any], *, preview: bool) -> str:
    was, wanted, share = answer["was"], answer["priority"], answer["share"]
    if was == wanted:
        return f"has priority {wanted} in share {share} already"
    verb = "would have" if preview else "has"
    turn = ""
    if answer["aheadBefore"] is not None:
        jobs = counted(answer["aheadAfter"], "job")
        turn = f"; {jobs} of its share go before it, {answer['aheadBefore']:,} before"
    return f"{verb} priority {wanted} in share {share}, {was} before{turn}"
