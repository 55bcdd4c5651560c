"""`GET /metrics`: the queues, the machine, its GPUs and the running jobs, for Prometheus to scrape.

Decides names and labels. Readers authenticate with a key by HTTP Basic, because a scraper cannot sign. The number of
running jobs is limited, newest first, so that a million children do not become a million series.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from windfall import __version__
from windfall.advisor.samples import GpuSample, Sample
from windfall.aws_api.protocol.basic import key_of, please_authenticate
from windfall.aws_api.protocol.keys import KeyRing
from windfall.aws_api.protocol.request import Request, Response
from windfall.aws_api.protocol.service import Caller
from windfall.aws_api.tenants.gate import view_of
from windfall.control.ports import AttemptFiles
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.exposition import CONTENT_TYPE, Family, rendered
from windfall.daemon.gateway import Gateway
from windfall.daemon.gpus import holders
from windfall.daemon.tenant_gateway import TenantGateway

JOBS_MOST = 500
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Running:
    job_id: str
    name: str
    queue: str
    task_id: str


@dataclass(frozen=True, slots=True)
class _Device:
    id: str
    name: str
    memory_mib: int | None
    fence: str | None
    holder: str | None
    simulated: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    waiting: int
    running: int
    interrupted: int
    attempts: list[_Running]
    devices: list[_Device]
    totals: dict[str, tuple[float, float]]


class MetricsPage:
    """The page, over the control loop and the samples."""

    def __init__(self, loop: Gateway, samples: AttemptFiles, keys: KeyRing) -> None:
        self._loop = loop
        self._samples = samples
        self._keys = keys

    async def answer(self, request: Request) -> Response:
        """All metrics that a key may see; only its own tenant's jobs."""
        key = key_of(request, self._keys.find)
        if key is None:
            return please_authenticate("/metrics")
        gateway = TenantGateway(self._loop, view_of(Caller(key.access_key_id, key.role, key.tenant)))
        seen: _Seen = await gateway.inspect(_look)
        counts = await gateway.read(lambda store: store.counts())
        measured = await asyncio.to_thread(self._measured, seen)
        families = [*self._daemon(), *_queues(seen, counts), *_machine(seen), *measured]
        return Response(200, CONTENT_TYPE, rendered(families))

    def _daemon(self) -> list[Family]:
        about = Family("windfall_info", "gauge", "The version of the daemon.")
        about.add(1, version=__version__)
        rounds = Family("windfall_rounds_total", "counter", "Rounds of the control loop since it started.")
        rounds.add(self._loop.rounds)
        commits = Family(
            "windfall_commit_seconds_total", "counter", "Seconds that rounds waited for the store."
        )
        commits.add(self._loop.commit_s)
        return [about, rounds, commits]

    def _measured(self, seen: _Seen) -> list[Family]:
        head = self._samples.machine_head()
        samples = {} if head is None else dict(zip((gpu.id for gpu in head[0]), head[1].gpus, strict=False))
        jobs = [(attempt, self._samples.latest(attempt.task_id)) for attempt in seen.attempts]
        return [*_gpus(seen.devices, samples), *_jobs([(attempt, s) for attempt, s in jobs if s is not None])]


def _look(state: State, _: Offers, __: int) -> _Seen:
    """Everything that is taken from memory, in one question."""
    attempts = [(job, job.attempt) for job in state.attempts.values() if job.attempt is not None]
    held_gpus = holders(state)
    running = [(job, attempt) for job, attempt in attempts if attempt.started_at is not None]
    running.sort(key=lambda pair: pair[1].started_at or 0, reverse=True)
    totals = {"vcpus": (0.0, 0.0), "memory_bytes": (0.0, 0.0), "gpus": (0.0, 0.0)}
    for machine in state.machines.values():
        used = state.occupancy.used_on(machine.id)
        for name, total, used_amount in (
            ("vcpus", machine.total.vcpus, used.vcpus),
            ("memory_bytes", machine.total.memory_mib * _MIB, used.memory_mib * _MIB),
            ("gpus", machine.total.gpus, used.gpus),
        ):
            totals[name] = (totals[name][0] + total, totals[name][1] + used_amount)
    return _Seen(
        waiting=state.backlog.count,
        running=len(state.attempts),
        interrupted=sum(attempt.deadline_at is not None for _, attempt in attempts),
        attempts=[
            _Running(str(job.id), job.submission.name, str(job.submission.queue), attempt.task_id)
            for job, attempt in running[:JOBS_MOST]
        ],
        devices=[
            _Device(
                gpu.id,
                gpu.name,
                gpu.memory_mib,
                machine.why_fenced(gpu),
                _holder(held_gpus, gpu.id),
                gpu.simulated,
            )
            for machine in state.machines.values()
            for gpu in machine.gpus
        ],
        totals=totals,
    )


