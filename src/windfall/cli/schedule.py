"""`windfall schedule`: jobs by the calendar, with the options of `windfall run`, over EventBridge Scheduler's API.

Decides how a time as people write it (`--every 6h`, `--cron '0 2 * * 1-5'`, `--at '2027-01-04 02:00'`) becomes an
expression of Scheduler, whose cron has six fields and counts weekdays from Sunday. The daemon decides whether the
expression makes sense.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from windfall.aws_api.batch.run_definitions import definition_name
from windfall.cli.client import Client, connect
from windfall.cli.default_queue import choose_queue, find_or_make_definition, make_queue
from windfall.cli.errors import BadUsage, CliError, RequestRefused
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.run_options import job_options, wanted_of
from windfall.cli.schedules import schedules
from windfall.cli.submitting import JobRequest, completed, request

TARGET = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
#: Kept by the daemon and not used: a schedule may do what the key that made it may do.
ROLE = "arn:aws:iam::000000000000:role/windfall"
#: Maps whose keys are the user's own.
_MAPS = ("parameters", "tags")
#: What GetSchedule adds to what was sent.
_ADDED = ("Arn", "CreationDate", "LastModificationDate", "Name")


@click.group()
def schedule() -> None:
    """Run jobs by the calendar: create, list, pause, resume, delete."""


@schedule.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True})
@click.argument("schedule_name", metavar="NAME")
@click.option("--every", metavar="SPAN", help="Run it every 30m, 6h, 1d or 2w, the first time at once.")
@click.option("--cron", metavar="FIELDS", help="Run it as a crontab says: minute hour day month weekday.")
@click.option("--at", metavar="TIME", help="Run it once, at a time such as '2027-01-04 02:00'.")
@click.option("--timezone", metavar="TZ", help="The zone of --cron and --at (that of this host).")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip", "queue", "replace"]),
    default="skip",
    show_default=True,
    help="What to do when the run before is not over.",
)
@job_options
@data_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def create(
    schedule_name: str,
    every: str | None,
    cron: str | None,
    at: str | None,
    timezone: str | None,
    overlap: str,
    data: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Make a schedule that runs a command as a job.

    The job is what `windfall run` with the same options would submit now: the current directory and your
    environment are taken along.
    """
    if not schedule_name:
        raise BadUsage("NAME is empty; give the schedule a name")
    when = expression(every, cron, at)
    wanted = wanted_of(options)
    wanted = replace(wanted, name=wanted.name or schedule_name.replace(".", "-"))
    if wanted.after:
        raise BadUsage("--after names a job that is over when the schedule runs; leave it out")
    client = connect(data)
    wanted, remarks = completed(client, wanted, dict(os.environ))
    for remark in remarks:
        note(remark)
    request = {
        "ScheduleExpression": when,
        "ScheduleExpressionTimezone": timezone or local_timezone(),
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": TARGET, "RoleArn": ROLE, "Input": json.dumps(_input(client, wanted))},
    }
    try:
        answer = client.scheduler("POST", "schedules", schedule_name, **request)
    except RequestRefused as refused:
        if "already exists" not in str(refused):
            raise
        remedy = f"delete it with `windfall schedule delete {schedule_name}`, or choose another name"
        raise CliError(f"there is a schedule {schedule_name!r} already; {remedy}") from None
    try:
        _tag(client, answer["ScheduleArn"], overlap)
    except CliError:
        client.scheduler("DELETE", "schedules", schedule_name)
        raise
    if as_json:
        print_json(answer)
        return
    zone = "" if every else f" {request['ScheduleExpressionTimezone']}"
    click.echo(f"{schedule_name} runs by {when}{zone}; see `windfall schedules {schedule_name}`")


def _input(client: Client, wanted: JobRequest) -> Any:
    """The request of SubmitJob as a schedule keeps it, with a queue and a definition that exist."""
    queue, is_there = (wanted.queue, True) if wanted.queue else choose_queue(client, spot=wanted.spot)
    if not is_there:
        make_queue(client, queue)
    find_or_make_definition(client, wanted.image)
    submission = request(wanted, queue, definition_name(wanted.image))
    return _in_pascal_case({name: value for name, value in submission.items() if value is not None})


def _in_pascal_case(value: Any) -> Any:
    """Members as EventBridge Scheduler writes them; keys of maps stay."""
    if isinstance(value, list):
        return [_in_pascal_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name[:1].upper() + name[1:]: inner if name in _MAPS else _in_pascal_case(inner)
        for name, inner in value.items()
    }


def _tag(client: Client, arn: str, overlap: str) -> None:
    if overlap != "allow":
        client.scheduler("POST", "tags", arn, Tags=[{"Key": "windfall:overlap", "Value": overlap}])


schedule.add_command(schedules, "list")


@schedule.command()
@click.argument("name", metavar="NAME")
@data_option
@json_option
def pause(name: str, data: Path | None, as_json: bool) -> None:
    """Let a schedule start nothing until it is resumed; jobs that run go on."""
    _switch(connect(data), name, "DISABLED", "is paused", as_json=as_json)


