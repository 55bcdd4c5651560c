"""Windfall's own operations on schedules: when each runs next, the outcome of its ticks, and a forecast.

Turns domain values into plain JSON; decides nothing. Reads only the store, so any daemon can answer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.capacity.environments import Switch
from windfall.control.ports import Store
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.daemon.time_zones import zone_named
from windfall.jobs.ids import JobId
from windfall.jobs.states import PENDING, RUNNABLE, SUBMITTED
from windfall.schedules.due_times import Due, due_times, local_time
from windfall.schedules.errors import ScheduleError
from windfall.schedules.forecast import Forecast, durations_ms, forecast
from windfall.schedules.schedule import DEFAULT_GROUP, Schedule, ScheduleGroup, Tick, TickOutcome
from windfall.schedules.tag_rules import Policies, policies_of
from windfall.schedules.wording import describe
from windfall.schedules.zones import utc_only

#: A forecast is based on this many of the newest ticks.
JUDGED_BY = 100
SHOWN_DUE = 5
_WAITING = frozenset({SUBMITTED, PENDING, RUNNABLE})
PAGE_MAX = 1_000


class CalendarListing:
    """The handlers."""

    def __init__(self, gate: TenantGateway, clock_ms: Callable[[], int]) -> None:
        self._gate = gate
        self._clock_ms = clock_ms

    async def list(self, call: Call) -> dict[str, Any]:
        """All schedules, ordered by next due time; at most `limit`."""
        limit, now = _number(call, "limit", 100), self._clock_ms()
        answer: dict[str, Any] = await self._gate.read(lambda store: _listed(store, limit, now))
        return answer

    async def history(self, call: Call) -> dict[str, Any]:
        """One schedule with its ticks, newest first: `limit` of them, due before `before`."""
        name, limit, before = call.params.get("name"), _number(call, "limit", 20), call.params.get("before")
        if not isinstance(name, str) or not name or not (before is None or isinstance(before, int)):
            raise ApiError(
                "Invalid",
                "name is required (a non-empty string); before must be milliseconds since the epoch.",
            )
        now = self._clock_ms()
        history: dict[str, Any] | None = await self._gate.read(
            lambda store: _history(store, name, limit, before, now)
        )
        if history is None:
            raise ApiError(
                "NotFound", f"There is no schedule {name[:200]}; `windfall schedules` lists them.", 404
            )
        return history


def _listed(store: Store, limit: int, now: int) -> dict[str, Any]:
    groups = {group.name: group for group in store.declared(ScheduleGroup)}
    schedules = store.declared(Schedule)
    dues = {
        schedule.key: _coming(schedule, policies_of(schedule, groups.get(schedule.group)), now, 2)
        for schedule in schedules
    }
    schedules.sort(
        key=lambda schedule: (dues[schedule.key][0].at if dues[schedule.key] else 1 << 62, schedule.key)
    )
    shown = [
        _schedule(store, schedule, policies_of(schedule, groups.get(schedule.group)), dues[schedule.key])
        for schedule in schedules[:limit]
    ]
    return {"now": now, "schedules": shown, "leftOut": len(schedules) - len(shown)}


def _history(store: Store, name: str, limit: int, before: int | None, now: int) -> dict[str, Any] | None:
    """By name in the default group, by name in another, or by group/name; also for a deleted schedule."""
    schedules = {declared.key: declared for declared in store.declared(Schedule)}
    keys = [name] if "/" in name else [f"{DEFAULT_GROUP}/{name}"]
    if keys[0] not in schedules and "/" not in name:
        keys = [key for key, other in schedules.items() if other.name == name] + keys
    key = keys[0]
    ticks, schedule = store.ticks(key, limit, before), schedules.get(key)
    waiting = _waiting_runs(store, ticks)
    if schedule is None:
        if not ticks:
            return None
        return {"now": now, "key": key, "schedule": None, "ticks": [_tick(it, None, waiting) for it in ticks]}
    group = next(
        (declared for declared in store.declared(ScheduleGroup) if declared.name == schedule.group), None
    )
    policies = policies_of(schedule, group)
    due = _coming(schedule, policies, now, SHOWN_DUE)
    return {
        "now": now,
        "key": key,
        "schedule": _schedule(store, schedule, policies, due),
        "ticks": [_tick(it, schedule, waiting) for it in ticks],
    }


def _coming(schedule: Schedule, policies: Policies, now: int, count: int) -> list[Due]:
    """The next due times; none for a disabled schedule or an unknown time zone."""
    if schedule.switch is Switch.DISABLED:
        return []
    try:
        zone = zone_named(schedule.timezone)
        after = max(schedule.decided_at, now)
        return list(islice(due_times(schedule, after, zone, policies.summer_time), count))
    except ScheduleError:
        return []


def _waiting_runs(store: Store, ticks: list[Tick]) -> set[str]:
    """The runs that have not started; an array has started when its first child has."""
    live = [JobId(tick.run) for tick in ticks if tick.run is not None and tick.run_ended_at is None]
    jobs = store.jobs(live) if live else []
    return {
        job.id
        for job in jobs
        if job.state in _WAITING
        and not any(count for state, count in (job.summary or {}).items() if state not in _WAITING)
    }


def _schedule(store: Store, schedule: Schedule, policies: Policies, due: list[Due]) -> dict[str, Any]:
    ticks = store.ticks(schedule.key, JUDGED_BY)
    waiting = _waiting_runs(store, ticks)
    running = next((tick for tick in ticks if tick.run is not None and tick.run_ended_at is None), None)
    doable = [due_time.at for due_time in due if not due_time.skipped]
    return {
        "key": schedule.key,
        "group": schedule.group,
        "name": schedule.name,
        "state": schedule.switch,
        "when": describe(schedule),
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "target": schedule.target.arn,
        "overlap": policies.overlap,
        "catchUp": policies.catch_up,
        "summerTime": policies.summer_time,
        "flexibleWindowMinutes": schedule.window_minutes,
        "next": [
            {
                "at": due_time.at,
                "local": _local(schedule, due_time.at),
                "note": due_time.note,
                "skipped": due_time.skipped,
            }
            for due_time in due
        ],
        "last": _tick(ticks[0], schedule, waiting) if ticks else None,
        "running": None if running is None else _tick(running, schedule, waiting),
        "forecast": _forecast(forecast(durations_ms(ticks), doable)),
    }


def _tick(tick: Tick, schedule: Schedule | None, waiting: set[str]) -> dict[str, Any]:
    windowed = schedule is not None and schedule.window_minutes is not None
    return {
        "dueAt": tick.due_at,
        "local": _local(schedule, tick.due_at),
        "outcome": tick.outcome,
        "reason": tick.reason,
        "error": tick.error,
        "jobId": tick.run,
        "attempts": tick.attempts,
        "doneAt": tick.done_at,
        "comesAt": tick.at if windowed and tick.outcome is TickOutcome.DUE and not tick.attempts else None,
        "againAt": tick.at if tick.unstarted and tick.attempts else None,
        "runWaits": tick.run in waiting,
        "runStartedAt": tick.run_started_at,
        "runEndedAt": tick.run_ended_at,
        "runSucceeded": tick.run_succeeded,
    }


def _forecast(made: Forecast) -> dict[str, Any]:
    return {
        "verdict": made.verdict,
        "certainty": made.certainty,
        "runs": made.runs,
        "inTime": made.in_time,
        "chance": made.chance,
        "medianMs": made.median_ms,
        "p90Ms": made.p90_ms,
        "roomMs": made.room_ms,
    }


def _local(schedule: Schedule | None, at: int) -> str:
    """A time in the schedule's time zone."""
    try:
        zone = zone_named("UTC" if schedule is None else schedule.timezone)
    except ScheduleError:
        zone = utc_only("UTC")
    return f"{local_time(at, zone):%a %Y-%m-%d %H:%M:%S %Z}"


def _number(call: Call, name: str, default: int) -> int:
    value = call.params.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= PAGE_MAX:
        raise ApiError("Invalid", f"{name} must be a number from 1 to {PAGE_MAX}.")
    return value
