"""Schedule groups: create, get, list, delete.

The group `default` always exists. A group and its schedules are deleted at once, so no client sees it DELETING. Must
not know how groups are kept.
"""

from __future__ import annotations

from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.scheduler.arns import group_arn
from windfall.aws_api.scheduler.context import SchedulerContext, page_of
from windfall.aws_api.scheduler.errors import InvalidRequest, ScheduleNotFound
from windfall.aws_api.scheduler.tagging import tags_in
from windfall.control.commands.calendar import CreateScheduleGroup, DeleteScheduleGroup
from windfall.control.ports import Store
from windfall.schedules.schedule import DEFAULT_GROUP, ScheduleGroup


async def create_schedule_group(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """CreateScheduleGroup."""
    group = ScheduleGroup(
        new_group(call.params["Name"]),
        tags=tags_in(call.params.get("Tags", [])),
        client_token=call.params.get("ClientToken"),
    )
    await context.execute(CreateScheduleGroup(group))
    return {"ScheduleGroupArn": group_arn(call.region, context.account_id, group.name)}


async def delete_schedule_group(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """DeleteScheduleGroup."""
    await context.execute(DeleteScheduleGroup(call.params["Name"], call.params.get("ClientToken")))
    return {}


async def get_schedule_group(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """GetScheduleGroup."""
    group = await context.read(lambda store: require_group(store, call.params["Name"]))
    return _shown(context, call, group)


async def list_schedule_groups(context: SchedulerContext, call: Call) -> dict[str, Any]:
    """ListScheduleGroups, by name."""
    prefix = call.params.get("NamePrefix", "")
    groups = [group for group in await context.read(all_groups) if group.name.startswith(prefix)]
    chosen, token = page_of(call, groups, lambda group: (group.name,))
    return {"ScheduleGroups": [_shown(context, call, group) for group in chosen], "NextToken": token}


def new_group(name: str) -> str:
    """The name itself, if something new can be created under it: not in another tenant."""
    if "/" in name:
        raise InvalidRequest(
            f"{name} names a tenant, and new schedules and groups are of the tenant of the key"
        )
    return name


def all_groups(store: Store) -> list[ScheduleGroup]:
    """Every group, the default one included."""
    groups = store.declared(ScheduleGroup)
    if all(group.name != DEFAULT_GROUP for group in groups):
        groups.append(ScheduleGroup(DEFAULT_GROUP))
    return groups


def require_group(store: Store, name: str) -> ScheduleGroup:
    """The group of this name."""
    for group in all_groups(store):
        if group.name == name:
            return group
    raise ScheduleNotFound(f"Schedule group {name} does not exist.")


def _shown(context: SchedulerContext, call: Call, group: ScheduleGroup) -> dict[str, Any]:
    return {
        "Arn": group_arn(call.region, context.account_id, group.name),
        "Name": group.name,
        "State": "ACTIVE",
        "CreationDate": group.created_at / 1000,
        "LastModificationDate": group.modified_at / 1000,
    }
