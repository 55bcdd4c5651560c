"""The gate of queues with quota shares, and what it counts while a plan is made.

Jobs within their share's limits go before borrowers: only what no owner wants now is lent. A place that
others are vacating is pledged to the job that it is for, so that no other job borrows it meanwhile. Must not
know rooms; preempting.py decides which jobs leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from windfall.jobs.ids import QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.quota_reasons import quota_reason
from windfall.scheduling.quotas import Amounts, Quotas, QuotaVerdict
from windfall.scheduling.reasons import Reason
from windfall.scheduling.snapshot import SchedulingClass, Shape, Snapshot

QUOTA = "quota"
#: What jobs wait together by: queue, shape and scheduling class.
GroupKey = tuple[QueueName, Shape, SchedulingClass]


class InQueue(Protocol):
    """Jobs of one queue, shape and scheduling class."""

    @property
    def queue(self) -> QueueName:
        """The queue that they wait in."""

    @property
    def shape(self) -> Shape:
        """What each of them needs."""

    @property
    def scheduling_class(self) -> SchedulingClass:
        """What else decides about them."""


def group_key(asking: InQueue) -> GroupKey:
    """The key of jobs that are equal in everything but their order."""
    return asking.queue, asking.shape, asking.scheduling_class


def in_units(resources: Resources) -> dict[str, float]:
    """Amounts by the units that quota shares limit."""
    return {"VCPU": resources.vcpus, "GPU": resources.gpus, "MEMORY": float(resources.memory_mib)}


def amounts_of(asking: InQueue) -> dict[str, float]:
    """What one of these jobs holds while it runs; all nodes of a multi-node job together."""
    gang = asking.scheduling_class.gang
    if gang is None:
        return in_units(asking.shape.resources)
    amounts: dict[str, float] = {}
    for shape, count in gang.parts:
        for unit, amount in in_units(shape.resources).items():
            amounts[unit] = amounts.get(unit, 0.0) + amount * count
    return amounts


class QuotaGate:
    """What the shares of all such queues hold now, and will hold after those asked to leave have left.

    A job that starts must be within the limits of both: of what is held now, and of what is held then,
    including the jobs that places are being vacated for. Which jobs may be preempted is read from what is
    held then without those.
    """

    __slots__ = ("_pledged", "borrowing", "left", "name", "now", "soon")

    def __init__(self, snapshot: Snapshot) -> None:
        self.name = QUOTA
        self.now = {queue: Quotas(view.shares, view.used) for queue, view in snapshot.quotas.items()}
        self.left = {queue: Quotas(view.shares, view.used) for queue, view in snapshot.quotas.items()}
        self.soon = {queue: Quotas(view.shares, view.used) for queue, view in snapshot.quotas.items()}
        for queue, view in snapshot.quotas.items():
            for share, amounts in view.leaving.items():
                self.leaves(queue, share, amounts)
        #: Whether borrowers have their turn by now.
        self.borrowing = False
        self._pledged: Counter[GroupKey] = Counter()

    def admits(self, asking: InQueue, wanted: int) -> int:
        """How many of `wanted` jobs may start now."""
        if asking.queue not in self.now:
            return wanted
        share, amounts = asking.scheduling_class.share or "", amounts_of(asking)
        admitted = self.now[asking.queue].admits(share, amounts, wanted, own=not self.borrowing)
        with self._unpledged(asking) as soon:
            return soon.admits(share, amounts, admitted, own=not self.borrowing)

    def waits_to_borrow(self, asking: InQueue) -> bool:
        """Whether they would have to borrow, and must let jobs go first that would not."""
        if asking.queue not in self.now or self.borrowing:
            return False
        with self._unpledged(asking) as soon:
            return not soon.entitles(asking.scheduling_class.share or "", amounts_of(asking))

    def will_admit(self, asking: InQueue) -> bool:
        """Whether one more of them may start after those asked to leave have left."""
        quotas = self.soon.get(asking.queue)
        share, amounts = asking.scheduling_class.share or "", amounts_of(asking)
        return quotas is None or quotas.verdict(share, amounts) is QuotaVerdict.ADMITTED

    def started(self, asking: InQueue, count: int) -> None:
        """Count `count` jobs that got a place."""
        if asking.queue in self.now:
            share, amounts = asking.scheduling_class.share or "", amounts_of(asking)
            for each in (self.now, self.left, self.soon):
                each[asking.queue].note(share, amounts, count)

    def pledge(self, asking: InQueue, count: int = 1) -> None:
        """Keep from others what `count` jobs will hold; negative undoes it."""
        if asking.queue in self.now:
            self._pledged[group_key(asking)] += count
            self.soon[asking.queue].note(asking.scheduling_class.share or "", amounts_of(asking), count)

    def leaves(self, queue: QueueName, share: str, amounts: Amounts) -> None:
        """Count an attempt that is asked to leave."""
        self.left[queue].note(share, amounts, -1)
        self.soon[queue].note(share, amounts, -1)

    def reasons(self, asking: InQueue) -> list[Reason]:
        """Why one more of them may not start, with the numbers; what is pledged to its own group is available to it."""
        if asking.queue not in self.now:
            return []
        share, amounts = asking.scheduling_class.share or "", amounts_of(asking)
        for quotas in (self.soon[asking.queue], self.now[asking.queue]):
            if quotas.verdict(share, amounts) is not QuotaVerdict.ADMITTED:
                return [quota_reason(quotas, asking.queue, share, amounts)]
        return []

    @contextmanager
    def _unpledged(self, asking: InQueue) -> Iterator[Quotas]:
        """What is held then, without what is pledged to these jobs themselves."""
        share, amounts, count = (
            asking.scheduling_class.share or "",
            amounts_of(asking),
            self._pledged[group_key(asking)],
        )
        soon = self.soon[asking.queue]
        soon.note(share, amounts, -count)
        try:
            yield soon
        finally:
            soon.note(share, amounts, count)
