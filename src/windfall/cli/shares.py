"""`windfall shares`: how the shares of job queues stand: what each uses, has used, waits for and runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import connect
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import amount, counted

Answer = dict[str, Any]


@click.command()
@click.argument("queue", metavar="[QUEUE]", required=False)
@data_option
@json_option
def shares(queue: str | None, data: Path | None, as_json: bool) -> None:
    """Show the shares of queues: use, weight, score, waiting jobs.

    QUEUE is the name of a job queue; without it, all queues with a scheduling policy are shown.
    """
    params = {} if queue is None else {"queue": queue}
    queues = connect(data).own("Shares", **params)["queues"]
    if as_json:
        print_json({"queues": queues})
        return
    if not queues:
        click.echo("windfall: no queue has a scheduling policy, so there are no shares", err=True)
        return
    for place, queue_shares in enumerate(queues):
        if place:
            click.echo()
        _print(queue_shares)


def _print(queue: Answer) -> None:
    from windfall.cli.tables import plain, print_table

    unit = "instances" if queue["unit"] != "VCPU" else "GPUs" if queue["total"]["gpus"] > 0 else "vCPUs"
    for line in _heading(queue, unit=unit):
        click.echo(plain(line))
    if queue["shares"]:
        print_table(*(_fair if queue["kind"] == "fairshare" else _quota)(queue, unit=unit))


def _heading(queue: Answer, *, unit: str) -> list[str]:
    used, total = (_amounts(queue[part], unit=unit) for part in ("used", "total"))
    if queue["kind"] == "fifo":
        return [f"{queue['queue']}: first come, first served; {used} of {total} used; it has no shares"]
    head = f"{queue['queue']}: {queue['kind']} policy {queue['policy']}; {used} of {total} used"
    lines = [f"{head}, {counted(len(queue['shares']), 'share')}"]
    if queue["kind"] == "fairshare":
        lines[0] += f", use counts over {queue['windowSeconds']:,} s"
        if queue["computeReservation"]:
            reserved = _amounts(queue["kept"], unit=unit)
            percent = queue["computeReservation"]
            lines.append(f"kept for shares that are not active: {reserved} (computeReservation {percent})")
    return lines


def _fair(queue: Answer, *, unit: str) -> tuple[Any, Any]:
    """The share whose turn is next first."""
    from windfall.cli.tables import Column

    columns = [
        Column("SHARE", shrinks=True),
        Column("WEIGHT", right=True),
        Column("USED NOW", right=True),
        Column("AVERAGE", right=True, optional=True),
        Column("SCORE", right=True),
        Column("WAITING", right=True),
        Column("RUNNING", right=True),
    ]
    rows = [
        [
            share["share"],
            f"{share['weight']:.4f}".rstrip("0").rstrip("."),
            _amounts(share["used"], unit=unit),
            _amounts(share["average"], unit=unit),
            f"{share['score']:.4f}",
            f"{share['waiting']:,}",
            f"{share['running']:,}",
        ]
        for share in sorted(queue["shares"], key=lambda row: (row["score"], row["share"]))
    ]
    return columns, rows


def _quota(queue: Answer, *, unit: str) -> tuple[Any, Any]:
    from windfall.cli.tables import Column

    columns = [
        Column("SHARE", shrinks=True),
        Column("SHARING", optional=True),
        Column("USED OF LIMIT"),
        Column("BORROWED"),
        Column("USED NOW", right=True, optional=True),
        Column("WAITING", right=True),
        Column("RUNNING", right=True),
    ]
    rows = [
        [
            share["share"],
            share["sharing"] or "",
            _of_limits(share["usedOfLimits"], share["limits"]),
            ", ".join(f"{amount(much)} {unit}" for unit, much in share["borrowed"].items()) or "nothing",
            _amounts(share["used"], unit=unit),
            f"{share['waiting']:,}",
            f"{share['running']:,}",
        ]
        for share in sorted(queue["shares"], key=lambda row: row["share"])
    ]
    return columns, rows


def _of_limits(used: Mapping[str, float], limits: Mapping[str, float]) -> str:
    return ", ".join(
        f"{amount(used.get(unit, 0.0))} of {amount(much)} {unit}" for unit, much in limits.items()
    )


def _amounts(much: Mapping[str, float], *, unit: str) -> str:
    """Instances, or vCPUs and where there are some GPUs."""
    if unit == "instances":
        return counted(much["vcpus"], "instance")
    vcpus = counted(much["vcpus"], "vCPU")
    return f"{vcpus}, {counted(much['gpus'], 'GPU')}" if unit == "GPUs" else vcpus
