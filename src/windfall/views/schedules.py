"""Schedules: when each runs next, the outcome of its ticks, and a forecast.

Decides the order and the spelling. Time zones, ticks and the runs that have not started are arguments. Must not know
where they are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from windfall.capacity.environments import Switch
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.states import PENDING, RUNNABLE, SUBMITTED
from windfall.schedules.due_times import Due, due_times, local_time
from windfall.schedules.errors import ScheduleError
from windfall.schedules.forecast import durations_ms, forecast
from windfall.schedules.schedule import Schedule, ScheduleGroup, Tick, TickOutcome
from windfall.schedules.tag_rules import Policies, policies_of
from windfall.schedules.wording import describe
from windfall.schedules.zones import Zones, utc_only
from windfall.views.spelling import Answer, picked

#: A forecast is based on this many of the newest ticks.
JUDGED_BY = 100
#: Due times of each schedule in a list (enough for a forecast), and of one that is looked at.
LISTED_DUE, SHOWN_DUE = 2, 5
_NEVER = 1 << 62
_WAITING = frozenset({SUBMITTED, PENDING, RUNNABLE})


@dataclass(frozen=True, slots=True)
class ComingRuns:
    """A schedule with its next due times; none if it is disabled or its time zone is unknown."""

    schedule: Schedule
    policies: Policies
    due: list[Due]
    zones: Zones


def coming_runs(
    schedule: Schedule, groups: Iterable[ScheduleGroup], zones: Zones, now: int, count: int
) -> ComingRuns:
    """The next due times of a schedule."""
    group = next((group for group in groups if group.name == schedule.group), None)
    policies = policies_of(schedule, group)
    due: list[Due] = []
    if schedule.switch is not Switch.DISABLED:
        try:
            zone, after = zones(schedule.timezone), max(schedule.decided_at, now)
            due = list(islice(due_times(schedule, after, zone, policies.summer_time), count))
        except ScheduleError:
            pass
    return ComingRuns(schedule, policies, due, zones)


def by_next_due(
    schedules: Iterable[Schedule], groups: Sequence[ScheduleGroup], zones: Zones, now: int
) -> list[ComingRuns]:
    """All schedules, the one that is due next first."""
    coming = [coming_runs(schedule, groups, zones, now, LISTED_DUE) for schedule in schedules]
    return sorted(coming, key=lambda runs: (runs.due[0].at if runs.due else _NEVER, runs.schedule.key))


def live_runs(ticks: Iterable[Tick]) -> list[JobId]:
    """The jobs of ticks whose run has not ended."""
    return [JobId(tick.run) for tick in ticks if tick.run is not None and tick.run_ended_at is None]


def waiting_runs(jobs: Iterable[Job]) -> set[str]:
    """Those of these runs that have not started; an array has started when its first child has."""
    return {
        job.id
        for job in jobs
        if job.state in _WAITING
        and not any(count for state, count in (job.summary or {}).items() if state not in _WAITING)
    }


def described(coming: ComingRuns, ticks: Sequence[Tick], waiting: Collection[str]) -> Answer:
    """One schedule, judged by its newest ticks."""
    schedule, policies, zones = coming.schedule, coming.policies, coming.zones
    running = next((tick for tick in ticks if tick.run is not None and tick.run_ended_at is None), None)
    doable = [due.at for due in coming.due if not due.skipped]
    judged = forecast(durations_ms(ticks), doable)
    return {
        **picked(schedule, "key group name expression timezone"),
        "state": schedule.switch,
        "when": describe(schedule),
        "target": schedule.target.arn,
        **picked(policies, "overlap catch_up summer_time"),
        "flexibleWindowMinutes": schedule.window_minutes,
        "next": [
            {"local": _local(schedule, due.at, zones), **picked(due, "at note skipped")} for due in coming.due
        ],
        "last": tick_of(ticks[0], schedule, waiting, zones) if ticks else None,
        "running": None if running is None else tick_of(running, schedule, waiting, zones),
        "forecast": picked(judged, "verdict certainty runs in_time chance median_ms p90_ms room_ms"),
    }


def tick_of(tick: Tick, schedule: Schedule | None, waiting: Collection[str], zones: Zones) -> Answer:
    """One due time and its outcome; `schedule` is None for one that was deleted."""
    windowed = schedule is not None and schedule.window_minutes is not None
    return {
        **picked(tick, "due_at outcome reason error attempts done_at"),
        "local": _local(schedule, tick.due_at, zones),
        "jobId": tick.run,
        "comesAt": tick.at if windowed and tick.outcome is TickOutcome.DUE and not tick.attempts else None,
        "againAt": tick.at if tick.unstarted and tick.attempts else None,
        "runWaits": tick.run in waiting,
        **picked(tick, "run_started_at run_ended_at run_succeeded"),
    }


def _local(schedule: Schedule | None, at: int, zones: Zones) -> str:
    """A time in the schedule's time zone."""
    try:
        zone = zones("UTC" if schedule is None else schedule.timezone)
    except ScheduleError:
        zone = utc_only("UTC")
    return f"{local_time(at, zone):%a %Y-%m-%d %H:%M:%S %Z}"
