"""Windfall's own operations for measured use: Samples (one attempt over time) and Top (everything now).

Turns measurements into plain JSON, in which null means "unknown"; decides nothing about what they mean.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from windfall.advisor.samples import GpuSample, Recording, Sample, SampledGpu
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.capacity.machines import own_machine
from windfall.control.ports import AttemptFiles
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.gpus import holders
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job

#: Jobs in one answer of Top; jobs with GPUs come first, then those that have run longest.
TOP_JOBS = 200
#: A sample that is older says nothing about now.
STALE_MS = 30_000

#: How often the cause of an attempt's limit is found anew, and for how many per answer: it reads all their samples.
CAUSE_EVERY_MS, CAUSES_AT_ONCE = 20_000, 8

#: One word for what limits a running job; None where that is unknown.
CauseOf = Callable[[Recording, Job], str | None]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What Top takes from memory, in one look."""

    vcpus: float | None
    memory_mib: int | None
    gpus: list[dict[str, Any]]
    jobs: list[Job]
    total: int
    waiting: int


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

    async def samples(self, call: Call) -> dict[str, Any]:
        """What one attempt of a job used over time; the newest unless `attempt` names another."""
        job_id, number, since_at = _asked(call)
        jobs = await self._loop.read(lambda store: store.jobs([job_id]))
        if not jobs:
            raise ApiError("NotFound", f"There is no job {job_id}; `windfall jobs --all` lists them.", 404)
        job: Job = jobs[0]
        chosen = [attempt for attempt in job.attempts if number in (None, attempt.number)][-1:]
        if number is not None and not chosen:
            raise ApiError(
                "NotFound", f"Job {job_id} has no attempt {number}; it has {len(job.attempts)}.", 404
            )
        answer: dict[str, Any] = {
            "jobId": job.id,
            "jobName": job.submission.name,
            "state": job.state,
            "attempt": chosen[0].number if chosen else None,
            "attempts": len(job.attempts),
            "sampleEveryS": self._sample_every_s,
            "startedAt": chosen[0].started_at if chosen else None,
            "stoppedAt": chosen[0].exited_at or chosen[0].stopped_at if chosen else None,
            "vcpus": None,
            "memoryMib": None,
            "gpus": [],
            "samples": [],
        }
        recording = await asyncio.to_thread(self._samples.recording, chosen[0].task_id) if chosen else None
        if recording is not None:
            answer |= {
                "vcpus": recording.vcpus,
                "memoryMib": recording.memory_mib,
                "gpus": [_gpu(gpu) for gpu in recording.gpus],
                "samples": [sample_json(sample) for sample in recording.samples if sample.at > since_at],
            }
        return answer

    async def top(self, _: Call) -> dict[str, Any]:
        """The host, its GPUs and what runs, as they are now."""
        seen: _Seen = await self._loop.inspect(_look)
        return await asyncio.to_thread(self._measured, seen)

    def _measured(self, seen: _Seen) -> dict[str, Any]:
        now = self._clock_ms()
        machine = self._samples.machine_head()
        newest = None if machine is None else _fresh(machine[1], now)
        measured: dict[str, GpuSample] = {}
        if machine is not None and newest is not None:
            ids = [gpu.id for gpu in machine[0]]
            measured = dict(zip(ids, newest.gpus, strict=False))
        load = os.getloadavg()
        return {
            "at": now,
            "sampleEveryS": self._sample_every_s,
            "host": {
                "vcpus": os.cpu_count(),
                "offeredVcpus": seen.vcpus,
                "memoryMib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
                "load": list(load),
                "sample": None if newest is None else sample_json(newest),
            },
            "gpus": [{**gpu, "sample": _gpu_json(measured.get(gpu["id"], GpuSample()))} for gpu in seen.gpus],
            "jobs": self._jobs(seen.jobs, now),
            "running": seen.total,
            "waiting": seen.waiting,
        }

    def _jobs(self, jobs: list[Job], now: int) -> list[dict[str, Any]]:
        self._think(jobs, now)
        return [self._job(job, now) for job in jobs]

    def _job(self, job: Job, now: int) -> dict[str, Any]:
        attempt = job.attempts[-1]
        latest = self._samples.latest(attempt.task_id)
        sample = None if latest is None else _fresh(latest, now)
        return {
            "jobId": job.id,
            "jobName": job.submission.name,
            "state": job.state,
            "attempt": attempt.number,
            "startedAt": attempt.started_at,
            "doing": attempt.doing,
            "vcpus": job.resources.vcpus,
            "memoryMib": job.resources.memory_mib,
            "gpuIds": list(attempt.gpu_ids),
            "sample": None if sample is None else sample_json(sample),
            "cause": self._causes.get(attempt.task_id, (0, None))[1],
        }

    def _think(self, jobs: list[Job], now: int) -> None:
        """Update what limits the jobs with GPUs, those with the oldest answers first."""
        gpu_jobs = {job.attempts[-1].task_id: job for job in jobs if job.attempts[-1].gpu_ids}
        self._causes = {task_id: cause for task_id, cause in self._causes.items() if task_id in gpu_jobs}
        stale = [
            task_id for task_id in gpu_jobs if now - self._causes.get(task_id, (0, None))[0] >= CAUSE_EVERY_MS
        ]
        stale.sort(key=lambda task_id: self._causes.get(task_id, (0, None))[0])
        for task_id in stale[:CAUSES_AT_ONCE]:
            recording = self._samples.recording(task_id)
            cause = None
            if recording is not None and self._cause_of is not None:
                cause = self._cause_of(recording, gpu_jobs[task_id])
            self._causes[task_id] = (now, cause)


