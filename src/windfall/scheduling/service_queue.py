"""Which service jobs of one service environment are dispatched now, and which jobs they preempt.

Strict order: what the first jobs lack is kept for them, so that small jobs cannot overtake a large one for
ever. Only jobs that could never start are passed over. Pure; must not know training jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from windfall.capacity.policies import INSTANCES
from windfall.jobs.aws_texts import MAX_RESOURCE
from windfall.scheduling.fair_share import FairShareView
from windfall.scheduling.service_quotas import by_shares, serve_quota_shares
from windfall.scheduling.service_room import ServiceRoom
from windfall.scheduling.service_shares import fair_turns
from windfall.scheduling.service_views import ServicePlan, ServiceQueueView, ServiceView, WaitingService


def plan_services(view: ServiceView) -> ServicePlan:
    """Decide for one environment; queues of higher priority first."""
    plan, room = ServicePlan(), ServiceRoom(view)
    for queue in sorted(view.queues, key=lambda queue: (-queue.priority, queue.name)):
        if queue.quota_shares is not None:
            serve_quota_shares(queue, room, plan)
            continue
        able = [job for job in queue.waiting if room.could_hold(job.needs)]
        if len(able) < len(queue.waiting):
            plan.never |= {job.id: MAX_RESOURCE for job in queue.waiting if not room.could_hold(job.needs)}
            queue = replace(queue, waiting=able)
        if queue.fair_share is not None:
            _serve_fairly(queue, queue.fair_share, room, plan)
        else:
            _serve(in_order(queue.waiting), room, plan)
    return plan


def front_of(queue: ServiceQueueView) -> list[WaitingService]:
    """The waiting jobs of a queue in the order in which they are considered."""
    if queue.quota_shares is not None:
        return by_shares(queue.waiting)
    if queue.fair_share is not None:
        return list(fair_turns(queue.waiting, queue.fair_share))
    return in_order(queue.waiting)


def in_order(waiting: Iterable[WaitingService]) -> list[WaitingService]:
    """The higher priority first, then first come, first served."""
    return sorted(waiting, key=lambda job: (-job.priority, job.order))


def _serve(turns: Iterable[WaitingService], room: ServiceRoom, plan: ServicePlan) -> None:
    for job in turns:
        if room.exhausted:
            return
        if room.fits(job.needs):
            plan.dispatch.append(job.id)
        room.take(job.needs)


def _serve_fairly(
    queue: ServiceQueueView, shares: FairShareView, room: ServiceRoom, plan: ServicePlan
) -> None:
    """As without a policy, but share by share, and never more than the policy leaves to the active shares."""

    def within_reservation() -> Iterator[WaitingService]:
        left = shares.usable.vcpus - shares.held.vcpus
        for job in fair_turns(queue.waiting, shares):
            left -= job.needs.get(INSTANCES, 0.0)
            if left < 0:
                return  # the ones behind it wait with it
            yield job

    _serve(within_reservation(), room, plan)
