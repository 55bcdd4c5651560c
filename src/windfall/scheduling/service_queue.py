"""Which service jobs of one service environment are dispatched now, and which jobs they preempt.

Strict order: what the first jobs lack is kept for them, so that small jobs cannot overtake a large one for ever. Only
jobs that could never start are passed over. Shares of a fair-share queue are scored as those of ordinary queues
(fair_share.py), with instances instead of vCPUs. With quota shares, jobs that others have left for go first, then jobs
within their share's own limits, in order of arrival; what is left is lent in the same order. A job is asked to leave
only if the job that it leaves for then starts, and the jobs with the least loss are chosen. What is left of the
capacity counts what jobs hold, what leaving jobs will give back, and what is kept for others. Pure; must not know
training jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

from windfall.capacity.policies import INSTANCES
from windfall.jobs.aws_texts import MAX_RESOURCE, AwsQuotaReason
from windfall.scheduling.fair_share import Amount, FairShareView
from windfall.scheduling.quotas import Quotas, QuotaVerdict
from windfall.scheduling.service_views import (
    Amounts,
    HoldingService,
    Preempt,
    ServicePlan,
    ServicePreemption,
    ServiceQueueView,
    ServiceView,
    WaitingService,
    counted,
)

_EQUAL = 1e-9


class ServiceRoom:
    """The free capacity of one environment."""

    __slots__ = ("_free", "_limits")

    def __init__(self, view: ServiceView) -> None:
        self._limits = dict(view.limits)
        self._free = dict(view.limits)
        for queue in view.queues:
            for job in queue.holding:
                self.take(job.needs)

    def could_hold(self, needs: Amounts) -> bool:
        """Whether an empty environment has room for it."""
        return all(
            amount <= self._limits.get(unit, 0.0) + _EQUAL
            for unit, amount in counted(needs, self._limits).items()
        )

    def fits(self, needs: Amounts, without: Iterable[Amounts] = ()) -> bool:
        """Whether there is room for it once these have given back what they hold."""
        freed: dict[str, float] = {}
        for gone in without:
            for unit, amount in counted(gone, self._limits).items():
                freed[unit] = freed.get(unit, 0.0) + amount
        return all(
            amount <= self._free.get(unit, -inf) + freed.get(unit, 0.0) + _EQUAL
            for unit, amount in counted(needs, self._limits).items()
            if amount
        )

    @property
    def exhausted(self) -> bool:
        """Whether all of every unit is used or kept."""
        return all(amount <= 0 for amount in self._free.values())

    def take(self, needs: Amounts) -> None:
        """Count a job as started; what is not free yet is kept for it, and no other job gets it."""
        for unit, amount in counted(needs, self._limits).items():
            self._free[unit] = self._free.get(unit, 0.0) - amount


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


def fair_turns(waiting: Iterable[WaitingService], shares: FairShareView) -> Iterator[WaitingService]:
    """The waiting jobs one by one, the share of the lowest score first; each turn is charged to its share."""
    lines: dict[str, list[WaitingService]] = {}
    for job in sorted(waiting, key=lambda job: (job.priority, -job.order)):
        lines.setdefault(job.share, []).append(job)
    had: dict[str, float] = {}

    def score(name: str) -> tuple[float, int]:
        more = Amount(had.get(name, 0.0))
        return shares.share(name).score(shares.total, more), lines[name][-1].order

    while lines:
        name = min(lines, key=score)
        job = lines[name].pop()
        had[name] = had.get(name, 0.0) + job.needs.get(INSTANCES, 0.0)
        if not lines[name]:
            del lines[name]
        yield job


#: Whether it is enough that a set of holders leaves.
Enough = Callable[[Sequence[HoldingService]], bool]
#: Which jobs have to leave, and why.
Chosen = tuple[list[HoldingService], ServicePreemption]


def serve_quota_shares(queue: ServiceQueueView, room: ServiceRoom, plan: ServicePlan) -> None:
    """Dispatch the jobs of one queue that may start, and ask jobs to leave that hold what belongs to others."""
    _Serving(queue, room, plan).serve()


def share_never(quotas: Quotas, job: WaitingService) -> AwsQuotaReason | None:
    """Why a job's share could never hold it; a share with limits by type does not hold types that it does not name."""
    limits = quotas.limits(job.share)
    if INSTANCES not in limits and any(unit not in limits for unit in job.needs if unit != INSTANCES):
        return AwsQuotaReason.LIMITS
    return quotas.never(job.share, job.needs)


