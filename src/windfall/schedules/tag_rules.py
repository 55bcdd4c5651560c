"""What a schedule's tags say beyond AWS: overlap, missed ticks, summer time.

Decides which tags there are and which values they may have. A schedule's own tags win over its group's. Must not know
what is then done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from windfall.schedules.errors import ScheduleError
from windfall.schedules.schedule import CatchUp, Overlap, Schedule, ScheduleGroup, SummerTime

OVERLAP = "windfall:overlap"
CATCH_UP = "windfall:catch-up"
SUMMER_TIME = "windfall:summer-time"

_OWN = "windfall:"
_VALUES: Mapping[str, type[StrEnum]] = {OVERLAP: Overlap, CATCH_UP: CatchUp, SUMMER_TIME: SummerTime}


@dataclass(frozen=True, slots=True)
class Policies:
    """How a schedule is to be treated where AWS has nothing to set."""

    overlap: Overlap = Overlap.ALLOW
    catch_up: CatchUp = CatchUp.ONCE
    summer_time: SummerTime = SummerTime.AWS


def policies_of(schedule: Schedule, group: ScheduleGroup | None) -> Policies:
    """What the tags of a schedule and of its group say together."""
    tags = {**(group.tags if group is not None else {}), **schedule.tags}
    default = Policies()
    return Policies(
        Overlap(tags.get(OVERLAP, default.overlap)),
        CatchUp(tags.get(CATCH_UP, default.catch_up)),
        SummerTime(tags.get(SUMMER_TIME, default.summer_time)),
    )


def check_policy_tags(tags: Mapping[str, str]) -> None:
    """Raise if a tag that means something here has a value that means nothing, or one of ours means nothing here."""
    unknown = next((name for name in tags if name.startswith(_OWN) and name not in _VALUES), None)
    if unknown is not None:
        raise ScheduleError(f"A schedule has no tag {unknown[:100]}; there are {', '.join(_VALUES)}")
    for name, values in _VALUES.items():
        if name in tags and tags[name] not in [value.value for value in values]:
            allowed = ", ".join(value.value for value in values)
            raise ScheduleError(f"Tag {name} is {tags[name][:100]!r}; write one of {allowed}")
