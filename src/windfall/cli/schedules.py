"""`windfall schedules`: when each runs next, what became of its last ticks and why, and whether the next run fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windfall.cli.client import connect, unwrapped
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import ago, ahead, counted, duration

if TYPE_CHECKING:
    from windfall.cli.tables import Column

Answer = dict[str, Any]

_STYLES = {
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "run failed": "red",
    "skipped": "yellow",
    "waiting": "cyan",
    "due": "cyan",
}
_VERDICTS = {"fits": "fits", "tight": "tight", "overruns": "does not fit", "unknown": "no run yet"}
_MINUTE_MS = 60_000
#: A terminal as wide as this has room for more than what comes next and how it went.
_WIDE = 120


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", help="Show at most N schedules, or ticks."
)
@data_option
@json_option
def schedules(name: str | None, limit: int | None, data: Path | None, as_json: bool) -> None:
    """List schedules with their next runs; show the history of one.

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

    from windfall.cli.tables import Column, has_room, print_table

    if not answer["schedules"]:
        click.echo("no schedules; `windfall schedule create` makes one")
        return
    narrow = not has_room(_WIDE)
    columns = [
        Column("SCHEDULE"),
        Column("WHEN", shrinks=True),
        Column("NEXT RUN"),
        *([] if narrow else [Column("IN", right=True), Column("LAST TICK")]),
        Column("OUTCOME"),
        Column("FORECAST", shrinks=True),
    ]
    rows = []
    for schedule in answer["schedules"]:
        upcoming = next((due for due in schedule["next"] if not due["skipped"]), None)
        last = schedule["last"]
        outcome = _outcome(last) if last else ""
        distances = [
            _countdown(upcoming["at"], answer["now"]) if upcoming else "",
            ago(last["dueAt"], answer["now"]) if last else "",
        ]
        rows.append(
            [
                _short_key(schedule["key"]),
                schedule["when"],
                _next_run(schedule, upcoming, narrow=narrow),
                *([] if narrow else distances),
                Text(outcome, style=_STYLES.get(outcome, "")),
                _VERDICTS.get(schedule["forecast"]["verdict"], "") if narrow else _forecast(schedule),
            ]
        )
    print_table(columns, rows)
    if answer["leftOut"]:
        click.echo(f"{counted(answer['leftOut'], 'schedule')} more; --limit shows up to 1000")


def _print_one(answer: Answer) -> None:
    from rich.text import Text

    from windfall.cli.tables import Column, has_room, heading, print_fields, shown_ids

    schedule, now = answer["schedule"], answer["now"]
    if schedule is None:
        print_fields([("schedule", answer["key"]), ("state", "deleted; this is what is left of its history")])
    else:
        running = schedule["running"]
        print_fields(
            [
                ("schedule", schedule["key"]),
                ("state", schedule["state"]),
                ("when", f"{schedule['when']}   {schedule['expression']}"),
                ("flexible window", _window(schedule)),
                ("target", schedule["target"]),
                ("if the run before is not over", schedule["overlap"]),
                ("if no daemon ran at the time", schedule["catchUp"]),
                ("at changes of summer time", schedule["summerTime"]),
                (
                    _outcome(running) if running else "running",
                    f"{running['jobId']}, due {running['local']}" if running else "",
                ),
                ("forecast", _forecast(schedule)),
            ]
        )
        heading("Next due times")
        for due in schedule["next"]:
            note = f"   {due['note']}" if due["note"] else ""
            click.echo(f"  {due['local']}  {_countdown(due['at'], now)}{note}")
        if not schedule["next"]:
            click.echo("  none" + (": it is DISABLED" if schedule["state"] == "DISABLED" else ""))
    heading("Ticks, newest first")
    if not answer["ticks"]:
        click.echo("  none yet")
        return
    columns = [Column("DUE"), Column("OUTCOME"), Column("JOB", optional=True), Column("TOOK", right=True)]
    ids = shown_ids([tick["jobId"] or "" for tick in answer["ticks"]], room=has_room(_WIDE))
    rows, reasons = [], []
    for shown_id, tick in zip(ids, answer["ticks"], strict=True):
        outcome = _outcome(tick)
        state = Text(outcome, style=_STYLES.get(outcome, ""))
        rows.append([tick["local"], state, shown_id, _took(tick, now)])
        reasons.append(_why(tick, now))
    _print_ticks(columns, rows, reasons)


def _print_ticks(columns: list[Column], rows: list[list[Any]], reasons: list[str]) -> None:
    """A line for each tick; its reason stands in it where all of them have room, and else below it, never cut."""
    from windfall.cli.tables import Column, console, print_indented, print_table, table_lines

    out = console()
    with_reasons = [[*row, why] for row, why in zip(rows, reasons, strict=True)]
    whole = table_lines([*columns, Column("WHY")], with_reasons, 10**6)
    if max(line.cell_len for line in whole) <= out.width:
        print_table([*columns, Column("WHY")], with_reasons)
        return
    title, *lines = table_lines(columns, rows, out.width)
    out.print(title, soft_wrap=True)
    for line, why in zip(lines, reasons, strict=True):
        out.print(line, soft_wrap=True)
        if why:
            print_indented(why)


def _next_run(schedule: Answer, upcoming: Answer | None, *, narrow: bool) -> str:
    """The time of the next run by the schedule's own clock; in a narrow terminal without year and seconds."""
    if upcoming is None:
        return "disabled" if schedule["state"] == "DISABLED" else "never"
    weekday, date, clock, zone = upcoming["local"].split(" ", 3)
    return f"{weekday} {date[5:]} {clock[:5]} {zone}" if narrow else str(upcoming["local"])


def _short_key(key: str) -> str:
    return key.removeprefix("default/")


def _outcome(tick: Answer) -> str:
    if tick["outcome"] != "started":
        return str(tick["outcome"])
    if tick["runEndedAt"] is None:
        return "waiting" if tick["runWaits"] else "running"
    return "succeeded" if tick["runSucceeded"] else "run failed"


def _took(tick: Answer, now: int) -> str:
    if tick["outcome"] != "started" or tick["doneAt"] is None:
        return ""
    return duration((tick["runEndedAt"] or now) - tick["doneAt"])


def _why(tick: Answer, now: int) -> str:
    parts = [tick["reason"] or ""]
    if tick["againAt"] is not None and tick["error"]:
        parts.append(f"{tick['error']}; asked again {ahead(tick['againAt'], now)}")
    if tick["comesAt"] is not None:
        parts.append(f"comes {ahead(tick['comesAt'], now)}, in its flexible window")
    return unwrapped("; ".join(part for part in parts if part))


def _window(schedule: Answer) -> str:
    minutes = schedule["flexibleWindowMinutes"]
    return f"a tick comes within {counted(minutes, 'minute')} after it is due" if minutes else ""


def _countdown(at: int, now: int) -> str:
    """How far ahead, in two units: half of a schedule's hours are not to be lost in `in 1 h`."""
    return ahead(at, now) if at - now < _MINUTE_MS else f"in {duration(at - now)}"


def _forecast(schedule: Answer) -> str:
    made = schedule["forecast"]
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
