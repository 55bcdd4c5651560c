"""`windfall cost`: what jobs cost and what their time went into, as a table of sums or as one job's ledger.

Columns are rounded so that what is shown adds up to the total that is shown. Must not calculate costs: the daemon does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windfall.cli.client import connect
from windfall.cli.errors import BadUsage
from windfall.cli.listing import job_id
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import duration

if TYPE_CHECKING:
    from rich.text import Text

    from windfall.cli.tables import Column

#: Each category as the daemon calls it, as people read it, and how a bar draws it.
CATEGORIES = (
    ("useful", "useful", "█", "green"),
    ("checkpoint", "checkpoint", "▓", "cyan"),
    ("lost", "lost", "▒", "red"),
    ("startUp", "start-up", "░", "yellow"),
    ("idle", "idle", "-", "magenta"),
    ("waiting", "waiting", "·", "dim"),
)
IN_TIME = ("waiting", "startUp", "useful", "checkpoint", "lost", "idle")
UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
#: The unit of a table: the largest of which the whole is ten or more.
SCALES = (("h", 3_600_000), ("min", 60_000), ("s", 1_000))
#: The longest bar of a ledger, which a terminal narrower than WIDE has half of.
BAR, WIDE = 40, 100
NO_PRICE = "start the daemon with --usd-gpu-hour or --usd-vcpu-hour (or set them in windfall.toml) to have it counted"
#: What is one column where there is no room for all of them.
MERGED = ("checkpoint", "startUp", "idle", "waiting")

#: A name of up to this many characters is shown whole, so that no two look alike.
LABEL_WIDTH = 30

Answer = dict[str, Any]


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--by", metavar="queue|user|tenant|tag:NAME|day|job", help="What a row is (default: queue).")
@click.option(
    "--since", metavar="7d", help="Jobs created in this time, and all live ones (30m, 12h, 7d, 2w, all)."
)
@data_option
@json_option
def cost(job: str | None, by: str | None, since: str | None, data: Path | None, as_json: bool) -> None:
    """Show what jobs cost, and what their time went into.

    With a JOB: its ledger, attempt by attempt. Days are UTC.
    """
    client = connect(data)
    now = time.time_ns() // 1_000_000
    if job is not None:
        if by is not None or since is not None:
            raise BadUsage("JOB excludes --by and --since; one job has one ledger")
        answer = client.own("Cost", jobId=job_id(client, job))
    else:
        answer = client.own(
            "Cost", by="queue" if by is None else by, sinceAt=since_at("7d" if since is None else since, now)
        )
    if as_json:
        print_json(answer)
        return
    if "attempts" in answer:
        _print_ledger(answer)
    elif answer["rows"]:
        _print_rows(answer)
    else:
        note("no job was created in that time, and none is live; see --since")
    if answer.get("truncated"):
        note("there are more jobs than one answer looks at; ask for a shorter time with --since")
    if unpriced := answer["total"]["unpricedMs"]:
        note(f"{duration(unpriced)} on instances have no price; {NO_PRICE}")


def since_at(text: str, now: int) -> int:
    """The time that a span such as 12h or 7d before now means; `all` is the beginning."""
    if text == "all":
        return 0
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)([mhdw])", text)
    if match is None:
        raise BadUsage(f"--since {text!r} is not a time span; write it as 30m, 12h, 7d, 2w or all")
    return max(0, now - round(float(match[1]) * UNITS_MS[match[2]]))


def _print_rows(answer: Answer) -> None:
    from windfall.cli.tables import UNBOUNDED, console, print_table, table_lines

    columns, cells = _table(answer, merged=())
    if max(line.cell_len for line in table_lines(columns, cells, UNBOUNDED)) > console().width:
        columns, cells = _table(answer, merged=MERGED)
        names = [title for key, title, _, _ in CATEGORIES if key in MERGED]
        note(f"other: {', '.join(names)} (a wider terminal or --json shows each)")
    print_table(columns, cells)


def _table(answer: Answer, merged: Sequence[str]) -> tuple[list[Column], list[tuple[str, ...]]]:
    """Columns and rows of a bill: parts of the time, which add up, then money or, without a price, what was held."""
    from windfall.cli.tables import Column

    rows, total = answer["rows"], answer["total"]
    unit, unit_ms = _scale(sum(total["ms"].values()))
    labels = [_label(row) for row in rows]
    columns = [
        Column(answer["by"].upper(), shrinks=True, least=LABEL_WIDTH),
        Column("JOBS", right=True, optional=1),
    ]
    cells = [[*labels, "total"], [f"{row['jobs']:,}" for row in (*rows, total)]]
    parts = [(title.upper(), (key,)) for key, title, _, _ in CATEGORIES if key not in merged]
    for title, keys in [*parts, *([("OTHER", merged)] if merged else [])]:
        columns.append(Column(f"{title} {unit}", right=True))
        cells.append(_added([sum(row["ms"][key] for key in keys) / unit_ms for row in rows], 2))
    if not _priced(total):
        for key, title in (("gpuMs", "GPU"), ("vcpuMs", "VCPU")):
            held_unit, held_ms = _scale(total.get(key, 0))
            columns.append(Column(f"{title} {held_unit}", right=True))
            cells.append(_added([row.get(key, 0) / held_ms for row in rows], 2))
        return columns, list(zip(*cells, strict=True))
    digits = 4 if total["onDemandUsd"] < 10 else 2
    for key, title in (("paidUsd", "PAID $"), ("onDemandUsd", "ON DEMAND $")):
        columns.append(Column(title, right=True))
        amounts = _added([row[key] for row in rows], digits)
        cells.append(
            [text if _priced(row) else "-" for text, row in zip(amounts, (*rows, total), strict=True)]
        )
    columns.append(Column("SAVED", right=True))
    cells.append([_percent(row["savedPercent"]) for row in (*rows, total)])
    return columns, list(zip(*cells, strict=True))


def _priced(answer: Answer) -> bool:
    """Whether any of its time has a price."""
    return bool(answer["paidUsd"] or answer["onDemandUsd"])


def _added(values: Sequence[float], digits: int) -> list[str]:
    """A column of numbers with its sum below."""
    parts = adding_up(values, digits)
    return [f"{value:,.{digits}f}" for value in (*parts, sum(parts))]


def adding_up(values: Sequence[float], digits: int) -> list[float]:
    """The values rounded so that they add up to their rounded sum; none is off by more than one in the last place."""
    rounded: list[float] = []
    exact = shown = 0.0
    for value in values:
        exact += value
        part = round(exact, digits) - shown
        shown = round(exact, digits)
        rounded.append(abs(round(part, digits)))
    return rounded


def _label(row: Answer) -> str:
    if row["key"] is None:
        return str(row["name"] or "(none)")
    return f"{row['name']} {row['key']}" if row["name"] else str(row["key"])


def _scale(whole_ms: int) -> tuple[str, int]:
    return next((scale for scale in SCALES if whole_ms >= 10 * scale[1]), SCALES[-1])


def _print_ledger(answer: Answer) -> None:
    from rich.text import Text

    from windfall.cli.tables import Column, console, job_heading, print_table

    total, attempts = answer["total"], answer["attempts"]
    out = console()
    job_heading(answer["jobName"], answer["jobId"], answer["state"])
    longest = max((sum(attempt["ms"].values()) for attempt in attempts), default=0)
    bar = BAR if out.width >= WIDE else BAR // 2
    print_table(
        [
            Column("TRY"),
            Column("WHERE", shrinks=True),
            Column("TIME", right=True),
            Column("LOST", right=True),
            *([Column("PAID $", right=True)] if _priced(total) else []),
            Column("WHAT ITS TIME WENT INTO"),
        ],
        [
            [
                str(attempt["number"] or ""),
                _where(attempt),
                duration(sum(attempt["ms"].values())),
                duration(attempt["ms"]["lost"]) if attempt["ms"]["lost"] else "",
                *([_usd(attempt.get("paidUsd")) if attempt["number"] else ""] if _priced(total) else []),
                ledger_bar(attempt["ms"], longest, bar),
            ]
            for attempt in attempts
        ],
    )
    _print_total(total, out.print)
    wall = sum(total["ms"].values())
    out.print(Text(f"wall clock  {duration(wall)}", style="bold"))
    out.print(Text(_money(answer)))
    if answer["trainingSeconds"] is not None and total["savedPercent"] is not None:
        out.print(
            Text(
                f"by AWS's formula: {answer['trainingSeconds']:,} s of training, "
                f"{answer['billableSeconds']:,} s billable, {answer['savingsPercent']:.1f} % saved"
            )
        )


def _print_total(total: Answer, say: Callable[[Text], None]) -> None:
    from rich.text import Text

    wall = sum(total["ms"].values())
    for key, title, letter, style in CATEGORIES:
        spent = total["ms"][key]
        share = f"{spent / wall:6.1%}" if wall else ""
        paid = f"  ${_usd(total['usd'][key])}" if key in total["usd"] and total["paidUsd"] else ""
        say(Text.assemble((letter, style), f" {title:<10}{duration(spent):>14}{share:>9}{paid}"))


def ledger_bar(spent_ms: dict[str, int], longest_ms: int, width: int = BAR) -> Text:
    """A bar whose parts are what the time went into, about in the order in which it went; `width` is the longest."""
    from rich.text import Text

    drawn = Text()
    passed = 0
    looks = {key: (letter, style) for key, _, letter, style in CATEGORIES}
    for key in IN_TIME:
        begin = passed * width // longest_ms if longest_ms else 0
        passed += spent_ms[key]
        end = passed * width // longest_ms if longest_ms else 0
        letter, style = looks[key]
        drawn.append(letter * (end - begin), style=style)
    return drawn


def _where(attempt: Answer) -> str:
    if attempt["number"] is None:
        return "(no place)"
    place = attempt["instanceType"] or attempt["instance"]
    return f"{place} {attempt['market']}{', interrupted' if attempt['stopCause'] == 'interrupted' else ''}"


def _money(answer: Answer) -> str:
    total = answer["total"]
    if not _priced(total):
        held_text = f"{_held(total.get('gpuMs', 0))} of GPUs, {_held(total.get('vcpuMs', 0))} of vCPUs"
        return f"no price is known; held {held_text}" if total.get("vcpuMs") else "no price is known"
    text = f"paid ${_usd(total['paidUsd'])}"
    if total["savedPercent"] is not None:
        text += f", on demand ${_usd(total['onDemandUsd'])} for the same hours, {total['savedPercent']:.1f} % saved"
    if answer["budgetUsd"] is not None:
        text += f"; budget ${_usd(answer['budgetUsd'])}"
    return text


def _held(spent_ms: int) -> str:
    unit, unit_ms = _scale(spent_ms)
    return f"{spent_ms / unit_ms:,.2f} {unit}"


def _usd(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.2f}" if amount >= 10 else f"{amount:,.4f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"