class _Serving:
    def __init__(self, queue: ServiceQueueView, room: ServiceRoom, plan: ServicePlan) -> None:
        self._queue, self._room, self._plan = queue, room, plan
        self._quotas = Quotas(queue.quota_shares or ())
        for job in queue.holding:
            self._quotas.note(job.share, job.needs)
        #: The jobs asked to leave, before this plan and by it. What they free is allotted as it is used up.
        self._leaving = [job for job in queue.holding if job.leaving]
        self._staying = [job for job in queue.holding if not job.leaving]

    def serve(self) -> None:
        borrowing: list[WaitingService] = []
        have_to_borrow: set[str] = set()
        able = []
        for job in by_shares(self._queue.waiting):
            if (reason := self._never(job)) is not None:
                self._plan.never[job.id] = reason
            elif job.promised:
                self._serve_one(job, self._reclaimed)
            else:
                able.append(job)
        for job in able:
            # No job of the same share overtakes one that has to borrow.
            if job.share not in have_to_borrow and self._quotas.entitles(job.share, job.needs):
                self._serve_one(job, self._reclaimed)
            else:
                have_to_borrow.add(job.share)
                borrowing.append(job)
        for job in borrowing:
            if not self._room.exhausted or self._quotas.shares[job.share].preempts_within:
                self._serve_one(job, self._outranked)

    def _never(self, job: WaitingService) -> str | None:
        if job.share not in self._quotas.shares:
            return f"Quota share {job.share} does not exist any more; create it again, or terminate this job"
        if not self._room.could_hold(job.needs):
            return MAX_RESOURCE
        return share_never(self._quotas, job)

    def _serve_one(self, job: WaitingService, victims: Callable[[WaitingService], Chosen | None]) -> None:
        """Start a job, or have room made for it; what it lacks is kept for it in any case."""
        if self._starts(job, ()):
            self._plan.dispatch.append(job.id)
        elif not self._starts(job, self._leaving) and (chosen := victims(job)) is not None:
            for victim in chosen[0]:
                self._plan.preempt.append(Preempt(victim.id, job.id, chosen[1]))
                self._staying.remove(victim)
                self._leaving.append(victim)
        self._room.take(job.needs)
        self._quotas.note(job.share, job.needs)

    def _reclaimed(self, job: WaitingService) -> Chosen | None:
        """Which jobs give back what a job's share has lent, or what less urgent jobs of its share hold."""
        own, lent = self._outranked(job), None
        if self._quotas.entitles(job.share, job.needs):
            others = self._borrowed_by(it for it in self._staying if it.share != job.share)
            lent = self._least_loss(job, others)
        if lent is None or (own is not None and _loss(own[0]) < _loss(lent)):
            return own
        return lent, ServicePreemption.CROSS_SHARE

    def _outranked(self, job: WaitingService) -> Chosen | None:
        """Which less urgent jobs of its own share leave for a job, if the share wants that."""
        if not self._quotas.shares[job.share].preempts_within:
            return None
        lesser = [it for it in self._staying if it.share == job.share and it.priority < job.priority]
        victims = self._least_loss(job, lesser)
        return None if victims is None else (victims, ServicePreemption.IN_SHARE)

    def _least_loss(
        self, job: WaitingService, candidates: Sequence[HoldingService]
    ) -> list[HoldingService] | None:
        return least_loss(candidates, lambda gone: self._starts(job, [*self._leaving, *gone]))

    def _borrowed_by(self, holders: Iterable[HoldingService]) -> list[HoldingService]:
        """Of shares above their limits: the jobs that may leave before the share is back within them."""
        borrowers = []
        above = {name: self._above_once_left(name) for name in self._quotas.shares}
        for job in sorted(holders, key=lambda it: it.loss):
            over = above.get(job.share, {})
            if any(over.get(unit, 0.0) > 0 for unit, amount in job.needs.items() if amount):
                borrowers.append(job)
                for unit, amount in job.needs.items():
                    over[unit] = over.get(unit, 0.0) - amount
        return borrowers

    def _above_once_left(self, share: str) -> dict[str, float]:
        """By how much a share exceeds its limits after the jobs asked to leave have left."""
        gone = [holder for holder in self._leaving if holder.share == share]
        with _gone(self._quotas, gone):
            return self._quotas.above(share)

    def _starts(self, job: WaitingService, gone: Sequence[HoldingService]) -> bool:
        """Whether quota and room let it start once these have left."""
        if not self._room.fits(job.needs, [holder.needs for holder in gone]):
            return False
        with _gone(self._quotas, gone):
            return self._quotas.verdict(job.share, job.needs) is QuotaVerdict.ADMITTED


class _gone:  # noqa: N801 (reads as a word in a with statement)
    """Quotas without some holders, for a moment."""

    def __init__(self, quotas: Quotas, holders: Sequence[HoldingService]) -> None:
        self._quotas, self._holders = quotas, holders

    def __enter__(self) -> None:
        for holder in self._holders:
            self._quotas.note(holder.share, holder.needs, -1)

    def __exit__(self, *_: object) -> None:
        for holder in self._holders:
            self._quotas.note(holder.share, holder.needs)


def least_loss(candidates: Sequence[HoldingService], enough: Enough) -> list[HoldingService] | None:
    """Jobs whose leaving is enough, at little loss, none of them needlessly; None if all together are not."""
    chosen: list[HoldingService] = []
    for candidate in sorted(candidates, key=lambda it: it.loss):
        if enough(chosen):
            break
        chosen.append(candidate)
    if not chosen or not enough(chosen):
        return None
    for expensive in sorted(chosen, key=lambda it: -it.loss):
        others = [candidate for candidate in chosen if candidate is not expensive]
        if others and enough(others):
            chosen = others
    alone = min((it for it in candidates if enough([it])), key=lambda it: it.loss, default=None)
    if alone is not None and alone.loss <= _loss(chosen):
        return [alone]
    return chosen


def _loss(leaving: Iterable[HoldingService]) -> float:
    return sum(holder.loss for holder in leaving)


def by_shares(waiting: Iterable[WaitingService]) -> list[WaitingService]:
    """Each share's jobs by priority and arrival; shares take turns by the arrival of the first job of each."""
    lines: dict[str, list[WaitingService]] = {}
    for job in sorted(waiting, key=lambda job: (job.priority, -job.order)):
        lines.setdefault(job.share, []).append(job)
    merged = []
    while lines:
        first = min(lines.values(), key=lambda line: line[-1].order)
        merged.append(first.pop())
        if not first:
            del lines[merged[-1].share]
    return merged
