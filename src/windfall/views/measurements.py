"""What was measured: one attempt over time (Samples), and everything now (Top), in which null means "unknown".

A running job is copied out of the state (`RunningJob`), because its samples are read in a thread while the state
changes. Must not know files, nor what the values mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windfall.advisor.samples import GpuSample, Recording, Sample, SampledGpu
from windfall.capacity.machines import NAME_FACT, own_machine
from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import JobId, QueueName, TaskId
from windfall.jobs.job import Job
from windfall.jobs.states import JobState
from windfall.views.capacity import holders
from windfall.views.spelling import Answer, measured, picked

#: Jobs in one answer of Top; jobs with GPUs come first, then those that have run longest.
TOP_JOBS = 200
#: A sample that is older says nothing about now.
STALE_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job with an attempt under way, as it was when the state was read."""

    job_id: JobId
    job_name: str
    queue: QueueName
    state: JobState
    attempt: int
    task_id: TaskId
    started_at: int | None
    doing: str | None
    vcpus: float
    memory_mib: int
    gpu_ids: tuple[str, ...]
    instance_type: str | None
    #: What its machine is called; None for the daemon's own.
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class Occupied:
    """What Top takes from the state, in one look."""

    vcpus: float | None
    gpus: list[Answer]
    jobs: list[RunningJob]
    running: int
    waiting: int


#: The newest sample of a machine, and its GPUs in the order of the sample.
MachineSample = tuple[tuple[SampledGpu, ...], Sample]


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the operating system says of the daemon's host."""

    vcpus: int | None
    memory_mib: int
    load: tuple[float, float, float]


def running_job(job: Job, attempt: Attempt, machine: str | None = None) -> RunningJob:
    """A copy of what is told about a job with an attempt under way, and on which other machine it is."""
    return RunningJob(
        job_id=job.id,
        job_name=job.submission.name,
        queue=job.submission.queue,
        state=job.state,
        attempt=attempt.number,
        task_id=attempt.task_id,
        started_at=attempt.started_at,
        doing=attempt.doing,
        vcpus=job.resources.vcpus,
        memory_mib=job.resources.memory_mib,
        gpu_ids=attempt.gpu_ids,
        instance_type=attempt.instance_type,
        machine=machine,
    )


def _name_of_machine(state: State, attempt: Attempt) -> str | None:
    instance = state.instances.get(attempt.instance)
    machine = None if instance is None or instance.machine is None else state.machines.get(instance.machine)
    return None if machine is None else machine.facts.get(NAME_FACT)


def occupied(state: State) -> Occupied:
    """What runs, and who holds the GPUs of the daemon's own host."""
    live = [(job, job.attempt) for job in state.attempts.values() if job.attempt is not None]
    live.sort(key=lambda pair: (not pair[1].gpu_ids, pair[1].placed_at))
    machine = own_machine(state.machines.values())
    gpus: list[Answer] = []
    if machine is not None:
        by_gpu = holders(state)
        gpus = [
            {
                **picked(gpu, "id name memory_mib simulated"),
                "fence": machine.why_fenced(gpu),
                "heldBy": [holder["jobId"] for holder in by_gpu.get((machine.id, gpu.id), [])],
            }
            for gpu in machine.gpus
        ]
    return Occupied(
        None if machine is None else machine.total.vcpus,
        gpus,
        [running_job(job, attempt, _name_of_machine(state, attempt)) for job, attempt in live[:TOP_JOBS]],
        len(live),
        state.backlog.count,
    )


def host_and_gpus(
    seen: Occupied, facts: HostFacts, newest: MachineSample | None, now: int, sample_every_s: float
) -> Answer:
    """The part of Top that is not about jobs."""
    sample = None if newest is None else fresh(newest[1], now)
    by_gpu: Mapping[str, GpuSample] = {}
    if newest is not None and sample is not None:
        by_gpu = dict(zip((gpu.id for gpu in newest[0]), sample.gpus, strict=False))
    return {
        "at": now,
        "sampleEveryS": sample_every_s,
        "host": {
            **picked(facts, "vcpus memory_mib"),
            "offeredVcpus": seen.vcpus,
            "load": list(facts.load),
            "sample": _sample(sample),
        },
        "gpus": [{**gpu, "sample": measured(by_gpu.get(gpu["id"], GpuSample()))} for gpu in seen.gpus],
        **picked(seen, "running waiting"),
    }


def job_now(job: RunningJob, newest: Sample | None, cause: str | None, now: int) -> Answer:
    """One job of Top, with its newest sample and what limits it, in one word."""
    sample = None if newest is None else fresh(newest, now)
    return {
        **picked(job, "job_id job_name state attempt started_at doing vcpus memory_mib machine"),
        "gpuIds": list(job.gpu_ids),
        "sample": _sample(sample),
        "cause": cause,
    }


def over_time(
    job: Job, attempt: Attempt | None, recording: Recording | None, since_at: int, sample_every_s: float
) -> Answer:
    """What one attempt of a job used over time; `attempt` is None when it has none."""
    answer: Answer = {
        "jobId": job.id,
        "jobName": job.submission.name,
        "state": job.state,
        "attempt": None if attempt is None else attempt.number,
        "attempts": len(job.attempts),
        "sampleEveryS": sample_every_s,
        "startedAt": None if attempt is None else attempt.started_at,
        "stoppedAt": None if attempt is None else attempt.exited_at or attempt.stopped_at,
    }
    if recording is None:
        return answer | {"vcpus": None, "memoryMib": None, "gpus": [], "samples": []}
    return answer | {
        **picked(recording, "vcpus memory_mib"),
        "gpus": [measured(gpu) for gpu in recording.gpus],
        "samples": [_sample(sample) for sample in recording.samples if sample.at > since_at],
    }


def fresh(sample: Sample, now: int) -> Sample | None:
    """The sample, unless it is too old to say anything about now."""
    return sample if now - sample.at <= max(STALE_MS, 3 * sample.span_ms) else None


def _sample(sample: Sample | None) -> Answer | None:
    if sample is None:
        return None
    return {**measured(sample), "gpus": [measured(gpu) for gpu in sample.gpus]}
