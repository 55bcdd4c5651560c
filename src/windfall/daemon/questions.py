"""Windfall's own operations that only read: why, attempts, GPUs, shares, schedules, endpoints, finding jobs, images.

Reads the store and the state, and hands what it read to views/, which spells the answers. Decides which records an
answer needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import ServiceJobFilter, Store
from windfall.daemon.request_fields import limit_of, needed_text, no_such_job
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.daemon.time_zones import zone_named
from windfall.hosting.endpoint import HostedEndpoint
from windfall.jobs.ids import JobId, QueueName, split_child, split_node
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.states import RUNNABLE
from windfall.schedules.schedule import DEFAULT_GROUP, Schedule, ScheduleGroup, Tick
from windfall.views import capacity, endpoints, explaining, jobs, schedules
from windfall.views.spelling import Answer

#: How many jobs a search answers with.
_FOUND_MAX = 10
#: How many of a queue's newest service jobs are read; a queue has far fewer.
_NEWEST = 10_000
#: Rows of one page of schedules or ticks.
PAGE_MAX = 1_000


class Questions:
    """The handlers, for one caller."""

    def __init__(self, gate: TenantGateway, clock_ms: Callable[[], int]) -> None:
        self._gate = gate
        self._clock_ms = clock_ms

    async def why(self, call: Call) -> Answer:
        """Why a job is where it is, or how it ended."""
        job_id = JobId(needed_text(call, "jobId"))
        live = await self._gate.why(job_id)
        parent, _ = split_node(split_child(job_id)[0])
        records: list[Job] = await self._gate.read(lambda store: store.jobs([job_id, parent]))
        if not records:
            for service_job in await self._gate.read(lambda store: store.service_jobs([job_id])):
                return await self._why_service_job(service_job)
            raise no_such_job(job_id)
        about = explaining.about(records[0], job_id)
        if live is not None:
            return about | explaining.why_live(live)
        # It loads the texts of all failures, which only this operation needs.
        from windfall.views.endings import how_it_ended

        key = records[0].submission.definition
        definition = await self._gate.read(lambda store: store.definition(key)) if key else None
        return about | how_it_ended(records[0], job_id, definition)

    async def _why_service_job(self, job: ServiceJob) -> Answer:
        waiting, training = [], None
        if explaining.waits(job):
            waiting = await self._gate.inspect(lambda state, _, now: explaining.why_it_waits(state, job, now))
        elif not job.finished and job.attempts and job.attempts[-1].training_id is not None:
            training = await self._gate.why(job.attempts[-1].training_id)
        return explaining.why_service_job(job, waiting, training)

    async def find_jobs(self, call: Call) -> Answer:
        """Jobs by name or by id prefix."""
        text = needed_text(call, "text")
        return {
            "jobIds": await self._gate.read(
                lambda store: store.find_job(text) or find_service_jobs(store, text)
            )
        }

    async def attempts(self, call: Call) -> Answer:
        """All attempts of a job, with what AWS has no field for."""
        job_id = JobId(needed_text(call, "jobId"))
        records = await self._gate.read(lambda store: store.jobs([job_id]))
        if not records:
            raise no_such_job(job_id)
        return jobs.attempts(records[0])

    async def gpus(self, _: Call) -> Answer:
        """All GPUs of all machines, with their health and holders."""
        return {"gpus": await self._gate.inspect(lambda state, *_: capacity.all_gpus(state))}

    async def shares(self, call: Call) -> Answer:
        """The shares of one queue, or of all queues that have some."""
        name = call.params.get("queue")
        if not (name is None or isinstance(name, str)):
            raise ApiError("Invalid", "queue must be a string; leave it out for all queues.")
        queue = None if name is None else QueueName(name)
        listed = await self._gate.inspect(lambda state, _, now: capacity.shares(state, queue, now))
        if name is not None and not listed:
            raise ApiError("NotFound", f"There is no job queue {name}; `windfall queues` lists them.", 404)
        return {"queues": listed}

    async def images(self, _: Call) -> Answer:
        """All image mappings."""
        return {
            "images": [jobs.image(mapping) for mapping in await self._gate.read(lambda store: store.images())]
        }

    async def endpoints(self, call: Call) -> Answer:
        """All endpoints, by name, or the one that is named; each with what it waits for."""
        name = call.params.get("name")
        if not (name is None or isinstance(name, str)):
            raise ApiError("Invalid", "name must be the name of an endpoint.")
        declared: list[HostedEndpoint] = await self._gate.read(lambda store: store.declared(HostedEndpoint))
        rows = [
            endpoints.endpoint_row(endpoint, await self._place_awaited(endpoint))
            for endpoint in declared
            if name in (None, endpoint.name)
        ]
        return {"now": self._clock_ms(), "endpoints": rows}

    async def _place_awaited(self, endpoint: HostedEndpoint) -> str | None:
        """Why a replica of an endpoint has no place; None when each has one."""
        replica = endpoints.waiting_replica(endpoint)
        why = None if replica is None else await self._gate.why(replica.id)
        if why is None or why.state is not RUNNABLE or not why.reasons:
            return None
        return why.reasons[0][1]

    async def schedules(self, call: Call) -> Answer:
        """All schedules, ordered by next due time; at most `limit`."""
        limit, now = limit_of(call, 100, PAGE_MAX), self._clock_ms()

        def listed(store: Store) -> Answer:
            coming = schedules.by_next_due(
                store.declared(Schedule), store.declared(ScheduleGroup), zone_named, now
            )
            shown = [_described(store, runs) for runs in coming[:limit]]
            return {"now": now, "schedules": shown, "leftOut": len(coming) - len(shown)}

        answer: Answer = await self._gate.read(listed)
        return answer

    async def schedule_history(self, call: Call) -> Answer:
        """One schedule with its ticks, newest first: `limit` of them, due before `before`."""
        name, limit, before = call.params.get("name"), limit_of(call, 20, PAGE_MAX), call.params.get("before")
        if not isinstance(name, str) or not name or not (before is None or isinstance(before, int)):
            raise ApiError(
                "Invalid",
                "name is required (a non-empty string); before must be milliseconds since the epoch.",
            )
        now = self._clock_ms()
        history: Answer | None = await self._gate.read(
            lambda store: _history(store, name, limit, before, now)
        )
        if history is None:
            raise ApiError(
                "NotFound", f"There is no schedule {name[:200]}; `windfall schedules` lists them.", 404
            )
        return history


def _history(store: Store, name: str, limit: int, before: int | None, now: int) -> Answer | None:
    """By name in the default group, by name in another, or by group/name; also for a deleted schedule."""
    declared = {schedule.key: schedule for schedule in store.declared(Schedule)}
    keys = [name] if "/" in name else [f"{DEFAULT_GROUP}/{name}"]
    if keys[0] not in declared and "/" not in name:
        keys = [key for key, other in declared.items() if other.name == name] + keys
    key = keys[0]
    ticks, schedule = store.ticks(key, limit, before), declared.get(key)
    if schedule is None and not ticks:
        return None
    waiting = _waiting(store, ticks)
    answer: Answer = {
        "now": now,
        "key": key,
        "schedule": None,
        "ticks": [schedules.tick_of(tick, schedule, waiting, zone_named) for tick in ticks],
    }
    if schedule is not None:
        groups = store.declared(ScheduleGroup)
        coming = schedules.coming_runs(schedule, groups, zone_named, now, schedules.SHOWN_DUE)
        answer["schedule"] = _described(store, coming)
    return answer


def _described(store: Store, coming: schedules.ComingRuns) -> Answer:
    ticks = store.ticks(coming.schedule.key, schedules.JUDGED_BY)
    return schedules.described(coming, ticks, _waiting(store, ticks))


def _waiting(store: Store, ticks: list[Tick]) -> set[str]:
    live = schedules.live_runs(ticks)
    return schedules.waiting_runs(store.jobs(live)) if live else set()


def service_counts(store: Store) -> dict[QueueName, dict[str, int]]:
    """How many service jobs each queue of service jobs has in each state."""
    return {
        queue: dict(Counter(job.state.value for job in listed)) for queue, listed in _by_queue(store).items()
    }


def find_service_jobs(store: Store, text: str) -> list[JobId]:
    """Ids of service jobs with this name or id prefix, newest first, at most 10."""
    matching = [
        job
        for listed in _by_queue(store).values()
        for job in listed
        if job.name == text or job.id.startswith(text)
    ]
    return [job.id for job in sorted(matching, key=lambda job: -job.created_at)[:_FOUND_MAX]]


def _by_queue(store: Store) -> dict[QueueName, list[ServiceJob]]:
    return {
        queue.name: store.list_service_jobs(ServiceJobFilter(queue.name), _NEWEST, None).jobs
        for queue in store.queues()
        if queue.service_environment is not None
    }
