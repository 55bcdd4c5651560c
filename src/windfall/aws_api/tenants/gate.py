"""The gate for one caller: its commands and questions reach only what its tenant can see.

Decides which names in a command belong to a tenant. The core, which gets the tenant with the command, decides which
jobs it may name by id. Must not know any operation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from windfall.aws_api.protocol.service import Caller
from windfall.aws_api.tenants.store import TenantStore
from windfall.control.commands import calendar, hosting, logs
from windfall.control.events import (
    Command,
    DeregisterJobDefinition,
    RegisterJobDefinition,
    SubmitJob,
    TagResource,
)
from windfall.control.ports import CorePort, Store
from windfall.control.queue_shares import QueueShares
from windfall.control.why import Why
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import JobId, QueueName, split_child, split_node
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import View, split_name, split_schedule

#: What jobs are called in texts: an id of Batch's, of a training job or of a replica.
_JOB_ID = re.compile(
    r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:training|replica)-[A-Za-z0-9._-]+)"
    r"(?::[0-9]+|#[0-9]+)?(?: \([^()]*\))?"
)
_SOMEBODY = "a job of another tenant"


#: Keys, and tenants with them, come and go while a daemon runs.
_VIEWS_KEPT = 1_000

T = TypeVar("T")


def view_of(caller: Caller) -> View:
    """What a caller sees: its own tenant's things, or with an admin key those of all."""
    return View(caller.tenant, sees_all=caller.sees_all)


class PerView(Generic[T]):
    """Makes something once for each view, when it is first needed: there are as many views as tenants."""

    def __init__(self, make: Callable[[View], T]) -> None:
        self._make = make
        self._made: dict[tuple[str, bool], T] = {}

    def of(self, caller: Caller) -> T:
        """What this caller has."""
        key = (caller.tenant, caller.sees_all)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _VIEWS_KEPT:
                self._made.clear()
            made = self._made[key] = self._make(view_of(caller))
        return made


class TenantGate:
    """The gate for one caller. Implements control.ports.CorePort."""

    def __init__(self, gate: CorePort, view: View) -> None:
        self._gate = gate
        self.view = view

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Execute a command for the caller; the names in it, and in its reply, are the caller's."""
        rename = _RENAMED.get(type(command))
        if rename is not None:
            command = rename(self.view, command)
        reply = await self._gate.execute(
            command, tenant or (None if self.view.sees_all else self.view.tenant)
        )
        if isinstance(reply, JobDefinition):
            return replace(reply, name=self.view.shown(reply.name))
        return reply

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store for what the caller can see."""
        return await self._gate.read(lambda store: question(cast(Store, TenantStore(store, self.view))))

    async def why(self, job_id: JobId) -> Why | None:
        """Why a live job of the caller's is where it is; jobs of other tenants are not named."""
        whole, _ = split_node(split_child(job_id)[0])
        if not await self.read(lambda store: store.jobs([whole])):
            return None
        answer = await self._gate.why(job_id)
        if answer is None or self.view.sees_all:
            return answer
        texts = [text for _, text in answer.reasons]
        own = await self.own_jobs(job_id for text in [*texts, *answer.changes] for job_id in ids_in(text))
        reasons = [(code, without_others(text, own)) for code, text in answer.reasons]
        return replace(
            answer, reasons=reasons, changes=[without_others(text, own) for text in answer.changes]
        )

    async def own_jobs(self, ids: Any) -> set[JobId]:
        """Those of these jobs that the caller sees."""
        job_ids = list(dict.fromkeys(ids))
        jobs = (
            await self.read(lambda store: store.jobs(job_ids) + store.service_jobs(job_ids))
            if job_ids
            else []
        )
        return {job.id for job in jobs}

    async def queue_snapshot(self, queue: QueueName) -> list[tuple[JobId, int]]:
        """The caller's jobs among the first waiting ones of a queue, in dispatch order."""
        front = await self._gate.queue_snapshot(queue)
        if self.view.sees_all:
            return front
        own = await self.own_jobs(job_id for job_id, _ in front)
        return [(job_id, since) for job_id, since in front if job_id in own]

    async def shares(self, queue: QueueName) -> QueueShares | None:
        """How much of a queue's capacity each of its shares uses; a share's first job only if the caller sees it."""
        queue_shares = await self._gate.shares(queue)
        if queue_shares is None or self.view.sees_all:
            return queue_shares
        own = await self.own_jobs(share.front[0] for share in queue_shares.shares if share.front is not None)
        shares = [
            replace(share, front=None) if share.front is not None and share.front[0] not in own else share
            for share in queue_shares.shares
        ]
        return replace(queue_shares, shares=type(queue_shares.shares)(shares))


