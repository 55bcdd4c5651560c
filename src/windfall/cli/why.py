"""`windfall why`: the daemon's own explanation of a job, laid out."""

from __future__ import annotations

import time
from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.expected_ends import LIVE, ends_of, sentence
from windfall.cli.listing import job_id
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.plain_words import is_of_run, with_options
from windfall.cli.wording import ahead
from windfall.views.plain_reasons import plainly

#: How long the first forecast of a job is waited for.
ENDS_WITHIN_S = 2.0


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
    from rich.text import Text

    from windfall.cli.tables import console, job_heading, print_indented

    out = console()

    of_run = is_of_run(answer.get("jobDefinition"))

    def say(text: str) -> None:
        print_indented(plainly(with_options(text) if of_run else text))

    job_heading(answer["jobName"], answer["jobId"], answer["state"])
    for reason in answer["reasons"]:
        if reason["text"] == f"is {answer['state']}":
            continue  # The line above has said so.
        say(reason["text"].removeprefix(f"is {answer['state']}: "))
    if answer.get("expectedAt"):
        now = time.time_ns() // 1_000_000
        say(f"capacity is expected {ahead(answer['expectedAt'], now)}")
    if answer["state"] in LIVE:
        now = time.time_ns() // 1_000_000
        end = sentence(ends_of(client, [answer["jobId"]], ENDS_WITHIN_S), answer["jobId"], now)
        if end:
            say(f"its end is {end}" if end.startswith("not known") else f"ends {end}")
    if answer["changes"]:
        out.print(Text("what would help:", style="bold"))
        for change in answer["changes"]:
            say(change)
