"""Schedules: create, get, list, update, delete.

The request is kept as it was sent and given back as it was sent, with the defaults that AWS shows. An update replaces
everything: what it does not name gets its default. Must not know when a schedule is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.scheduler.arns import schedule_arn
from windfall.aws_api.scheduler.context import SchedulerContext, page_of
from windfall.aws_api.scheduler.errors import InvalidRequest, ScheduleNotFound, refusal
from windfall.aws_api.scheduler.groups import new_group, require_group
from windfall.aws_api.scheduler.targets import read_target
from windfall.capacity.environments import Switch
from windfall.control.commands.calendar import CreateSchedule, DeleteSchedule, UpdateSchedule
from windfall.control.ports import Store
from windfall.jobs.errors import Rejected
from windfall.schedules.expressions import parse
from windfall.schedules.schedule import DEFAULT_GROUP, Schedule

_TOKEN = "ClientToken"  # noqa: S105 (the name of a member, no secret)
_DATES = ("StartDate", "EndDate")


async def create_schedule(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """CreateSchedule."""
    schedule = await asyncio.to_thread(_read, context, call)
    new_group(schedule.group)
    await context.execute(CreateSchedule(schedule))
    return {"ScheduleArn": schedule_arn(call.region, context.account_id, schedule.key)}


async def update_schedule(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """UpdateSchedule: replace all of it."""
    schedule = await asyncio.to_thread(_read, context, call)
    await context.execute(UpdateSchedule(schedule))
    return {"ScheduleArn": schedule_arn(call.region, context.account_id, schedule.key)}


async def delete_schedule(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """DeleteSchedule."""
    await context.execute(DeleteSchedule(_key(call.params), call.params.get(_TOKEN)))
    return {}


async def get_schedule(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """GetSchedule: the request as it was sent, with AWS's defaults."""
    key = _key(call.params)
    schedule = await context.read(lambda store: _find(store, key))
    if schedule is None:
        raise ScheduleNotFound(f"Schedule {call.params['Name']} does not exist.")
    sent = msgspec.json.decode(schedule.document, type=dict[str, Any])
    sent.pop(_TOKEN, None)
    target = {
        **sent["Target"],
        "RetryPolicy": {
            "MaximumEventAgeInSeconds": schedule.target.retry.max_age_s,
            "MaximumRetryAttempts": schedule.target.retry.attempts,
        },
    }
    return {
        "ScheduleExpressionTimezone": schedule.timezone,
        "State": schedule.switch.value,
        "ActionAfterCompletion": "NONE",
        **sent,
        "Arn": schedule_arn(call.region, context.account_id, schedule.key),
        "Name": schedule.name,
        "GroupName": schedule.group,
        "Target": target,
        "CreationDate": schedule.created_at / 1000,
        "LastModificationDate": schedule.modified_at / 1000,
    }


async def list_schedules(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """ListSchedules, by group and name."""
    group, prefix, state = (call.params.get(name) for name in ("GroupName", "NamePrefix", "State"))

    def wanted(store: Store) -> list[Schedule]:
        if group is not None:
            require_group(store, group)
        return [
            schedule
            for schedule in store.declared(Schedule)
            if (group is None or schedule.group == group)
            and schedule.name.startswith(prefix or "")
            and (state is None or schedule.switch.value == state)
        ]

    chosen, token = page_of(
        call, await context.read(wanted), lambda schedule: (schedule.group, schedule.name)
    )
    return {"Schedules": [_summary(context, call, schedule) for schedule in chosen], "NextToken": token}


def _summary(context: SchedulerContext, call: Call, schedule: Schedule) -> dict[str, Any]:
    return {
        "Arn": schedule_arn(call.region, context.account_id, schedule.key),
        "Name": schedule.name,
        "GroupName": schedule.group,
        "State": schedule.switch.value,
        "Target": {"Arn": schedule.target.arn},
        "CreationDate": schedule.created_at / 1000,
        "LastModificationDate": schedule.modified_at / 1000,
    }


def _key(params: Mapping[str, Any]) -> str:
    return f"{params.get('GroupName', DEFAULT_GROUP)}/{params['Name']}"


def _find(store: Store, key: str) -> Schedule | None:
    return next((schedule for schedule in store.declared(Schedule) if schedule.key == key), None)


def _read(context: SchedulerContext, call: Call) -> Schedule:
    """The schedule that a request describes; raises InvalidRequest for what can be seen to be wrong without the others.

    Zones and the model of the target's service are read from files the first time, hence not on the event loop.
    """
    params = call.params
    timezone = params.get("ScheduleExpressionTimezone", "UTC")
    try:
        parse(params["ScheduleExpression"])
        context.zones(timezone)
    except Rejected as rejected:
        raise refusal(rejected) from rejected
    start_at, end_at = (round(params[name] * 1000) if name in params else None for name in _DATES)
    if start_at is not None and end_at is not None and end_at <= start_at:
        raise InvalidRequest("EndDate must be later than StartDate")
    # Without a token of its own no request is the same as an earlier one.
    document = {**params, _TOKEN: params.get(_TOKEN, call.request_id)}
    return Schedule(
        group=params.get("GroupName", DEFAULT_GROUP),
        name=params["Name"],
        expression=params["ScheduleExpression"],
        target=read_target(params["Target"]),
        timezone=timezone,
        start_at=start_at,
        end_at=end_at,
        window_minutes=_window(params["FlexibleTimeWindow"]),
        switch=Switch(params.get("State", "ENABLED")),
        delete_when_done=params.get("ActionAfterCompletion") == "DELETE",
        document=msgspec.json.encode(document, order="sorted").decode(),
        submitter=call.caller.submitter,
    )


def _window(window: Mapping[str, Any]) -> int | None:
    minutes = window.get("MaximumWindowInMinutes")
    if window["Mode"] == "OFF":
        if minutes is not None:
            raise InvalidRequest(
                "FlexibleTimeWindow: leave MaximumWindowInMinutes out when Mode is OFF, or make it FLEXIBLE"
            )
        return None
    if minutes is None:
        raise InvalidRequest(
            "FlexibleTimeWindow: Mode FLEXIBLE needs MaximumWindowInMinutes, between 1 and 1440"
        )
    return int(minutes)
