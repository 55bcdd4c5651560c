"""Shares of fair-share queues: who may submit under which, what each is charged, and what the scheduler sees of them.

A share is charged from the moment that a job of it is placed until its attempt has ended. What it used is written at
most every few seconds, so a crash forgets no more; what live attempts hold is worked out from them.
"""

from __future__ import annotations

import re

from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.capacity.policies import FairShare, ShareUse
from windfall.control.round import Round
from windfall.control.share_meters import ShareMeter
from windfall.control.state import State
from windfall.jobs.errors import Conflict, Invalid
from windfall.jobs.ids import MachineId, QueueName
from windfall.jobs.job import Job
from windfall.scheduling.fair_share import (
    ACTIVE_MAX,
    LEAST_WINDOW_S,
    NONE,
    Amount,
    FairShareView,
    ShareView,
    amount_of,
    kept_for_others,
    weights_of,
    window_s,
)

#: A share's use is written at most this often.
WRITE_EVERY_MS = 10_000
#: This many vCPUs are not a bound: what environments without one have.
UNBOUNDED_VCPUS = 1_000_000
ON_FIFO_QUEUE = (
    "Job with shareIdentifier or schedulingPriority can only be submitted to job queue with fair share"
    " scheduling policy."
)
_IDENTIFIER = re.compile(r"[A-Za-z0-9]{1,255}")


def fair_share_policy(state: State, queue: QueueName) -> FairShare | None:
    """The fair-share policy of a queue, if it has one."""
    job_queue = state.queues.get(queue)
    policy = None if job_queue is None or job_queue.policy is None else state.policies.get(job_queue.policy)
    return None if policy is None else policy.fair_share


def check_share(state: State, queue: QueueName, share: str | None, priority: int | None, now: int) -> None:
    """Refuse a share or priority where there are none, and a share that is missing, misnamed or one too many."""
    job_queue = state.queues[queue]
    if job_queue.policy is None:
        if share is not None or priority is not None:
            raise Invalid(f"{ON_FIFO_QUEUE} Queue {queue} has none: submit without them, or to another queue")
        return
    policy = fair_share_policy(state, queue)
    if policy is None:
        return  # a quota policy, which has shares of its own
    if share is None:
        raise Invalid("shareIdentifier must be specified.")
    if _IDENTIFIER.fullmatch(share) is None:
        raise Invalid(f"shareIdentifier {share[:260]!r} must have 1 to 255 letters and digits")
    meter = state.shares.find(queue, share)
    is_active = meter is not None and meter.is_active(now)
    if not is_active and len(state.shares.active(queue, now)) >= ACTIVE_MAX:
        raise Conflict(
            f"Failed to create shareIdentifier {share}: queue {queue} has {ACTIVE_MAX} active shares, which is the"
            f" most; use one of them, or wait until one has had no job for {window_s(policy):,} s"
        )


def joined(state: State, job: Job, now: int) -> None:
    """Note a new job of a share."""
    queue, share = job.submission.queue, job.submission.share
    policy = None if share is None else fair_share_policy(state, queue)
    if share is None or policy is None:
        return
    meter = state.shares.made(queue, share, window_s(policy), now)
    meter.jobs += 1
    meter.active_at, meter.changed = now, True


def left(state: State, job: Job, round_: Round) -> None:
    """Note that a job of a share has finished."""
    meter = _meter(state, job)
    if meter is None or job.parent is not None:
        return
    meter.jobs = max(0, meter.jobs - 1)
    meter.active_at, meter.changed = round_.now, True
    _write_if_due(meter, round_)


def placed(state: State, job: Job, round_: Round) -> None:
    """Charge a job's share from now on."""
    meter = _meter(state, job)
    if meter is not None:
        meter.hold(amount_of(job.needs), round_.now)
        _write_if_due(meter, round_)


def ended(state: State, job: Job, round_: Round) -> None:
    """Charge a job's share no longer."""
    meter = _meter(state, job)
    if meter is not None:
        meter.give_back(amount_of(job.needs), round_.now)
        _write_if_due(meter, round_)


def _meter(state: State, job: Job) -> ShareMeter | None:
    share = job.submission.share
    return None if share is None else state.shares.find(job.submission.queue, share)


def keep_shares(state: State, round_: Round) -> None:
    """Write what has changed and is due, and forget shares that have been idle for a whole window."""
    for meter in list(state.shares):
        policy = fair_share_policy(state, meter.queue)
        meter.reckon_over(LEAST_WINDOW_S if policy is None else window_s(policy), round_.now)
        if not meter.is_active(round_.now):
            state.shares.remove(meter)
            round_.changes.declared[ShareUse, f"{meter.queue}/{meter.share}"] = None
        else:
            _write_if_due(meter, round_)