def ids_in(text: str) -> list[JobId]:
    """The ids of jobs that a text names; of a child or a node, that of the whole."""
    return [_whole(match[0]) for match in _JOB_ID.finditer(text)]


def without_others(text: str, own: set[JobId]) -> str:
    """A text that names no job but these."""
    return _JOB_ID.sub(lambda match: match[0] if _whole(match[0]) in own else _SOMEBODY, text)


def _whole(named: str) -> JobId:
    return split_node(split_child(JobId(named.partition(" ")[0]))[0])[0]


# The names in commands ---------------------------------------------------------------------------------------------


def _definition(view: View, name: str) -> str:
    """As it is kept; `default/<name>` means a definition that administrators share, and the core looks for no other."""
    explicit = split_name(name)[0] == DEFAULT_TENANT and "/" in name
    return name if explicit and not view.sees(DEFAULT_TENANT) else view.kept(name)


def _register(view: View, command: RegisterJobDefinition) -> RegisterJobDefinition:
    definition = command.definition
    is_shared = view.sees_all and view.tenant == DEFAULT_TENANT
    return RegisterJobDefinition(replace(definition, name=view.kept(definition.name), shared=is_shared))


def _submit(view: View, command: SubmitJob) -> SubmitJob:
    definition = _definition(view, command.definition)
    return command if definition == command.definition else replace(command, definition=definition)


def _start_run(view: View, command: calendar.StartRun) -> calendar.StartRun:
    submission = command.command
    rename = _RENAMED.get(type(submission))
    return command if rename is None else replace(command, command=rename(view, submission))


def _tag(view: View, command: TagResource) -> TagResource:
    return replace(command, name=view.kept(command.name)) if command.kind == "job-definition" else command


def _schedule(
    view: View, command: calendar.CreateSchedule | calendar.UpdateSchedule
) -> calendar.CreateSchedule | calendar.UpdateSchedule:
    return replace(command, schedule=replace(command.schedule, group=view.kept(command.schedule.group)))


def _delete_schedule(view: View, command: calendar.DeleteSchedule) -> calendar.DeleteSchedule:
    group, name = split_schedule(command.key)
    return replace(command, key=f"{view.kept(group)}/{name}")


_RENAMED: Mapping[type, Callable[[View, Any], Command]] = {
    RegisterJobDefinition: _register,
    DeregisterJobDefinition: lambda view, command: replace(command, name=view.kept(command.name)),
    SubmitJob: _submit,
    calendar.StartRun: _start_run,
    TagResource: _tag,
    calendar.CreateSchedule: _schedule,
    calendar.UpdateSchedule: _schedule,
    calendar.DeleteSchedule: _delete_schedule,
    calendar.CreateScheduleGroup: lambda view, command: replace(
        command, group=replace(command.group, name=view.kept(command.group.name))
    ),
    calendar.DeleteScheduleGroup: lambda view, command: replace(command, name=view.kept(command.name)),
    **dict.fromkeys(
        (logs.CreateLogGroup, logs.DeleteLogGroup, logs.SetLogGroup),
        lambda view, command: replace(command, name=view.kept_log_group(command.name)),
    ),
    hosting.CreateModel: lambda view, command: replace(
        command, model=replace(command.model, name=view.kept(command.model.name))
    ),
    hosting.CreateEndpointConfig: lambda view, command: replace(
        command, config=replace(command.config, name=view.kept(command.config.name))
    ),
    hosting.CreateEndpoint: lambda view, command: replace(
        command, endpoint=replace(command.endpoint, name=view.kept(command.endpoint.name))
    ),
    **dict.fromkeys(
        (hosting.UpdateEndpoint, hosting.ResizeVariants, hosting.DeleteHosted, hosting.TagHosted),
        lambda view, command: replace(command, name=view.kept(command.name)),
    ),
    calendar.TagSchedules: lambda view, command: replace(command, group=view.kept(command.group)),
}