@schedule.command()
@click.argument("name", metavar="NAME")
@data_option
@json_option
def resume(name: str, data: Path | None, as_json: bool) -> None:
    """Let a paused schedule run again; what it missed is not made up for."""
    _switch(connect(data), name, "ENABLED", "runs again", as_json=as_json)


@schedule.command()
@click.argument("name", metavar="NAME")
@data_option
@json_option
def delete(name: str, data: Path | None, as_json: bool) -> None:
    """Delete a schedule; jobs that it started go on."""
    group, own = _key(name)
    try:
        answer = connect(data).scheduler("DELETE", "schedules", own, groupName=group)
    except RequestRefused as refused:
        raise _unknown(refused, name) from None
    print_json(answer) if as_json else click.echo(f"{name} is deleted; jobs that it started go on")


def _switch(client: Client, name: str, state: str, said: str, *, as_json: bool) -> None:
    group, own = _key(name)
    try:
        sent = client.scheduler("GET", "schedules", own, groupName=group)
    except RequestRefused as refused:
        raise _unknown(refused, name) from None
    members = {member: value for member, value in sent.items() if member not in _ADDED}
    answer = client.scheduler("PUT", "schedules", own, **(members | {"State": state}))
    print_json(answer) if as_json else click.echo(f"{name} {said}; see `windfall schedules {name}`")


def _key(name: str) -> tuple[str | None, str]:
    """The group, if the name has one, and the name in it."""
    group, slash, own = name.partition("/")
    return (group, own) if slash else (None, name)


def _unknown(refused: RequestRefused, name: str) -> CliError:
    if "does not exist" not in str(refused):
        return refused
    return CliError(f"there is no schedule {name!r}; `windfall schedule list` lists them")


_SPAN = re.compile(r"([1-9][0-9]{0,5})(m|h|d|w)")
_UNITS = {"m": ("minute", 1), "h": ("hour", 1), "d": ("day", 1), "w": ("day", 7)}
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def expression(every: str | None, cron: str | None, at: str | None) -> str:
    """The expression of exactly one of the three options."""
    given = [option for option in (every, cron, at) if option is not None]
    if len(given) != 1:
        raise BadUsage(
            "say when it runs with one of --every 6h, --cron '0 2 * * 1-5' and --at '2027-01-04 02:00'"
        )
    if every is not None:
        return _rate(every)
    return _cron(cron) if cron is not None else _at(str(at))


def _rate(text: str) -> str:
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise BadUsage(f"--every {text!r} is not a time span; write it as 30m, 6h, 1d or 2w")
    unit, times = _UNITS[match[2]]
    number = int(match[1]) * times
    return f"rate({number} {unit}{'' if number == 1 else 's'})"


def _at(text: str) -> str:
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise BadUsage(f"--at {text!r} is not a time; write it as '2027-01-04 02:00'")
    return f"at({match[1]}T{match[2]}{match[3] or ':00'})"


def _cron(text: str) -> str:
    fields = text.strip().removeprefix("cron(").removesuffix(")").split()
    if len(fields) == 6:
        return f"cron({' '.join(fields)})"
    if len(fields) != 5:
        raise BadUsage(
            f"--cron {text!r} has {len(fields)} fields; write five, as in a crontab (minute hour day month weekday)"
        )
    minute, hour, day, month, weekday = fields
    if day != "*" and weekday != "*":
        raise BadUsage(
            f"--cron {text!r} names days of the month and of the week; a crontab means either of them, which takes two"
            " schedules here"
        )
    if weekday == "*":
        return f"cron({minute} {hour} {day} {month} ? *)"
    return f"cron({minute} {hour} ? {month} {_weekdays(weekday, text)} *)"


def _weekdays(field: str, whole: str) -> str:
    """The weekdays of a crontab, 0 or 7 being Sunday, as names; those that are names already stay."""
    if not re.search(r"[0-9]", field):
        return field.upper()
    days: set[int] = set()
    for part in field.split(","):
        match = re.fullmatch(r"(?:\*|([0-7])(?:-([0-7]))?)(?:/([1-7]))?", part)
        if match is None:
            raise BadUsage(
                f"--cron {whole!r}: {part!r} is not a weekday; write 0-7 (0 and 7 are Sunday) or MON-FRI"
            )
        first = int(match[1] or 0)
        last = int(match[2]) if match[2] else 6 if match[1] is None or match[3] else first
        days |= {day % 7 for day in range(first, last + 1, int(match[3] or 1))}
    if not days:
        raise BadUsage(f"--cron {whole!r}: {field!r} names no weekday; the first must not be after the last")
    return ",".join(_DAYS[day] for day in sorted(days))


def local_timezone(environment: Mapping[str, str] = os.environ, root: Path = Path("/etc")) -> str:
    """The name of this host's time zone, or UTC where it has none."""
    named = environment.get("TZ", "").lstrip(":")
    if "/" in named and not named.startswith("/"):
        return named
    link = root / "localtime"
    if link.is_symlink():
        _, separator, name = str(link.readlink()).partition("zoneinfo/")
        if separator and "/" in name:
            return name
    return "UTC"
