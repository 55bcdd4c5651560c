"""`windfall queues`: the job queues, and how many jobs each has in each state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.client import connect
from windfall.cli.options import data_option, json_option, print_json


@click.command()
@data_option
@json_option
def queues(data: Path | None, as_json: bool) -> None:
    """List job queues with their jobs by state."""
    all_queues = connect(data).own("Status")["queues"]
    if as_json:
        print_json({"queues": all_queues})
        return
    if not all_queues:
        click.echo("windfall: there is no queue yet; `windfall run -- CMD` makes one", err=True)
        return
    from windfall.cli.tables import print_table

    print_table(*queue_table(all_queues))


def queue_table(queues: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Columns and rows: jobs that wait, run, and have ended either way."""
    from windfall.cli.tables import Column, state

    columns = [
        Column("NAME", shrinks=True),
        Column("STATE"),
        Column("PRIORITY", right=True, optional=True),
        Column("WAITING", right=True),
        Column("RUNNING", right=True),
        Column("SUCCEEDED", right=True),
        Column("FAILED", right=True),
    ]
    rows = []
    for queue in queues:
        counts = queue.get("counts") or {}
        waiting, running = ("SUBMITTED", "PENDING", "RUNNABLE"), ("SCHEDULED", "STARTING", "RUNNING")
        groups = (waiting, running, ("SUCCEEDED",), ("FAILED",))
        numbers = [f"{sum(counts.get(name, 0) for name in group):,}" for group in groups]
        rows.append([queue["name"], state(queue["state"]), str(queue["priority"]), *numbers])
    return columns, rows
