"""What-if questions: changes to a copy of the real state, and how jobs fare with and without them.

Changes go through the reactor's own handlers where it has any, so that what it refuses is refused here with the same
words. Both sides are played with the same lengths. Must not know how questions and answers are spelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from windfall.capacity.catalog.lookup import OPTIMAL
from windfall.capacity.environments import ComputeEnvironment, Switch
from windfall.capacity.machines import NAME_FACT, GpuDevice, Machine, Offer
from windfall.control.events import SubmitJob, UpdateJobQueue
from windfall.control.machine_events import MachineRemoved
from windfall.control.ports import Loaded
from windfall.control.reactor import handle
from windfall.control.round import Round
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.forecast.copies import Copied, Estimates, start_s
from windfall.forecast.lengths import Basis, WorkEstimate
from windfall.forecast.playing import Assumptions, Bounds, Fate, Playing
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import EnvironmentName, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources


@dataclass(frozen=True, slots=True)
class NewMachines:
    """Some machines of one kind more."""

    type: str
    count: int
    resources: Resources
    #: The devices of one of them.
    gpus: tuple[GpuDevice, ...] = ()
    on_demand_usd_hour: float | None = None
    spot_usd_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that a question changes."""

    machines: tuple[NewMachines, ...] = ()
    priorities: Mapping[JobId, int] = field(default_factory=dict)
    moves: Mapping[QueueName, tuple[EnvironmentName, ...]] = field(default_factory=dict)
    #: Machines, by id or by the name that somebody gave them, and instances.
    without: tuple[str, ...] = ()
    submissions: tuple[SubmitJob, ...] = ()
    #: Whose things may be named; None for all.
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One job with and without the changes; `now` is None for a job that only the changes have."""

    job: Job
    now: Fate | None
    then: Fate
    estimate: WorkEstimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """All jobs, in the order of their ends, and what was assumed for the answer."""

    jobs: tuple[Compared, ...]
    #: For people.
    notes: tuple[str, ...]
    #: Whether both sides were played to their end.
    complete: bool


def compare(changes: Changes, copied: Copied, bounds: Bounds | None = None) -> Comparison:
    """Play the copy with and without the changes; raises Rejected for changes that cannot be made."""
    notes: list[str] = []
    estimates = Estimates(copied)
    changed = copied.state(lambda records: _prioritize(records, changes))
    offers, removed = _apply(changed, copied, changes, notes)
    lost = tuple((copied.now, MachineRemoved(machine)) for machine in removed)
    assumed = replace(_assumptions(offers, estimates), arrivals=lost)
    then = Playing(changed, copied.now, assumed, bounds).play()
    now = Playing(copied.state(), copied.now, _assumptions(copied.offers, estimates), bounds).play()
    before, after = now.fates(), then.fates()
    jobs = {job.id: job for job in then.wholes()}
    compared = [
        Compared(job, before.get(job_id), after[job_id], estimates.of(job)) for job_id, job in jobs.items()
    ]
    compared.sort(key=lambda each: (each.then.end_at is None, each.then.end_at or 0, each.job.id))
    return Comparison(tuple(compared), tuple(notes), now.complete and then.complete)


def _assumptions(offers: Offers, estimates: Estimates) -> Assumptions:
    return Assumptions(offers, lambda job, beyond_s: estimates.of(job).at(0.5, beyond_s), start_s)


def _prioritize(records: Loaded, changes: Changes) -> None:
    waiting = dict(changes.priorities)
    for job in records.jobs:
        if job.id in waiting and changes.tenant in (None, job.submission.submitter.tenant):
            job.submission = replace(job.submission, priority=waiting.pop(job.id))
    for job_id in waiting:
        raise NotFound(f"{job_id} is not a live job; `windfall jobs` lists them")


def _apply(
    state: State, copied: Copied, changes: Changes, notes: list[str]
) -> tuple[Offers, tuple[MachineId, ...]]:
    """Make the changes; the answer is what engines could launch then, and the machines that go."""
    round_ = Round(copied.now)
    removed = tuple(_machine_named(state, text) for text in changes.without)
    offers = {
        name: tuple(offer for offer in listed if offer.machine not in removed)
        for name, listed in copied.offers.items()
    }
    for job_id in changes.priorities:
        queue = state.queues[state.jobs[job_id].submission.queue]
        if queue.policy is None:
            notes.append(
                f"queue {queue.name} has no scheduling policy, so a job's priority changes nothing there"
            )
    for queue_name, environments in changes.moves.items():
        if queue_name not in state.queues:
            raise NotFound(f"there is no job queue {queue_name}; `windfall queues` lists them")
        handle(state, UpdateJobQueue(queue_name, environments=environments), round_, changes.tenant)
    for number, machines in enumerate(changes.machines):
        offers = _add(state, machines, number, offers, notes)
    for command in changes.submissions:
        handle(state, command, round_, changes.tenant)
    return offers, removed


def _machine_named(state: State, text: str) -> MachineId:
    instance = state.instances.get(InstanceId(text))
    if instance is not None and instance.machine is not None:
        return instance.machine
    names = {machine.id: machine.facts.get(NAME_FACT) for machine in state.machines.values()}
    named = [machine for machine, name in names.items() if text in (machine, name)]
    if len(named) != 1:
        there = ", ".join(sorted(name or machine for machine, name in names.items())[:10])
        raise NotFound(f"there is no machine {text!r}; there are: {there or 'none'}")
    return named[0]


def _add(
    state: State,
    new: NewMachines,
    number: int,
    offers: dict[EnvironmentName, tuple[Offer, ...]],
    notes: list[str],
) -> dict[EnvironmentName, tuple[Offer, ...]]:
    """Offer more machines to every environment that takes their type, and let it grow by as much."""
    takers = [
        it for it in state.environments.values() if it.switch is Switch.ENABLED and _takes(it, new, offers)
    ]
    if not takers:
        raise Invalid(f"no compute environment takes {new.type}; name it in the instanceTypes of one")
    shared = [
        Machine(
            MachineId(f"what-if-{number}-{each}"), new.resources, _devices(new, f"what-if-{number}-{each}")
        )
        for each in range(new.count)
    ]
    more: dict[EnvironmentName, tuple[Offer, ...]] = dict(offers)
    for environment in takers:
        grown = replace(environment, max_vcpus=environment.max_vcpus + int(new.count * new.resources.vcpus))
        state.environments[environment.name] = grown
        if _shares_machines(offers.get(environment.name, ())):
            for machine in shared:
                state.machines[machine.id] = machine
                state.shared_machines.add(machine.id)
            added = [
                Offer(new.type, new.resources, 1, machine.id, new.on_demand_usd_hour, new.on_demand_usd_hour)
                for machine in shared
            ]
        else:
            spot = environment.provisioning.value.endswith("SPOT")
            usd = new.spot_usd_hour if spot else new.on_demand_usd_hour
            added = [
                Offer(*(new.type, new.resources, new.count, None, usd, new.on_demand_usd_hour), gpus=new.gpus)
            ]
        more[environment.name] = (*offers.get(environment.name, ()), *added)
    names = ", ".join(sorted(it.name for it in takers))
    notes.append(f"{new.count} x {new.type} for {names}, with maxvCpus raised by as much")
    state.unsettled = True
    return more


def _shares_machines(offers: tuple[Offer, ...]) -> bool:
    return not offers or any(offer.machine is not None for offer in offers)


def _takes(
    environment: ComputeEnvironment, new: NewMachines, offers: Mapping[EnvironmentName, tuple[Offer, ...]]
) -> bool:
    named = environment.instance_types
    names = {new.type, new.type.partition(".")[0], *OPTIMAL}
    # The daemon's own host serves environments of any type, and so do machines like it.
    return not named or bool(names & set(named)) or _shares_machines(offers.get(environment.name, ()))


def _devices(new: NewMachines, name: str) -> tuple[GpuDevice, ...]:
    kinds = new.gpus or (GpuDevice("", "GPU"),) * int(new.resources.gpus)
    return tuple(replace(gpu, id=f"{name}-gpu-{number}") for number, gpu in enumerate(kinds))


def assumption(estimate: WorkEstimate) -> str:
    """What is assumed of the length of a job, for people."""
    match estimate.basis:
        case Basis.STEPS:
            return "its steps"
        case Basis.EARLIER_RUNS:
            return f"{estimate.runs} earlier run{'s' if estimate.runs > 1 else ''}"
        case Basis.SAID:
            return "the work that was said"
        case Basis.TIMEOUT:
            return "its timeout"
        case Basis.NOTHING:
            return "not known, 1 h assumed"