def _look(state: State, _: Offers, __: int) -> _Seen:
    live = [job for job in state.attempts.values() if job.attempt is not None]
    live.sort(key=lambda job: (not job.attempts[-1].gpu_ids, job.attempts[-1].placed_at))
    holders_by_gpu = holders(state)
    machine = own_machine(state.machines.values())
    gpus = [
        {
            "id": gpu.id,
            "name": gpu.name,
            "memoryMib": gpu.memory_mib,
            "simulated": gpu.simulated,
            "fence": machine.why_fenced(gpu),
            "heldBy": [holder["jobId"] for holder in holders_by_gpu.get(gpu.id, [])],
        }
        for gpu in (machine.gpus if machine is not None else ())
        if machine is not None
    ]
    total = machine.total if machine is not None else None
    return _Seen(
        None if total is None else total.vcpus,
        None if total is None else total.memory_mib,
        gpus,
        live[:TOP_JOBS],
        len(live),
        state.backlog.count,
    )


def _asked(call: Call) -> tuple[JobId, int | None, int]:
    job_id, number, since_at = (call.params.get(name) for name in ("jobId", "attempt", "sinceAt"))
    if not isinstance(job_id, str) or not job_id:
        raise ApiError("Invalid", "jobId is required (a non-empty string).")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
        raise ApiError("Invalid", f"attempt must be an integer of at least 1, not {number!r}.")
    if since_at is not None and (not isinstance(since_at, int) or isinstance(since_at, bool)):
        raise ApiError("Invalid", f"sinceAt must be milliseconds since the epoch, not {since_at!r}.")
    return JobId(job_id), number, since_at or 0


def sample_json(sample: Sample) -> dict[str, Any]:
    """A sample with the wire's spelling."""
    values = {name: value for name, value in asdict(sample).items() if name != "gpus"}
    return {**_spelled(values), "gpus": [_gpu_json(gpu) for gpu in sample.gpus]}


def _gpu_json(gpu: GpuSample) -> dict[str, Any]:
    return _spelled(asdict(gpu))


def _gpu(gpu: SampledGpu) -> dict[str, Any]:
    return _spelled(asdict(gpu))


def _spelled(values: dict[str, Any]) -> dict[str, Any]:
    return {_camel(name): _known(value) for name, value in values.items()}


def _known(value: Any) -> Any:
    """Five digits are more than was measured, and JSON has no NaN."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.5g}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _fresh(sample: Sample, now: int) -> Sample | None:
    return sample if now - sample.at <= max(STALE_MS, 3 * sample.span_ms) else None
