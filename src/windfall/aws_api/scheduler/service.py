"""The table of EventBridge Scheduler's operations: who may call each, and what answers it.

All twelve are there. Must not know what any operation does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from windfall.aws_api.protocol.service import Call, ModelledService, Role
from windfall.aws_api.scheduler import groups, schedules, tagging
from windfall.aws_api.scheduler.context import SchedulerContext
from windfall.aws_api.scheduler.errors import with_message
from windfall.aws_api.tenants.gate import PerView
from windfall.control.ports import CorePort
from windfall.schedules.zones import Zones

Work = Callable[[SchedulerContext, Call], Awaitable[dict[str, Any]]]

OPERATIONS: Mapping[str, tuple[Role, Work]] = {
    "CreateSchedule": (Role.SUBMIT, schedules.create_schedule),
    "UpdateSchedule": (Role.SUBMIT, schedules.update_schedule),
    "DeleteSchedule": (Role.SUBMIT, schedules.delete_schedule),
    "GetSchedule": (Role.READ, schedules.get_schedule),
    "ListSchedules": (Role.READ, schedules.list_schedules),
    "CreateScheduleGroup": (Role.SUBMIT, groups.create_schedule_group),
    "DeleteScheduleGroup": (Role.SUBMIT, groups.delete_schedule_group),
    "GetScheduleGroup": (Role.READ, groups.get_schedule_group),
    "ListScheduleGroups": (Role.READ, groups.list_schedule_groups),
    "TagResource": (Role.SUBMIT, tagging.tag_resource),
    "UntagResource": (Role.SUBMIT, tagging.untag_resource),
    "ListTagsForResource": (Role.READ, tagging.list_tags_for_resource),
}


def scheduler_service(gate: CorePort, account_id: str, zones: Zones) -> ModelledService:
    """EventBridge Scheduler over a gate; `zones` knows the time zones."""
    contexts = PerView(SchedulerContext(gate, account_id, zones).seen_by)
    return ModelledService(
        "scheduler",
        {name: partial(_in_context, contexts, work) for name, (_, work) in OPERATIONS.items()},
        {name: role for name, (role, _) in OPERATIONS.items()},
        # AWS tags groups alone; here a schedule can have tags of its own.
        lenient_patterns=frozenset({"TagResourceArn"}),
        tenant_names={"ScheduleGroupName": "/"},
        wrap_error=with_message,
    )


def _in_context(contexts: PerView[SchedulerContext], work: Work, call: Call) -> Awaitable[dict[str, Any]]:
    return work(contexts.of(call.caller), call)
