"""What shares of fair-share queues are charged for service jobs: instances, as ordinary jobs are charged vCPUs.

The meters are those of ordinary queues (share_meters.py). Must not know whose turn it is.
"""

from __future__ import annotations

from windfall.capacity.environments import JobQueue
from windfall.control.round import Round
from windfall.control.share_meters import ShareMeter
from windfall.control.share_use import fair_share_policy
from windfall.control.state import State
from windfall.jobs.ids import QueueName
from windfall.jobs.service_jobs import HOLDING, ServiceJob
from windfall.scheduling.fair_share import (
    Amount,
    FairShareView,
    ShareView,
    kept_for_others,
    weights_of,
    window_s,
)


def service_joined(state: State, job: ServiceJob, now: int) -> None:
    """Note a new job of a share."""
    policy = fair_share_policy(state, job.queue)
    if job.share is None or policy is None:
        return
    meter = state.shares.made(job.queue, job.share, window_s(policy), now)
    meter.jobs += 1
    meter.active_at, meter.changed = now, True


def service_left(state: State, job: ServiceJob, round_: Round) -> None:
    """Note that a job of a share has finished."""
    meter = _meter(state, job)
    if meter is not None:
        meter.jobs = max(0, meter.jobs - 1)
        meter.active_at, meter.changed = round_.now, True


def service_placed(state: State, job: ServiceJob, now: int) -> None:
    """Charge a job's share for its instances from now on."""
    meter = _meter(state, job)
    if meter is not None:
        meter.hold(_instances(job), now)


def service_ended(state: State, job: ServiceJob, now: int) -> None:
    """Charge a job's share no longer."""
    meter = _meter(state, job)
    if meter is not None:
        meter.give_back(_instances(job), now)


def rebuild_service_shares(state: State) -> None:
    """Charge the shares of a state that was loaded for what their service jobs hold."""
    for job in state.service_jobs.values():
        service_joined(state, job, job.created_at)
        meter, attempt = _meter(state, job), job.attempt
        if meter is not None and attempt is not None and job.state in HOLDING:
            meter.hold(_instances(job), max(attempt.scheduled_at, meter.at))


def take_over_services(state: State, queue: QueueName, now: int) -> None:
    """Charge the shares of a new queue for service jobs of a deleted one of its name."""
    for job in state.service_jobs.values():
        if job.queue == queue:
            service_joined(state, job, now)
            if job.state in HOLDING:
                service_placed(state, job, now)


def service_shares(state: State, queue: JobQueue, total: float, now: int) -> FairShareView | None:
    """A queue's shares as the scheduler sees them; None without a fair-share policy.

    Of what the policy keeps for shares that are not active, only whole instances are kept.
    """
    policy = None if queue.policy is None else fair_share_policy(state, queue.name)
    if policy is None:
        return None
    active = state.shares.active(queue.name, now)
    weights = weights_of(policy, active)
    return FairShareView(
        window_s(policy),
        Amount(total),
        {
            share: ShareView(weights[share], meter.average_at(now), meter.held)
            for share, meter in active.items()
        },
        policy.reservation_percent,
        kept_for_others(policy, len(active), Amount(total)),
    )


def _meter(state: State, job: ServiceJob) -> ShareMeter | None:
    return None if job.share is None else state.shares.find(job.queue, job.share)


def _instances(job: ServiceJob) -> Amount:
    return Amount(float(sum(job.instances.values())))
