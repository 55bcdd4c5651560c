"""The gate of queues with quota shares, and what it counts while a plan is made.

Whoever asks for no more than his share's own has his turn before those who would borrow: what is lent is what no owner
wants now. A place that others are leaving is pledged to the job that it is for, so that nobody borrows it meanwhile.
Must not know rooms; who has to leave is preempting.py's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from windfall.jobs.ids import QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.quota_reasons import quota_reason
from windfall.scheduling.quotas import Amounts, Quotas, Verdict
from windfall.scheduling.reasons import Reason
from windfall.scheduling.snapshot import Shape, Snapshot, Standing

QUOTA = "quota"
#: Whom jobs wait with: queue, shape and standing.
Kin = tuple[QueueName, Shape, Standing]


class InQueue(Protocol):
    """Jobs of one queue, shape and standing."""

    @property
    def queue(self) -> QueueName:
        """The queue that they wait in."""

    @property
    def shape(self) -> Shape:
        """What each of them needs."""

    @property
    def standing(self) -> Standing:
        """What else decides about them."""


def kin_of(asking: InQueue) -> Kin:
    """What makes jobs alike in everything but their order."""
    return asking.queue, asking.shape, asking.standing


def in_units(resources: Resources) -> dict[str, float]:
    """Amounts as the limits of quota shares name them."""
    return {"VCPU": resources.vcpus, "GPU": resources.gpus, "MEMORY": float(resources.memory_mib)}


def amounts_of(asking: InQueue) -> dict[str, float]:
    """What one of these jobs holds while it runs; a multi-node job all its nodes together."""
    gang = asking.standing.gang
    if gang is None:
        return in_units(asking.shape.resources)
    held: dict[str, float] = {}
    for shape, count in gang.parts:
        for unit, amount in in_units(shape.resources).items():
            held[unit] = held.get(unit, 0.0) + amount * count
    return held


class QuotaGate:
    """What the shares of all such queues hold now, and will hold when all have left who were asked to.

    Whoever starts must be within the limits of both: of what is held now, and of what is left then beside those that
    places are being made free for. Who may be asked to leave is read from what is left then without those.
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
        #: Whether those who would borrow have their turn by now.
        self.borrowing = False
        self._pledged: Counter[Kin] = Counter()

    def admits(self, asking: InQueue, wanted: int) -> int:
        """How many of so many jobs may start now."""
        if asking.queue not in self.now:
            return wanted
        share, amounts = asking.standing.share or "", amounts_of(asking)
        admitted = self.now[asking.queue].admits(share, amounts, wanted, own=not self.borrowing)
        with self._unpledged(asking) as soon:
            return soon.admits(share, amounts, admitted, own=not self.borrowing)

    def waits_to_borrow(self, asking: InQueue) -> bool:
        """Whether they would have to borrow, and have to let those go first who would not."""
        if asking.queue not in self.now or self.borrowing:
            return False
        with self._unpledged(asking) as soon:
            return not soon.entitles(asking.standing.share or "", amounts_of(asking))

    def will_admit(self, asking: InQueue) -> bool:
        """Whether one more of them may start when all have left who were asked to."""
        quotas = self.soon.get(asking.queue)
        share, amounts = asking.standing.share or "", amounts_of(asking)
        return quotas is None or quotas.verdict(share, amounts) is Verdict.ADMITTED

    def started(self, asking: InQueue, count: int) -> None:
        """Note that so many have got a place."""
        if asking.queue in self.now:
            share, amounts = asking.standing.share or "", amounts_of(asking)
            for each in (self.now, self.left, self.soon):
                each[asking.queue].note(share, amounts, count)

    def pledge(self, asking: InQueue, count: int = 1) -> None:
        """Keep what so many jobs will hold from others; below 0, no more."""
        if asking.queue in self.now:
            self._pledged[kin_of(asking)] += count
            self.soon[asking.queue].note(asking.standing.share or "", amounts_of(asking), count)

    def leaves(self, queue: QueueName, share: str, amounts: Amounts) -> None:
        """Note that somebody is asked to leave."""
        self.left[queue].note(share, amounts, -1)
        self.soon[queue].note(share, amounts, -1)

    def reasons(self, asking: InQueue) -> list[Reason]:
        """Why it would not let one more of them start, with its numbers; what is pledged to its like is theirs."""
        if asking.queue not in self.now:
            return []
        share, amounts = asking.standing.share or "", amounts_of(asking)
        for quotas in (self.soon[asking.queue], self.now[asking.queue]):
            if quotas.verdict(share, amounts) is not Verdict.ADMITTED:
                return [quota_reason(quotas, asking.queue, share, amounts)]
        return []

    @contextmanager
    def _unpledged(self, asking: InQueue) -> Iterator[Quotas]:
        """What is held then, without what is pledged to these jobs themselves."""
        share, amounts, count = asking.standing.share or "", amounts_of(asking), self._pledged[kin_of(asking)]
        soon = self.soon[asking.queue]
        soon.note(share, amounts, -count)
        try:
            yield soon
        finally:
            soon.note(share, amounts, count)
