"""`windfall what-if`: how a change would alter the starts, ends and costs of the jobs there are.

The daemon plays the time to come with its own scheduler on a copy of its state; this reads the question and lays out
the answer. Nothing is changed by asking.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import BadUsage
from windfall.cli.job_file import defaults_path, read_options
from windfall.cli.listing import job_id
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.run import run, shell_environment
from windfall.cli.run_options import wanted_of
from windfall.cli.submitting import completed, rehearse

_MACHINES = re.compile(r"(?:([0-9]+)x)?(\S+)", re.ASCII)
#: A play takes up to 20 s, and others may be asked before.
ANSWER_S = 120.0
_DAY_MS, _SOON_MS = 24 * 3600 * 1000, 2 * 3600 * 1000
_NOT_OF_JOB = ("data", "as_json", "dry_run", "file", "detach")

Row = dict[str, Any]


@click.command("what-if")
@click.option(
    "--add-machines",
    "machines",
    multiple=True,
    metavar="[N x]TYPE",
    help="More machines: an instance type, or a machine that is there, such as 2xg5.12xlarge.",
)
@click.option(
    "--priority",
    "priorities",
    multiple=True,
    metavar="JOB=N",
    help="Another priority for a job within its share.",
)
@click.option(
    "--move", "moves", multiple=True, metavar="QUEUE=ENV[,ENV...]", help="Other environments for a queue."
)
@click.option("--without", multiple=True, metavar="MACHINE", help="A machine, or an instance, less.")
@click.option(
    "--submit",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Jobs of a TOML file, as for `windfall run --file`.",
)
@data_option
@json_option
def what_if(
    machines: tuple[str, ...],
    priorities: tuple[str, ...],
    moves: tuple[str, ...],
    without: tuple[str, ...],
    files: tuple[Path, ...],
    data: Path | None,
    as_json: bool,
) -> None:
    """Ask what a change would mean for the jobs there are.

    Options may be repeated and combined. Nothing is changed by asking.
    """
    if not (machines or priorities or moves or without or files):
        raise BadUsage("say what to change: --add-machines, --priority, --move, --without or --submit")
    client = connect(data, timeout_s=ANSWER_S)
    answer = client.own(
        "WhatIf",
        addMachines=[_machines(text) for text in machines],
        priorities={job_id(client, job): number for job, number in map(_priority, priorities)},
        moves=dict(map(_move, moves)),
        without=list(without),
        submit=[request for file in files for request in _requests(client, file)],
    )
    if as_json:
        print_json(answer)
        return
    _print(answer)


def _machines(text: str) -> dict[str, Any]:
    match = _MACHINES.fullmatch(text)
    if match is None:
        raise BadUsage(f"--add-machines {text!r} is not a number of machines; write it as 2xg5.12xlarge")
    return {"count": int(match[1] or 1), "type": match[2]}


def _priority(text: str) -> tuple[str, int]:
    job, equals, number = text.rpartition("=")
    if not job or not equals or not number.isdecimal():
        raise BadUsage(f"--priority {text!r} is not a job and a number; write it as JOB=5")
    return job, int(number)


def _move(text: str) -> tuple[str, list[str]]:
    queue, _, names = text.partition("=")
    environments = [name for name in names.split(",") if name]
    if not queue or not environments:
        raise BadUsage(f"--move {text!r} is not a queue and its environments; write it as QUEUE=ENV,ENV")
    return queue, environments


def _requests(client: Client, file: Path) -> list[dict[str, Any]]:
    """The requests that `windfall run --file` would send."""
    context = run.make_context("run", ["--file", str(file)])
    requests = []
    for options in read_options(context, file, defaults_path(os.environ)):
        wanted = wanted_of({name: value for name, value in options.items() if name not in _NOT_OF_JOB})
        if wanted.after:
            raise BadUsage(f"{file}: jobs that wait for others cannot be asked about; take `after` out")
        whole, remarks = completed(client, wanted, shell_environment())
        for remark in remarks:
            note(remark)
        requests.append({name: value for name, value in rehearse(client, whole).items() if value is not None})
    return requests


def _print(answer: dict[str, Any]) -> None:
    from windfall.cli.tables import Column, console, has_room, print_table, shown_ids

    rows, now = answer["jobs"], answer["at"]
    shown = [row for row in rows if row["changed"]] or rows
    if shown:
        show = _clock(shown, now)
        ids = shown_ids([row["jobId"] for row in shown], room=has_room())
        priced = any((row[side] or {}).get("usd") is not None for row in shown for side in ("now", "then"))
        columns = [Column("JOB"), Column("NAME", shrinks=True), Column("START"), Column("END")]
        columns += [Column("COST", right=True)] if priced else []
        wide = has_room(110)
        columns += [Column("LENGTH FROM", shrinks=True)] if wide else []
        lines = []
        for shown_id, row in zip(ids, shown, strict=True):
            before, after = row["now"], row["then"]
            cost = [_usd(before, after)] if priced else []
            started = after["startAt"] is not None and after["startAt"] <= now
            start = "started" if started else _arrow(before, after, "startAt", show)
            job = "(new)" if row["isNew"] else shown_id
            lines.append(
                [
                    job,
                    row["jobName"],
                    start,
                    _arrow(before, after, "endAt", show),
                    *cost,
                    *([row["length"]] if wide else []),
                ]
            )
        print_table(columns, lines)
        console().print()
    unchanged = len(rows) - len(shown)
    if unchanged + answer["leftOut"]:
        note(f"{unchanged + answer['leftOut']:,} more jobs are not shown; see --json")
    console().print(answer["summary"], soft_wrap=True, highlight=False)
    for text in answer["notes"]:
        note(text)


def _arrow(before: Row | None, after: Row, name: str, show: Any) -> str:
    then = "fails" if name == "endAt" and _fails(after) else show(after[name])
    if before is None:
        return f"→ {then}"
    now = "fails" if name == "endAt" and _fails(before) else show(before[name])
    return then if now == then else f"{now} → {then}"


def _fails(side: Row) -> bool:
    return side["endAt"] is not None and not side["succeeds"]


def _usd(before: Row | None, after: Row) -> str:
    now, then = (None if side is None else side["usd"] for side in (before, after))
    texts = ["?" if usd is None else f"${usd:,.2f}" for usd in (now, then)]
    if before is None:
        return f"→ {texts[1]}"
    return texts[1] if texts[0] == texts[1] else " → ".join(texts)


def _clock(rows: list[Row], now: int) -> Any:
    """How times are written: to the second when all are near, with their day when some are far."""
    times = [
        side[name]
        for row in rows
        for side in (row["now"], row["then"])
        if side
        for name in ("startAt", "endAt")
    ]
    farthest = max((at for at in times if at is not None), default=now) - now
    form = "%H:%M:%S" if farthest < _SOON_MS else "%H:%M" if farthest < _DAY_MS else "%b %d %H:%M"

    def show(at: int | None) -> str:
        return "never" if at is None else datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime(form)

    return show
