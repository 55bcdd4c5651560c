"""Tags of schedule groups, as on AWS, and of schedules, which have none there.

Decides how lists of tags are read and written. The core decides what a tag means and how many are allowed. A schedule's
own tags take precedence over its group's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.scheduler.arns import tagged
from windfall.aws_api.scheduler.context import SchedulerContext
from windfall.aws_api.scheduler.errors import InvalidRequest, ScheduleNotFound, shown
from windfall.control.commands.calendar import TagSchedules
from windfall.control.ports import Store
from windfall.schedules.schedule import DEFAULT_GROUP, Schedule, ScheduleGroup


async def tag_resource(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """TagResource: add tags, or change those of the same key."""
    group, name = tagged(call.params["ResourceArn"])
    await context.execute(TagSchedules(group, name, add=tags_in(call.params["Tags"])))
    return {}


async def untag_resource(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """UntagResource; missing keys are ignored."""
    group, name = tagged(call.params["ResourceArn"])
    await context.execute(TagSchedules(group, name, remove=tuple(call.params["TagKeys"])))
    return {}


async def list_tags_for_resource(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """ListTagsForResource, by key; of a schedule its own ones."""
    group, schedule = tagged(call.params["ResourceArn"])
    tags = await context.read(lambda store: _tags_of(store, group, schedule))
    return {"Tags": [{"Key": name, "Value": tags[name]} for name in sorted(tags)]}


def tags_in(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """A list of tags as the core keeps them; of a key that is given twice the last value counts."""
    values = {}
    for tag in tags:
        if tag["Key"].lower().startswith("aws:"):
            raise InvalidRequest(f"Tag key {shown(tag['Key'])!r} begins with aws:, which is reserved")
        values[tag["Key"]] = tag["Value"]
    return values


def _tags_of(store: Store, group: str, schedule: str | None) -> Mapping[str, str]:
    if schedule is not None:
        tags_by_key = {schedule.key: schedule.tags for schedule in store.declared(Schedule)}
        what, key = "Schedule", f"{group}/{schedule}"
    else:
        tags_by_key = {
            DEFAULT_GROUP: {},
            **{group.name: group.tags for group in store.declared(ScheduleGroup)},
        }
        what, key = "Schedule group", group
    if key not in tags_by_key:
        raise ScheduleNotFound(f"{what} {key} does not exist.")
    return tags_by_key[key]
