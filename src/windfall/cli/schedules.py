"""`windfall schedules`: when each runs next, what became of its last ticks and why, and whether the next run fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.client import connect
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import ago, ahead, counted, duration

Answer = dict[str, Any]

_STYLES = {
    "started": "blue",
    "succeeded": "green",
    "failed": "red",
    "run failed": "red",
    "skipped": "yellow",
    "waiting": "cyan",
    "due": "cyan",
}
_DAY_MS = 86_400_000


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", help="Show at most N schedules, or ticks."
)
@data_option
@json_option
def schedules(name: str | None, limit: int | None, data: Path | None, as_json: bool) -> None:
    """List schedules with their next runs and forecast; the history of one.

    NAME is a schedule's name, or GROUP/NAME. Times are those of the schedule's own time zone.
    """
    client = connect(data)
    if name is None:
        answer = client.own("Schedules", limit=limit)
    else:
        answer = client.own("ScheduleHistory", name=name, limit=limit)
    if as_json:
        print_json(answer)
    elif name is None:
        _print_list(answer)
    else:
        _print_one(answer)


def _print_list(answer: Answer) -> None:
    from rich.text import Text

    from windfall.cli.tables import Column, print_table

    if not answer["schedules"]:
        click.echo("no schedules; `aws scheduler create-schedule` makes one, see docs/schedules.md")
        return
    columns = [
        Column("SCHEDULE"),
        Column("WHEN", shrinks=True),
        Column("NEXT RUN"),
        Column("IN", right=True, optional=True),
        Column("LAST TICK", optional=True),
        Column("OUTCOME"),
        Column("FORECAST", shrinks=True),
    ]
    rows = []
    for one in answer["schedules"]:
        upcoming = next((due for due in one["next"] if not due["skipped"]), None)
        last = one["last"]
        outcome = _outcome(last) if last else ""
        rows.append(
            [
                _short_key(one["key"]),
                one["when"],
                upcoming["local"] if upcoming else ("disabled" if one["state"] == "DISABLED" else "never"),
                _countdown(upcoming["at"], answer["now"]) if upcoming else "",
                ago(last["dueAt"], answer["now"]) if last else "",
                Text(outcome, style=_STYLES.get(outcome, "")),
                _forecast(one),
            ]
        )
    print_table(columns, rows)
    if answer["leftOut"]:
        click.echo(f"{counted(answer['leftOut'], 'schedule')} more; --limit shows up to 1000")


def _print_one(answer: Answer) -> None:
    from rich.text import Text

    from windfall.cli.tables import Column, heading, print_fields, print_table

    one, now = answer["schedule"], answer["now"]
    if one is None:
        print_fields([("schedule", answer["key"]), ("state", "deleted; this is what is left of its history")])
    else:
        running = one["running"]
        print_fields(
            [
                ("schedule", one["key"]),
                ("state", one["state"]),
                ("when", f"{one['when']}   {one['expression']}"),
                ("target", one["target"]),
                ("if the run before is not over", one["overlap"]),
                ("if no daemon ran at the time", one["catchUp"]),
                ("at changes of summer time", one["summerTime"]),
                ("running", f"{running['jobId']}, due {running['local']}" if running else ""),
                ("forecast", _forecast(one)),
            ]
        )
        heading("Next due times")
        for due in one["next"]:
            note = f"   {due['note']}" if due["note"] else ""
            click.echo(f"  {due['local']}  {_countdown(due['at'], now)}{note}")
        if not one["next"]:
            click.echo("  none" + (": it is DISABLED" if one["state"] == "DISABLED" else ""))
    heading("Ticks, newest first")
    if not answer["ticks"]:
        click.echo("  none yet")
        return
    columns = [
        Column("DUE"),
        Column("OUTCOME"),
        Column("JOB", optional=True),
        Column("TOOK", right=True),
        Column("WHY", shrinks=True),
    ]
    rows = []
    for tick in answer["ticks"]:
        outcome = _outcome(tick)
        rows.append(
            [
                tick["local"],
                Text(outcome, style=_STYLES.get(outcome, "")),
                tick["jobId"] or "",
                _took(tick, now),
                _why(tick, now),
            ]
        )
    print_table(columns, rows)


def _short_key(key: str) -> str:
    return key.removeprefix("default/")


def _outcome(tick: Answer) -> str:
    if tick["outcome"] != "started":
        return str(tick["outcome"])
    if tick["runEndedAt"] is None:
        return "running"
    return "succeeded" if tick["runSucceeded"] else "run failed"


def _took(tick: Answer, now: int) -> str:
    if tick["outcome"] != "started" or tick["doneAt"] is None:
        return ""
    return duration((tick["runEndedAt"] or now) - tick["doneAt"])


def _why(tick: Answer, now: int) -> str:
    parts = [tick["reason"] or ""]
    if tick["againAt"] is not None and tick["error"]:
        parts.append(f"{tick['error']}; asked again {ahead(tick['againAt'], now)}")
    return "; ".join(part for part in parts if part)


def _countdown(at: int, now: int) -> str:
    """How far ahead, also for times that are days away: the schedule's own clock stands beside it."""
    return ahead(at, now) if at - now < _DAY_MS else f"in {duration(at - now)}"


def _forecast(one: Answer) -> str:
    made = one["forecast"]
    if not made["runs"]:
        return "no run to judge by"
    usual = f"{duration(made['medianMs'])}, 9 in 10 within {duration(made['p90Ms'])}"
    judged = f"{counted(made['runs'], 'run')}, certainty {made['certainty']}"
    if made["roomMs"] is None:
        return f"usually {usual} ({judged})"
    room = f"the {duration(made['roomMs'])} until the run after it"
    words = {
        "fits": f"fits before {room}",
        "tight": f"tight: only {made['inTime']} of {made['runs']} would have fitted into {room}",
        "overruns": f"does not fit: {made['inTime']} of {made['runs']} would have fitted into {room}",
    }
    return f"{words[made['verdict']]}: usually {usual} ({judged})"
