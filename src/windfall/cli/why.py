"""`windfall why`: the daemon's own explanation of a job, laid out."""

from __future__ import annotations

import time
from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.listing import job_id
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.wording import ahead


@click.command()
@job_argument
@data_option
@json_option
def why(job: str, data: Path | None, as_json: bool) -> None:
    """Explain why a job is where it is, and what would move it.

    Works for finished jobs too: how they ended, and what to do about it.
    """
    client = connect(data)
    answer = client.own("Why", jobId=job_id(client, job))
    if as_json:
        print_json(answer)
        return
    from rich.padding import Padding
    from rich.text import Text

    from windfall.cli.tables import console, plain, state

    out = console()

    def say(text: str) -> None:
        out.print(Padding(Text(plain(text)), (0, 0, 0, 2), expand=False))

    out.print(Text.assemble(plain(answer["jobName"]), " ", answer["jobId"], " ", state(answer["state"])))
    for reason in answer["reasons"]:
        say(reason["text"])
    if answer.get("awsReason"):
        say(f"AWS calls it {answer['awsReason']}")
    if answer.get("expectedAt"):
        now = time.time_ns() // 1_000_000
        say(f"capacity is expected {ahead(answer['expectedAt'], now)}")
    if answer["changes"]:
        out.print(Text("what would help:", style="bold"))
        for change in answer["changes"]:
            say(change)