def forget_queue(state: State, queue: QueueName, round_: Round) -> None:
    """Forget the shares of a queue that is gone."""
    for meter in list(state.shares.of(queue).values()):
        state.shares.remove(meter)
        round_.changes.declared[ShareUse, f"{queue}/{meter.share}"] = None


def take_over(state: State, queue: QueueName, now: int) -> None:
    """Charge the shares of a new queue for jobs of a deleted one of its name, which take a while to stop."""
    for job in state.jobs.values():
        if job.submission.queue == queue and job.parent is None:
            joined(state, job, now)
    for job in state.attempts.values():
        meter = _meter(state, job) if job.submission.queue == queue else None
        if meter is not None:
            meter.hold(amount_of(job.needs), now)


def _write_if_due(meter: ShareMeter, round_: Round) -> None:
    if not meter.changed or round_.now - meter.written_at < WRITE_EVERY_MS:
        return
    record = meter.record(round_.now)
    round_.changes.declared[ShareUse, record.key] = record
    meter.written_at, meter.changed = round_.now, False


def rebuild_shares(state: State, uses: list[ShareUse]) -> None:
    """The meters as they were: what was written, and what the live attempts hold."""
    for use in uses:
        policy = fair_share_policy(state, use.queue)
        if policy is not None:
            meter = state.shares.made(use.queue, use.share, window_s(policy), use.at)
            meter.average, meter.active_at = Amount(use.vcpus, use.gpus), use.active_at
            meter.written_at = use.at
    for job in state.jobs.values():
        if job.submission.share is not None and job.parent is None:
            joined(state, job, job.created_at)
    holding = [(job.attempts[-1].placed_at, job) for job in state.attempts.values() if job.attempts]
    for at, job in sorted(holding, key=lambda entry: entry[0]):
        meter_ = _meter(state, job)
        if meter_ is not None:
            meter_.hold(amount_of(job.needs), max(at, meter_.at))


def fair_share_view(state: State, queue: JobQueue, now: int) -> FairShareView | None:
    """A queue's shares as the scheduler sees them; None without a fair-share policy."""
    policy = None if queue.policy is None else fair_share_policy(state, queue.name)
    if policy is None:
        return None
    active = state.shares.active(queue.name, now)
    weights = weights_of(policy, active)
    total, bounded = capacity_of(state, queue)
    return FairShareView(
        window_s(policy),
        total,
        {
            share: ShareView(weights[share], meter.average_at(now), meter.held)
            for share, meter in active.items()
        },
        policy.reservation_percent,
        kept_for_others(policy, len(active), bounded),
    )


def capacity_of(state: State, queue: JobQueue) -> tuple[Amount, Amount]:
    """What a queue's environments can have at most; and that without environments whose owner set no bound.

    A machine counts once, however many environments have a share of it.
    """
    total, bounded = NONE, NONE
    machines: dict[MachineId, Amount] = {}
    for name in queue.environments:
        environment = state.environments.get(name)
        if environment is None or environment.switch is Switch.DISABLED:
            continue
        own, shared = _capacity_in(state, environment)
        unbounded = (
            environment.provisioning is Provisioning.UNMANAGED and environment.max_vcpus >= UNBOUNDED_VCPUS
        )
        for machine, amount in shared.items():
            counted = machines.get(machine, NONE)
            more = Amount(max(0.0, amount.vcpus - counted.vcpus), max(0.0, amount.gpus - counted.gpus))
            machines[machine] = counted + more
            own += more
        total += own
        bounded += NONE if unbounded else own
    return total, bounded


def _capacity_in(state: State, environment: ComputeEnvironment) -> tuple[Amount, dict[MachineId, Amount]]:
    """What an environment can have on machines of its own, and on those that it has a share of."""
    there = NONE
    shared: dict[MachineId, Amount] = {}
    for instance in state.instances.values():
        if instance.environment != environment.name:
            continue
        if instance.is_share and instance.machine is not None:
            shared[instance.machine] = amount_of(instance.total)
        elif not instance.is_share:
            there += amount_of(instance.total)
    most, gpus = environment.max_vcpus, 0.0
    own = [offer for offer in state.offers.get(environment.name, ()) if offer.machine is None]
    for offer in state.offers.get(environment.name, ()):
        if offer.machine is not None:
            vcpus = min(offer.resources.vcpus, most)
            shared.setdefault(offer.machine, Amount(vcpus, offer.resources.gpus))
        elif offer.resources.vcpus > 0:
            left = max(0.0, most - there.vcpus) // offer.resources.vcpus
            more = left if offer.available is None else min(left, offer.available)
            gpus = max(gpus, more * offer.resources.gpus)
    if shared and not own:
        return there, shared
    vcpus = there.vcpus if most >= UNBOUNDED_VCPUS else float(most)
    return Amount(max(vcpus, there.vcpus), there.gpus + gpus), shared
