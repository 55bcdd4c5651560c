"""`windfall retry`: run a job that has ended again, as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.attempts import mark_words
from windfall.cli.client import connect
from windfall.cli.listing import job_id
from windfall.cli.notes import note
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.wording import counted

_INDEXES_SHOWN = 8


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Also a job that succeeded; all children of an array."
)
@job_argument
@data_option
@json_option
def retry(everything: bool, job: str, data: Path | None, as_json: bool) -> None:
    """Run a job that has ended again; of an array, its failed children.

    The new job has the definition, command, variables, tags and queue of the old one, and goes on from its checkpoints.
    It does not wait for the jobs that the old one depended on. Children keep their array index. A training job NAME
    runs again as NAME-retry-2, then NAME-retry-3.
    """
    client = connect(data)
    answer = client.own("Retry", jobId=job_id(client, job), all=everything)
    if as_json:
        print_json(answer)
        return
    note(
        f"job {answer['jobId']} ({answer['jobName']}) is in queue {answer['jobQueue']}{_children(answer)};"
        f" follow it with `windfall logs -f {answer['jobId']}`"
    )
    begins = _begins_with(answer)
    if begins is not None:
        note(begins)
    click.echo(answer["jobId"])


def _children(answer: dict[str, Any]) -> str:
    indexes, nodes = answer["indexes"], answer.get("nodes")
    if indexes is None:
        return "" if nodes is None else f" with {counted(nodes, 'node')}"
    shown = ", ".join(map(str, indexes[:_INDEXES_SHOWN]))
    more = ", ..." if len(indexes) > _INDEXES_SHOWN else ""
    noun = "index" if len(indexes) == 1 else "indexes"
    return f" with {counted(len(indexes), 'child').replace('childs', 'children')} ({noun} {shown}{more})"


def _begins_with(answer: dict[str, Any]) -> str | None:
    if answer["checkpointUri"] is None:
        return None
    if answer["arraySize"] is not None or answer["indexes"] is not None:
        return "each child begins with its newest checkpoint, if it has saved one"
    if answer.get("nodes") is not None:
        return "each node begins with its newest checkpoint, if it has saved one"
    if answer["beginsWith"] is None:
        return "it begins anew: the job has saved no checkpoint"
    return f"it begins with the newest checkpoint: {mark_words(answer['beginsWith'])}"
