"""Measured use: Samples (one attempt over time), Top (everything now) and `GET /metrics`, for Prometheus.

Reads files of samples in a thread, which is given values that were copied out of the state. Readers of the metrics
authenticate with a key by HTTP Basic, because a scraper cannot sign. Decides how often causes are found anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from windfall import __version__
from windfall.advisor.samples import Recording
from windfall.aws_api.protocol.basic import key_of, please_authenticate
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import KeyRing
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.service import Call, Caller
from windfall.aws_api.tenants.gate import view_of
from windfall.control.ports import AttemptFiles
from windfall.daemon.gateway import Gateway
from windfall.daemon.request_fields import needed_text, no_such_job
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.views import metrics
from windfall.views.measurements import (
    HostFacts,
    Occupied,
    RunningJob,
    host_and_gpus,
    job_now,
    occupied,
    over_time,
)
from windfall.views.spelling import Answer

#: How often the cause of an attempt's limit is found anew, and for how many per answer: it reads all their samples.
CAUSE_EVERY_MS, CAUSES_AT_ONCE = 20_000, 8

#: One word for what limits a running job, by its recording and instance type; None where that is unknown.
CauseOf = Callable[[Recording, str | None], str | None]


class Monitoring:
    """The handlers, over the control loop and the files of samples."""

    def __init__(
        self,
        loop: TenantGateway,
        samples: AttemptFiles,
        clock_ms: Callable[[], int],
        sample_every_s: float,
        cause_of: CauseOf | None = None,
    ) -> None:
        self._loop = loop
        self._samples = samples
        self._clock_ms = clock_ms
        self._sample_every_s = sample_every_s
        self._cause_of = cause_of
        #: When the cause was last found, and the answer, by task.
        self._causes: dict[str, tuple[int, str | None]] = {}

    async def samples(self, call: Call) -> Answer:
        """What one attempt of a job used over time; the newest unless `attempt` names another."""
        job_id, number, since_at = _asked(call)
        jobs: list[Job] = await self._loop.read(lambda store: store.jobs([job_id]))
        if not jobs:
            raise no_such_job(job_id)
        chosen = [attempt for attempt in jobs[0].attempts if number in (None, attempt.number)][-1:]
        if number is not None and not chosen:
            raise ApiError(
                "NotFound", f"Job {job_id} has no attempt {number}; it has {len(jobs[0].attempts)}.", 404
            )
        attempt = chosen[0] if chosen else None
        recording = (
            None if attempt is None else await asyncio.to_thread(self._samples.recording, attempt.task_id)
        )
        return over_time(jobs[0], attempt, recording, since_at, self._sample_every_s)

    async def top(self, _: Call) -> Answer:
        """The host, its GPUs and what runs, as they are now."""
        seen: Occupied = await self._loop.inspect(lambda state, *_: occupied(state))
        return await asyncio.to_thread(self._measured, seen)

    def _measured(self, seen: Occupied) -> Answer:
        now = self._clock_ms()
        memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        facts = HostFacts(os.cpu_count(), memory_mib, os.getloadavg())
        self._find_causes(seen.jobs, now)
        jobs = [
            job_now(job, self._samples.latest(job.task_id), self._causes.get(job.task_id, (0, None))[1], now)
            for job in seen.jobs
        ]
        newest = self._samples.machine_head()
        return host_and_gpus(seen, facts, newest, now, self._sample_every_s) | {"jobs": jobs}

    def _find_causes(self, jobs: list[RunningJob], now: int) -> None:
        """Update what limits the jobs with GPUs, those with the oldest answers first."""
        gpu_jobs = {job.task_id: job for job in jobs if job.gpu_ids}
        found_at = {task_id: self._causes.get(task_id, (0, None))[0] for task_id in gpu_jobs}
        self._causes = {task_id: cause for task_id, cause in self._causes.items() if task_id in gpu_jobs}
        stale = [task_id for task_id, at in found_at.items() if now - at >= CAUSE_EVERY_MS]
        for task_id in sorted(stale, key=found_at.__getitem__)[:CAUSES_AT_ONCE]:
            recording = self._samples.recording(task_id)
            cause = None
            if recording is not None and self._cause_of is not None:
                cause = self._cause_of(recording, gpu_jobs[task_id].instance_type)
            self._causes[task_id] = (now, cause)


class MetricsPage:
    """The page for Prometheus, over the control loop and the samples."""

    def __init__(self, loop: Gateway, samples: AttemptFiles, keys: KeyRing) -> None:
        self._loop = loop
        self._samples = samples
        self._keys = keys

    async def answer(self, request: HttpRequest) -> Response:
        """All metrics that a key may see; only its own tenant's jobs."""
        key = key_of(request, self._keys.find)
        if key is None:
            return please_authenticate("/metrics")
        gateway = TenantGateway(self._loop, view_of(Caller(key.access_key_id, key.role, key.tenant)))
        seen: metrics.Scrape = await gateway.inspect(lambda state, *_: metrics.scraped(state))
        counts = await gateway.read(lambda store: store.counts())
        families = [
            *metrics.of_daemon(__version__, self._loop.rounds, self._loop.commit_s),
            *metrics.of_capacity(seen, counts),
            *await asyncio.to_thread(self._measured, seen),
        ]
        return Response(200, metrics.CONTENT_TYPE, metrics.rendered(families))

    def _measured(self, seen: metrics.Scrape) -> list[metrics.Family]:
        samples = [(job, self._samples.latest(job.task_id)) for job in seen.jobs]
        return [
            *metrics.of_gpus(seen.devices, self._samples.machine_head),
            *metrics.of_jobs((job, sample) for job, sample in samples if sample is not None),
        ]


def _asked(call: Call) -> tuple[JobId, int | None, int]:
    job_id = JobId(needed_text(call, "jobId"))
    number, since_at = call.params.get("attempt"), call.params.get("sinceAt")
    if number is not None and (type(number) is not int or number < 1):
        raise ApiError("Invalid", f"attempt must be an integer of at least 1, not {number!r}.")
    if since_at is not None and type(since_at) is not int:
        raise ApiError("Invalid", f"sinceAt must be milliseconds since the epoch, not {since_at!r}.")
    return job_id, number, since_at or 0
