"""Schedules for tests, in few words."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from windfall.schedules.due_times import Due, due_times, local_time
from windfall.schedules.schedule import Schedule, SummerTime, Target

TARGET = Target("arn:aws:scheduler:::aws-sdk:batch:submitJob", "arn:aws:iam::123456789012:role/any", "{}")


def a_schedule(expression: str, zone: str = "UTC", **more: Any) -> Schedule:
    return Schedule("default", "nightly", expression, TARGET, timezone=zone, **more)


def ms(text: str) -> int:
    """An instant, written as ISO 8601; without an offset it is UTC."""
    moment = datetime.fromisoformat(text if "+" in text[10:] or "-" in text[10:] else text + "+00:00")
    return round(moment.timestamp() * 1000)


def dues(
    schedule: Schedule, after: str, count: int = 5, summer_time: SummerTime = SummerTime.AWS
) -> list[Due]:
    return list(islice(due_times(schedule, ms(after), ZoneInfo(schedule.timezone), summer_time), count))


def clock_times(
    schedule: Schedule, after: str, count: int = 5, summer_time: SummerTime = SummerTime.AWS
) -> list[str]:
    """The next due times as the schedule's own clocks show them; a skipped one is in parentheses."""
    shown = []
    for due in dues(schedule, after, count, summer_time):
        text = f"{local_time(due.at, ZoneInfo(schedule.timezone)):%a %Y-%m-%d %H:%M %z}"
        shown.append(f"({text})" if due.skipped else text)
    return shown
