"""Replays a trace of jobs through the real reactor and scheduler, on as many machines as wanted, by one policy.

Decides what each policy means in declarations: one queue first come first served, a share for each user, or spot
capacity with a deadline for each job. Must not know how traces are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from windfall.accounting.prices import Rates
from windfall.capacity.catalog.instance_types import InstanceType
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import GpuDevice, Offer
from windfall.capacity.policies import FairShare, SchedulingPolicy
from windfall.control.commands.policies import CreateSchedulingPolicy
from windfall.control.events import (
    CreateComputeEnvironment,
    CreateJobQueue,
    Event,
    RegisterJobDefinition,
    SubmitJob,
)
from windfall.control.reactor import handle
from windfall.control.round import Round
from windfall.control.state import Rules, State
from windfall.forecast.playing import Assumptions, Bounds, Playing
from windfall.forecast.ranges import stays_s
from windfall.jobs.attempts import Market
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, JobDefinition
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.images import HOST_IMAGE
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.storage import StorageLayout
from windfall.jobs.submitters import Submitter

_START = 1_700_000_000_000
_QUEUE, _WORK = QueueName("trace"), "work"
_STEADY, _SPOT = EnvironmentName("on-demand"), EnvironmentName("spot")
_ANYBODY = Submitter(is_admin=True)
#: A deadline leaves at least this much time beside its part of the work.
LEAST_SLACK_S = 1800.0


class ReplayPolicy(StrEnum):
    """How a trace is served."""

    FIFO = "fifo"
    FAIR_SHARE = "fair-share"
    SPOT_DEADLINE = "spot-deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedJob:
    """One line of a trace."""

    #: Since the beginning of the trace.
    submit_s: float
    length_s: float
    cpus: float = 1.0
    gpus: int = 0
    memory_mib: int = 1024
    user: str = "anybody"
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a trace is replayed on."""

    type: InstanceType
    machines: int
    #: Rounds are at most this often: jobs start up to this much later than they could.
    every_s: float = 10.0
    #: With deadlines: how many times its length a job has from its submission to its deadline.
    deadline_factor: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a trace."""

    policy: ReplayPolicy
    jobs: int
    done: int
    #: Seconds from the submission to the first start, rising.
    waits_s: tuple[float, ...]
    #: From the first submission to the last end.
    span_s: float
    #: Parts of the machines' time that jobs held.
    gpu_use: float | None
    cpu_use: float
    usd: float | None
    interruptions: int
    #: Of jobs with deadlines: how many ended after theirs.
    late: int
    complete: bool


def replay(
    trace: Sequence[TracedJob],
    cluster: Cluster,
    policy: ReplayPolicy,
    draw: Callable[[], float],
    bounds: Bounds,
) -> Outcome:
    """Play a trace to its end, or to the bounds."""
    offers = _offers(cluster, policy)
    jobs = {JobId(f"job-{number}"): job for number, job in enumerate(trace)}
    arrivals = tuple(
        sorted(
            (
                (_START + int(job.submit_s * 1000), _submission(job_id, job, cluster, policy))
                for job_id, job in jobs.items()
            ),
            key=lambda each: each[0],
        )
    )
    assumed = Assumptions(
        offers,
        lambda job, _beyond_s: jobs[job.id].length_s,
        stays_s=lambda age_s: stays_s(age_s, draw()),
        arrivals=arrivals,
        every_ms=max(1, int(cluster.every_s * 1000)),
    )
    playing = Playing(_state(cluster, policy), _START, assumed, bounds).play()
    return _outcome(playing, jobs, cluster, policy)


def _state(cluster: Cluster, policy: ReplayPolicy) -> State:
    spot = policy is ReplayPolicy.SPOT_DEADLINE
    rules = Rules(storage=StorageLayout("file:///trace"), rates=Rates(), changeover_s=60.0)
    state, round_ = State(rules), Round(_START)
    most = int(cluster.machines * cluster.type.vcpus)
    names = (_SPOT, _STEADY) if spot else (_STEADY,)
    for name in names:
        kind = Provisioning.SPOT if name == _SPOT else Provisioning.EC2
        handle(state, CreateComputeEnvironment(ComputeEnvironment(name, kind, 0, most)), round_)
    fair = "fair" if policy is ReplayPolicy.FAIR_SHARE else None
    if fair is not None:
        handle(state, CreateSchedulingPolicy(SchedulingPolicy(fair, FairShare())), round_)
    handle(state, CreateJobQueue(JobQueue(_QUEUE, 1, names, policy=fair)), round_)
    container = ContainerSpec(HOST_IMAGE, Resources(1, 1024), ("true",))
    handle(state, RegisterJobDefinition(JobDefinition(_WORK, 0, container)), round_)
    return state


def _offers(cluster: Cluster, policy: ReplayPolicy) -> dict[EnvironmentName, tuple[Offer, ...]]:
    type_ = cluster.type
    gpus = (GpuDevice("", type_.gpu_model or "GPU", type_.gpu_memory_mib),) * type_.gpus
    steady = Offer(
        *(
            type_.name,
            type_.resources,
            cluster.machines,
            None,
            type_.on_demand_usd_hour,
            type_.on_demand_usd_hour,
        ),
        gpus=gpus,
    )
    if policy is not ReplayPolicy.SPOT_DEADLINE:
        return {_STEADY: (steady,)}
    return {_SPOT: (replace(steady, usd_hour=type_.usd_hour(Market.SPOT)),), _STEADY: (steady,)}


def _submission(job_id: JobId, job: TracedJob, cluster: Cluster, policy: ReplayPolicy) -> Event:
    tags = {}
    if policy is ReplayPolicy.SPOT_DEADLINE:
        within_s = deadline_s(job, cluster)
        tags = {
            "windfall:checkpoint": "true",
            "windfall:work": f"{max(1, round(job.length_s))}s",
            "windfall:deadline": f"{round(within_s)}s",
        }
    fair = policy is ReplayPolicy.FAIR_SHARE
    return SubmitJob(
        job_id,
        job_id,
        _QUEUE,
        _WORK,
        overrides=ContainerOverrides(vcpus=job.cpus, memory_mib=job.memory_mib, gpus=job.gpus or None),
        retry=RetryStrategy(10),
        tags=tags,
        submitter=_ANYBODY,
        share=job.user if fair else None,
        priority=job.priority if fair else None,
    )


def deadline_s(job: TracedJob, cluster: Cluster) -> float:
    """How long after its submission a job is to be done."""
    return max(job.length_s * cluster.deadline_factor, job.length_s + LEAST_SLACK_S)


def _outcome(
    playing: Playing, jobs: dict[JobId, TracedJob], cluster: Cluster, policy: ReplayPolicy
) -> Outcome:
    fates = playing.fates()
    done = {job_id: fate for job_id, fate in fates.items() if fate.succeeded and fate.end_at is not None}
    due_ms = {
        job_id: _START + job.submit_s * 1000 + deadline_s(job, cluster) * 1000 for job_id, job in jobs.items()
    }
    waits = sorted(
        max(0.0, (fate.start_at - _START) / 1000 - jobs[job_id].submit_s)
        for job_id, fate in fates.items()
        if fate.start_at is not None
    )
    first_s = min((job.submit_s for job in jobs.values()), default=0.0)
    last_s = max(((fate.end_at or 0) - _START for fate in done.values()), default=0) / 1000
    span_s = max(1.0, last_s - first_s)
    held_s = {job_id: fate.held_s for job_id, fate in fates.items()}
    gpu_s = sum(seconds * jobs[job_id].gpus for job_id, seconds in held_s.items())
    cpu_s = sum(seconds * jobs[job_id].cpus for job_id, seconds in held_s.items())
    costs = [fate.usd for fate in fates.values() if fate.usd is not None]
    capacity_s = span_s * cluster.machines
    return Outcome(
        policy=policy,
        jobs=len(jobs),
        done=len(done),
        waits_s=tuple(waits),
        span_s=span_s,
        gpu_use=gpu_s / (capacity_s * cluster.type.gpus) if cluster.type.gpus else None,
        cpu_use=cpu_s / (capacity_s * cluster.type.vcpus),
        usd=sum(costs) if costs else None,
        interruptions=sum(max(0, fate.attempts - 1) for fate in fates.values()),
        late=sum((fate.end_at or 0) > due_ms[job_id] for job_id, fate in done.items())
        if policy is ReplayPolicy.SPOT_DEADLINE
        else 0,
        complete=playing.complete,
    )
