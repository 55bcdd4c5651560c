"""Tags of schedule groups, as on AWS, and of schedules, which have none there.

Decides how lists of tags are read and written. The core decides what a tag means and how many are allowed. A schedule's
own tags take precedence over its group's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.scheduler.arns import tagged
from windfall.aws_api.scheduler.desk import Desk
from windfall.aws_api.scheduler.errors import Invalid, ResourceNotFound, shown
from windfall.control.commands.calendar import TagSchedules
from windfall.control.ports import Store
from windfall.schedules.schedule import DEFAULT_GROUP, Schedule, ScheduleGroup


async def tag_resource(desk: Desk, call: Call) -> dict[str, Any]:
    """TagResource: add tags, or change those of the same key."""
    group, name = tagged(call.params["ResourceArn"])
    await desk.execute(TagSchedules(group, name, add=tags_in(call.params["Tags"])))
    return {}


async def untag_resource(desk: Desk, call: Call) -> dict[str, Any]:
    """UntagResource; missing keys are ignored."""
    group, name = tagged(call.params["ResourceArn"])
    await desk.execute(TagSchedules(group, name, remove=tuple(call.params["TagKeys"])))
    return {}


async def list_tags_for_resource(desk: Desk, call: Call) -> dict[str, Any]:
    """ListTagsForResource, by key; of a schedule its own ones."""
    group, schedule = tagged(call.params["ResourceArn"])
    tags = await desk.read(lambda store: _tags_of(store, group, schedule))
    return {"Tags": [{"Key": name, "Value": tags[name]} for name in sorted(tags)]}


def tags_in(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """A list of tags as the core keeps them; of a key that is given twice the last value counts."""
    found = {}
    for tag in tags:
        if tag["Key"].lower().startswith("aws:"):
            raise Invalid(f"Tag key {shown(tag['Key'])!r} begins with aws:, which is reserved")
        found[tag["Key"]] = tag["Value"]
    return found


def _tags_of(store: Store, group: str, schedule: str | None) -> Mapping[str, str]:
    if schedule is not None:
        found = {one.key: one.tags for one in store.declared(Schedule)}
        what, key = "Schedule", f"{group}/{schedule}"
    else:
        found = {DEFAULT_GROUP: {}, **{one.name: one.tags for one in store.declared(ScheduleGroup)}}
        what, key = "Schedule group", group
    if key not in found:
        raise ResourceNotFound(f"{what} {key} does not exist.")
    return found[key]