def _holder(holders_by_gpu: dict[str, list[dict[str, Any]]], gpu_id: str) -> str | None:
    """The newest holder of a GPU."""
    return holders_by_gpu[gpu_id][-1]["jobId"] if gpu_id in holders_by_gpu else None


def _queues(seen: _Seen, counts: Any) -> list[Family]:
    jobs = Family("windfall_jobs", "gauge", "Jobs by queue and state; an array counts as one.")
    for (queue, state), number in counts.items():
        jobs.add(number, queue=str(queue), state=str(state))
    waiting = Family("windfall_waiting_jobs", "gauge", "Jobs that wait for a place, children one by one.")
    waiting.add(seen.waiting)
    running = Family("windfall_attempts", "gauge", "Attempts that have a place.")
    running.add(seen.running)
    leaving = Family("windfall_attempts_with_notice", "gauge", "Attempts that have been asked to leave.")
    leaving.add(seen.interrupted)
    return [jobs, waiting, running, leaving]


def _machine(seen: _Seen) -> list[Family]:
    total = Family("windfall_capacity", "gauge", "What all machines have.")
    in_use = Family("windfall_capacity_held", "gauge", "What jobs hold of it.")
    for name, (have, used) in seen.totals.items():
        total.add(have, resource=name)
        in_use.add(used, resource=name)
    return [total, in_use]


#: Name, help, and how it follows from a sample.
_GPU_VALUES: tuple[tuple[str, str, Callable[[GpuSample], float]], ...] = (
    ("windfall_gpu_busy_ratio", "Part of the time in which a kernel ran.", lambda s: s.busy),
    ("windfall_gpu_memory_used_bytes", "Memory in use.", lambda s: s.memory_bytes),
    ("windfall_gpu_power_watts", "Power drawn.", lambda s: s.power_w),
    ("windfall_gpu_temperature_celsius", "Temperature.", lambda s: s.temperature_c),
    ("windfall_gpu_sm_active_ratio", "Part of the multiprocessors' time with a warp.", lambda s: s.sm_active),
    ("windfall_gpu_pcie_rx_bytes_per_second", "Traffic into the GPU.", lambda s: s.pcie_rx_bytes_s),
    ("windfall_gpu_pcie_tx_bytes_per_second", "Traffic out of the GPU.", lambda s: s.pcie_tx_bytes_s),
)


def _gpus(devices: list[_Device], samples: dict[str, GpuSample]) -> list[Family]:
    memory = Family("windfall_gpu_memory_bytes", "gauge", "Memory of the GPU.")
    fenced = Family("windfall_gpu_fenced", "gauge", "1 for a GPU that no new job gets.")
    in_use = Family("windfall_gpu_held", "gauge", "1 for a GPU that a job holds; job_id names the job.")
    values = [(Family(name, "gauge", text), value) for name, text, value in _GPU_VALUES]
    for device in devices:
        labels = {"gpu": device.id, "name": device.name, "simulated": "true" if device.simulated else None}
        memory.add(None if device.memory_mib is None else device.memory_mib * _MIB, **labels)
        fenced.add(float(device.fence is not None), **labels)
        in_use.add(float(device.holder is not None), **labels, job_id=device.holder)
        sample = samples.get(device.id)
        if sample is not None:
            for family, value in values:
                family.add(value(sample), **labels)
    return [memory, fenced, in_use, *(family for family, _ in values)]


_JOB_VALUES: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("windfall_job_cpu_cores", "Cores' worth of processor time.", lambda s: s.cpu_cores),
    ("windfall_job_memory_bytes", "Resident memory.", lambda s: s.memory_bytes),
    ("windfall_job_disk_read_bytes_per_second", "Read from storage.", lambda s: s.read_bytes_s),
    ("windfall_job_disk_write_bytes_per_second", "Written to storage.", lambda s: s.write_bytes_s),
    ("windfall_job_network_rx_bytes_per_second", "Received.", lambda s: s.net_rx_bytes_s),
    ("windfall_job_network_tx_bytes_per_second", "Sent.", lambda s: s.net_tx_bytes_s),
)


def _jobs(measured: list[tuple[_Running, Sample]]) -> list[Family]:
    values = [(Family(name, "gauge", text), value) for name, text, value in _JOB_VALUES]
    busy = Family(
        "windfall_job_gpu_busy_ratio", "gauge", "Part of the time in which a kernel ran, of each GPU."
    )
    for attempt, sample in measured:
        labels = {"job_id": attempt.job_id, "job_name": attempt.name, "queue": attempt.queue}
        for family, value in values:
            family.add(value(sample), **labels)
        for number, gpu in enumerate(sample.gpus):
            busy.add(gpu.busy, **labels, index=str(number))
    return [*(family for family, _ in values), busy]
