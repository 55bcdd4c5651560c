"""`windfall advise`: what limits jobs on their GPUs, and what to do; one job in full, or all by wasted GPU hours.

Must not judge: the daemon's advisor does.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import connect
from windfall.cli.cost import since_at
from windfall.cli.errors import BadUsage
from windfall.cli.listing import job_id
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.plain_words import is_of_run, with_options

Row = dict[str, Any]
#: Jobs that are told in full below the table of all.
IN_FULL = 3
KINDS = {"change": "change the job", "share": "share a GPU", "instance": "another instance type"}


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--all", "everything", is_flag=True, help="All jobs with GPUs, the largest waste first.")
@click.option(
    "--since",
    metavar="7d",
    help="With --all: jobs created in this time, and all live ones (30m, 12h, 7d, all).",
)
@data_option
@json_option
def advise(job: str | None, everything: bool, since: str | None, data: Path | None, as_json: bool) -> None:
    """Find what limits a job on its GPUs, and what would help.

    With --all: jobs ranked by wasted GPU hours (held hours times the part in which no kernel ran).
    """
    if (job is None) is not everything:
        raise BadUsage("name a JOB, or ask for --all")
    if since is not None and job is not None:
        raise BadUsage("--since needs --all; a single job is always shown in full")
    client = connect(data)
    if job is not None:
        answer = client.own("Advise", jobId=job_id(client, job))
    else:
        answer = client.own("Advise", sinceAt=since_at(since or "7d", time.time_ns() // 1_000_000))
    if as_json:
        print_json(answer)
        return
    rows = answer["jobs"]
    if not rows:
        note("no job has held a GPU in that time; see --since")
        return
    if len(rows) > 1:
        _print_table(rows)
    for row in rows[:IN_FULL]:
        if len(rows) == 1 or row["cause"] or row["branches"]:
            if len(rows) > 1:
                click.echo()
            _print_job(row)
    if answer["truncated"]:
        note("there are more jobs than one answer looks into; ask for a shorter time with --since")


def _print_table(rows: list[Row]) -> None:
    from windfall.cli.tables import Column, has_room, print_table, shown_ids, state

    ids = shown_ids([row["jobId"] for row in rows], room=has_room())
    print_table(
        [
            Column("JOB"),
            Column("NAME", shrinks=True),
            Column("STATE", optional=True),
            Column("GPU H", right=True),
            Column("WASTED", right=True),
            Column("BUSY", right=True),
            Column("LIMITED BY", shrinks=True),
            Column("SURE", right=True),
        ],
        [
            [
                shown,
                row["jobName"],
                state(row["state"]),
                _hours(row["gpuHours"]),
                _hours(row["wastedGpuHours"]),
                _percent(row["busy"]),
                row["cause"] or _undecided(row),
                _percent(row["confidence"]) if row["cause"] else "",
            ]
            for shown, row in zip(ids, rows, strict=True)
        ],
    )


def _undecided(row: Row) -> str:
    if row["note"]:
        return str(row["note"])
    return " or ".join(branch["cause"] for branch in row["branches"]) or "not known"


def _print_job(row: Row) -> None:
    from windfall.cli.tables import job_heading, print_indented

    of_run = is_of_run(row.get("jobDefinition"))

    def say(text: str, indent: int = 2, style: str = "") -> None:
        print_indented(with_options(text) if of_run else text, indent, style)

    job_heading(row["jobName"], row["jobId"], row["state"])
    if row["note"]:
        say(row["note"])
        return
    use = f"held {_hours(row['gpuHours'])} GPU hours"
    if row["busy"] is not None:
        use += f", busy for {_percent(row['busy'])} of them"
    wasted = row["wastedGpuHours"]
    say(use + (f": {_hours(wasted)} wasted" if wasted is not None else ""))
    if row["cause"]:
        sure = f"{_percent(row['confidence'])} sure"
        say(f"{row['cause']} ({sure}): {row['meaning']}", style="bold")
    else:
        say("the evidence does not decide what limits it", style="bold")
    for line in row["evidence"]:
        say(line, 4)
    for branch in row["branches"]:
        say(f"or {branch['cause']}: {branch['condition']}")
    _print_advice(row, say)
    if row["missing"]:
        say("not known", style="bold")
        for gap in row["missing"]:
            say(f"{gap['what']}: {gap['how']}", 4)


def _print_advice(row: Row, say: Any) -> None:
    causes = list(dict.fromkeys(advice["cause"] for advice in row["advice"]))
    for cause in causes:
        say("what would help" if cause == row["cause"] else f"what would help if it is {cause}", style="bold")
        for advice in (suggestion for suggestion in row["advice"] if suggestion["cause"] == cause):
            say(f"{KINDS[advice['kind']]}: {advice['text']}", 4)
            if gain := gain_text(advice):
                say(gain, 6, style="green")
            for line in advice["assumptions"]:
                say(f"· {line}", 6, style="dim")
    if row["noHelp"]:
        say("what would not help", style="bold")
        for line in row["noHelp"]:
            say(line, 4)


def gain_text(advice: Row) -> str:
    """What an advice would bring, in one line; empty when no number can be given."""
    parts = []
    if advice["timeFactor"] is not None:
        parts.append(f"{_percent(advice['timeFactor'])} of the time")
    if advice["utilisation"] is not None:
        parts.append(f"GPU busy for {_percent(advice['utilisation'])}")
    if advice["usdHour"] is not None and parts:
        parts.append(f"${advice['usdHour']:,.2f} an hour")
    if advice["usdJob"] is not None:
        parts.append(f"${advice['usdJob']:,.2f} for its time so far")
    return "predicted: " + ", ".join(parts) if parts else ""


def _hours(hours: float | None) -> str:
    if hours is None:
        return ""
    return f"{hours:,.1f}" if hours >= 10 else f"{hours:.3f}" if hours < 1 else f"{hours:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.0f} %"
