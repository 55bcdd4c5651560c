"""The store as one caller sees it: resources of other tenants do not exist, and names read as the caller gave them.

Implements every read of the Store port that a request may use, and no others. Decides which resources belong to
tenants. Must not know any operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from windfall.capacity.environments import ComputeEnvironment, JobQueue
from windfall.control.changes import LogStream
from windfall.control.ports import (
    D,
    JobFilter,
    JobPage,
    ServiceJobFilter,
    ServiceJobPage,
    Store,
)
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import DefinitionKey, JobId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job, JobKind
from windfall.jobs.log_groups import LogGroup
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.states import JobState
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import View, split_log_group, split_name, split_schedule
from windfall.schedules.schedule import Schedule, ScheduleGroup, Tick


class TenantStore:
    """What a caller can read. Implements the questions of control.ports.Store."""

    def __init__(self, store: Store, view: View) -> None:
        self._store = store
        self._view = view
        self._tenant = None if view.sees_all else view.tenant

    # Jobs -----------------------------------------------------------------------------------------------

    def jobs(self, ids: Sequence[JobId]) -> list[Job]:
        """These jobs, in the order asked, without those that the caller cannot see."""
        return self._seen(self._store.jobs(ids))

    def list_jobs(self, wanted: JobFilter, limit: int, after: str | None) -> JobPage:
        """A page of the caller's jobs."""
        definition = wanted.definition
        if definition is not None:
            name, colon, revision = definition.partition(":")
            definition = f"{self._kept_definition(name)}{colon}{revision}"
        page = self._store.list_jobs(
            replace(wanted, tenant=self._tenant, definition=definition), limit, after
        )
        return JobPage(self._seen(page.jobs), page.next_after)

    def ended_children(self, array: JobId) -> list[tuple[int, JobState]]:
        """Index and final state of an array's children that ended with a record of their own, by index."""
        return self._store.ended_children(array) if self._seen(self._store.jobs([array])) else []

    def find_job(self, text: str, tenant: str | None = None) -> list[JobId]:
        """Ids of the caller's jobs whose id begins with `text` or whose name is `text`."""
        return self._store.find_job(text, self._tenant if tenant is None else tenant)

    def counts(self, tenant: str | None = None) -> Mapping[tuple[QueueName, JobState], int]:
        """How many of the caller's jobs each queue has in each state."""
        return self._store.counts(self._tenant if tenant is None else tenant)

    def submitted(
        self, span: tuple[int, int], step_ms: int, queue: QueueName | None = None, tenant: str | None = None
    ) -> Mapping[tuple[int, JobState], int]:
        """How many of the caller's jobs were created in each step of a span, by their present state."""
        return self._store.submitted(span, step_ms, queue, self._tenant if tenant is None else tenant)

    def service_jobs(self, ids: Sequence[JobId]) -> list[ServiceJob]:
        """These service jobs, in the order asked, without those that the caller cannot see."""
        return [job for job in self._store.service_jobs(ids) if self._view.sees(job.submitter.tenant)]

    def list_service_jobs(self, wanted: ServiceJobFilter, limit: int, after: str | None) -> ServiceJobPage:
        """A page of a queue's service jobs."""
        return self._store.list_service_jobs(replace(wanted, tenant=self._tenant), limit, after)

    def _seen(self, jobs: Sequence[Job]) -> list[Job]:
        visible = [job for job in jobs if self._view.sees(job.submission.submitter.tenant)]
        for job in visible:
            self._rename(job)
        return visible

    def _rename(self, job: Job) -> None:
        """Replace the names in a job, which was read for this caller, by those that the caller knows."""
        submission = job.submission
        tenant, definition = submission.submitter.tenant, submission.definition
        if definition and (self._view.tenant != DEFAULT_TENANT or "/" in definition):
            shown = self._view.shown(definition)
            if shown != definition:
                job.submission = submission = replace(submission, definition=DefinitionKey(shown))
        if tenant != self._view.tenant and submission.kind is JobKind.TRAINING and "/" not in submission.name:
            job.submission = replace(submission, name=f"{tenant}/{submission.name}")

    # Job definitions ------------------------------------------------------------------------------------

    def definitions(self, name: str | None = None, active_only: bool = False) -> list[JobDefinition]:
        """The caller's job definitions and those that administrators share, by name and revision."""
        full_name = None if name is None else self._kept_definition(name)
        revisions = self._store.definitions(full_name, active_only)
        return [self._shown_definition(it) for it in revisions if self._sees_definition(it)]

    def definition(self, key: DefinitionKey) -> JobDefinition | None:
        """One revision."""
        name, colon, revision = key.partition(":")
        revision_found = self._store.definition(
            DefinitionKey(f"{self._kept_definition(name)}{colon}{revision}")
        )
        return (
            None
            if revision_found is None or not self._sees_definition(revision_found)
            else self._shown_definition(revision_found)
        )

    def _sees_definition(self, it: JobDefinition) -> bool:
        return it.shared or self._view.sees(split_name(it.name)[0])

    def _shown_definition(self, it: JobDefinition) -> JobDefinition:
        shown = self._view.shown(it.name)
        return it if shown == it.name else replace(it, name=shown)

    def _kept_definition(self, name: str) -> str:
        """The kept name: the caller's own definition, or else the one of this name that is shared."""
        tenant, given = split_name(name)
        if "/" in name and tenant == DEFAULT_TENANT:
            return given
        full_name = self._view.kept(name)
        if "/" in name or self._view.tenant == DEFAULT_TENANT or self._store.definitions(full_name):
            return full_name
        return given if any(it.shared for it in self._store.definitions(given)) else full_name

    # Schedules and other declarations -------------------------------------------------------------------

    def declared(self, kind: type[D]) -> list[D]:
        """All declarations of a kind that the caller can see, by key."""
        declarations = self._store.declared(kind)
        if kind is Schedule:
            schedules = cast(list[Schedule], declarations)
            return cast(list[D], [self._schedule(it) for it in schedules if self._sees_name(it.group)])
        if kind is ScheduleGroup:
            groups = cast(list[ScheduleGroup], declarations)
            return cast(list[D], [self._group(it) for it in groups if self._sees_name(it.name)])
        if kind is LogGroup:
            logged = [
                it
                for it in cast(list[LogGroup], declarations)
                if self._view.sees(split_log_group(it.name)[0])
            ]
            shown = [replace(it, name=self._view.shown_log_group(it.name)) for it in logged]
            return cast(list[D], shown)
        if kind in (HostedModel, HostedConfig, HostedEndpoint):
            hosted = cast(list[HostedModel], declarations)
            seen = [it for it in hosted if self._sees_name(it.name)]
            return cast(list[D], [replace(it, name=self._view.shown(it.name)) for it in seen])
        return declarations

    def ticks(self, schedule: str, limit: int, before: int | None = None) -> list[Tick]:
        """Ticks of a schedule, newest first."""
        group, name = split_schedule(schedule)
        ticks = self._store.ticks(f"{self._view.kept(group)}/{name}", limit, before)
        return [replace(tick, schedule=schedule) for tick in ticks]

    def _sees_name(self, full_name: str) -> bool:
        return self._view.sees(split_name(full_name)[0])

    def _schedule(self, it: Schedule) -> Schedule:
        shown = self._view.shown(it.group)
        return it if shown == it.group else replace(it, group=shown)

    def _group(self, it: ScheduleGroup) -> ScheduleGroup:
        shown = self._view.shown(it.name)
        return it if shown == it.name else replace(it, name=shown)

    # What all tenants share -----------------------------------------------------------------------------

    def environments(self) -> list[ComputeEnvironment]:
        """All compute environments, by name."""
        return self._store.environments()

    def queues(self) -> list[JobQueue]:
        """All job queues, by name."""
        return self._store.queues()

    def images(self) -> list[ImageMapping]:
        """All image mappings, by pattern."""
        return self._store.images()

    # Logs -----------------------------------------------------------------------------------------------

    def log_groups(self) -> list[str]:
        """Names of the caller's log groups that have a stream, in order."""
        groups = [group for group in self._store.log_groups() if self._view.sees(split_log_group(group)[0])]
        return sorted(self._view.shown_log_group(group) for group in groups)

    def log_streams(self, group: str, prefix: str, limit: int, after: str | None) -> list[LogStream]:
        """Streams of a group by name, beginning after `after`."""
        streams = self._store.log_streams(self._view.kept_log_group(group), prefix, limit, after)
        return [replace(stream, group=group) for stream in streams]

    def log_stream(self, group: str, name: str) -> LogStream | None:
        """One stream; an administrator finds those of all tenants under the group that their jobs name."""
        stream = self._store.log_stream(self._view.kept_log_group(group), name)
        if stream is None and self._view.sees_all and ":" not in group:
            log_groups = [
                log_group for log_group in self._store.log_groups() if split_log_group(log_group)[1] == group
            ]
            candidates = (self._store.log_stream(log_group, name) for log_group in log_groups)
            stream = next((candidate for candidate in candidates if candidate is not None), None)
        return None if stream is None else replace(stream, group=group)
