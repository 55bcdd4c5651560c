"""Which attempts a job of a queue with quota shares may preempt, and which of them it does.

A job within its share's own limits may preempt jobs of shares that exceed theirs, as far as they do: a share
gives up one attempt after another only while it is above its limits. A more urgent job may preempt less
urgent ones of its own share, if that is enabled. Among the candidates the least loss decides (victims.py),
and only if the job then really starts: there must be room on one machine, and its quota must admit it. Must
not know how room is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from windfall.jobs.ids import QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.eviction_sets import EvictionSet, Holders, members_of
from windfall.scheduling.fit import Room
from windfall.scheduling.quota_gate import InQueue, QuotaGate, amounts_of, in_units
from windfall.scheduling.quotas import Amounts, Quotas, QuotaVerdict
from windfall.scheduling.snapshot import Preemption, Release
from windfall.scheduling.victims import Lack, Need, cost_of, freed_by, victims

#: Sums of parts of GPUs are exact only up to this.
_EQUAL = 1e-6


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job needs of its quota, and which attempts it may preempt."""

    queue: QueueName
    share: str
    amounts: Amounts
    #: The quotas after those asked before have left, and the jobs they were asked for have started.
    quotas: Quotas
    #: The same, without the jobs that are still to start.
    left: Quotas
    #: What its quota then lacks.
    lacks: Amounts
    #: Attempts of shares that exceed their limits, and less urgent ones of its own share.
    borrowers: tuple[EvictionSet, ...]
    less_urgent: tuple[EvictionSet, ...]

    @property
    def may_ask(self) -> bool:
        """Whether there are any candidates."""
        return bool(self.borrowers or self.less_urgent)

    def let_in_after(self, leaving: Iterable[EvictionSet]) -> bool:
        """Whether its quota admits it after these have left.

        Attempts of its own share do not leave for a job that then borrows more than they did: other shares
        would take that back, and the situation would repeat.
        """
        gone = [(release.share or "", in_units(release.resources)) for release in members_of(leaving)]
        within = any(share == self.share for share, _ in gone)
        if not self.lacks and not within:
            return True
        before = self.quotas.above(self.share)
        for share, amounts in gone:
            self.quotas.note(share, amounts, -1)
        verdict = self.quotas.verdict(self.share, self.amounts)
        self.quotas.note(self.share, self.amounts)
        after = self.quotas.above(self.share)
        self.quotas.note(self.share, self.amounts, -1)
        for share, amounts in gone:
            self.quotas.note(share, amounts)
        if within and any(amount > before.get(unit, 0.0) + _EQUAL for unit, amount in after.items()):
            return False
        return verdict is QuotaVerdict.ADMITTED

    def helped_by(self, eviction_set: EvictionSet) -> float:
        """The largest fraction of what its quota lacks that one candidate gives back."""
        given = in_units(freed_by(eviction_set.members))
        return max((min(1.0, given.get(unit, 0.0) / lack) for unit, lack in self.lacks.items()), default=0.0)


class ShareNeed(Lack[EvictionSet], Protocol):
    """What a job lacks, including its quota."""

    @property
    def terms(self) -> Terms | None:
        """The terms of its quota; None for a queue without quota shares."""

    @property
    def short(self) -> set[str]:
        """The units that it lacks anywhere."""


@dataclass(frozen=True, slots=True)
class PlaceNeed:
    """What a job lacks in one room: of the instance's own claim, of the machine, and of its quota."""

    room: Room
    #: Negative amounts are left over.
    own: Resources
    machine: Need
    terms: Terms | None
    holders: Holders

    def met_by(self, leaving: Sequence[EvictionSet]) -> bool:
        """Whether it lacks nothing after these have left."""
        gone = list(members_of(leaving))
        return (
            self.own.fits_in(freed_by(self._in_room(gone)))
            and self.machine.met_by(self.on_machine(gone))
            and (self.terms is None or self.terms.let_in_after(leaving))
        )

    def on_machine(self, leaving: Iterable[Release]) -> list[Release]:
        """Those whose leaving makes room on the machine."""
        return [release for release in leaving if self.holders.room_of(release).machine is self.room.machine]

    def _in_room(self, leaving: Iterable[Release]) -> list[Release]:
        return [release for release in leaving if self.holders.room_of(release) is self.room]

    def helped_by(self, candidate: EvictionSet) -> float:
        """The largest fraction of something missing that one candidate gives back, at most all of it."""
        helps = [0.0 if self.terms is None else self.terms.helped_by(candidate)]
        if on_machine := self.on_machine(candidate.members):
            helps.append(self.machine.helped_by_all(on_machine))
            helps.append(Need(self.own).helped_by_all(self._in_room(on_machine)))
        return max(helps)

    @property
    def short(self) -> set[str]:
        """The units that it lacks anywhere."""
        lacks = {} if self.terms is None else self.terms.lacks
        units = {unit for unit, amount in lacks.items() if amount > 0}
        for missing in (self.own, self.machine.missing):
            units |= {unit for unit, amount in in_units(missing).items() if amount > 0}
        if self.machine.devices is not None and self.machine.devices.missing() > 0:
            units.add("GPU")
        return units


@dataclass(slots=True)
class Preempting:
    """The attempts of queues with quota shares, looked up once per plan."""

    gate: QuotaGate
    holders: Holders
    _held: dict[QueueName, list[Release]] = field(default_factory=dict)

    def terms(self, asking: InQueue) -> Terms | None:
        """What such a job may do; None for a queue without quota shares."""
        quotas = self.gate.soon.get(asking.queue)
        if quotas is None:
            return None
        share, amounts = asking.scheduling_class.share or "", amounts_of(asking)
        releases = self._attempts(asking.queue)
        left = self.gate.left[asking.queue]
        above = {name for name in left.shares if name != share and left.above(name)}
        if not above or not quotas.entitles(share, amounts):
            above = set()
        quota_share = quotas.shares.get(share)
        within = quota_share is not None and quota_share.preempts_within
        priority = asking.scheduling_class.priority
        return Terms(
            asking.queue,
            share,
            amounts,
            quotas,
            left,
            quotas.missing(share, amounts),
            tuple(self.holders.eviction_sets(release for release in releases if release.share in above)),
            tuple(
                self.holders.eviction_sets(
                    release
                    for release in releases
                    if within and release.share == share and release.priority < priority
                )
            ),
        )

    def left(self, release: Release, queue: QueueName) -> None:
        """Record that an attempt is asked to leave."""
        if release.queue == queue and release.share is not None:
            self.gate.leaves(queue, release.share, in_units(release.resources))

    def _attempts(self, queue: QueueName) -> list[Release]:
        """All attempts of a queue that could be asked."""
        if not self._held:
            self._held = {name: [] for name in self.gate.soon}
            for release in self.holders.everyone():
                if release.share is not None and release.queue in self._held:
                    self._held[release.queue].append(release)
        return self._held[queue]


def preemption_of(release: Release, asking: InQueue) -> Preemption | None:
    """Why an attempt may be preempted; None if it runs on reclaimable capacity anyway."""
    if release.queue != asking.queue or release.share is None:
        return None
    return Preemption.IN_SHARE if release.share == asking.scheduling_class.share else Preemption.CROSS_SHARE


def least_loss(need: ShareNeed, others: Sequence[EvictionSet]) -> tuple[EvictionSet, ...] | None:
    """Attempts whose leaving lets the job start at little loss; `others` may be asked regardless of quotas.

    Tries several orders in which a share could give up its attempts, and each attempt alone.
    """
    terms = need.terms
    if terms is None:
        return victims(need, others)
    help_of = {id(candidate): need.helped_by(candidate) for candidate in terms.borrowers}
    helpful = [candidate for candidate in terms.borrowers if help_of[id(candidate)] > 0]
    orders: tuple[Callable[[EvictionSet], float], ...] = (
        lambda candidate: candidate.loss,
        lambda candidate: candidate.loss / help_of[id(candidate)],
        lambda candidate: -help_of[id(candidate)],
    )
    free = [*terms.less_urgent, *others]
    choices = [
        victims(need, [*free, *above_limits(terms, need.short, sorted(helpful, key=order))])
        for order in orders
    ]
    alone = min(
        (candidate for candidate in helpful if need.met_by((candidate,))),
        key=lambda candidate: candidate.loss,
        default=None,
    )
    if alone is not None:
        choices.append((alone,))
    possible = [chosen for chosen in choices if chosen is not None]
    return min(possible, key=cost_of, default=None)


def above_limits(terms: Terms, short: set[str], ordered: Sequence[EvictionSet]) -> list[EvictionSet]:
    """As many of each share as it is above its limits by, in what the job lacks; the last may bring it below."""
    left = {
        share: _relevant(terms.left, share, short) for share in {candidate.share for candidate in ordered}
    }
    chosen = []
    for candidate in ordered:
        above = left[candidate.share]
        if not any(amount > 0 for amount in above.values()):
            continue
        chosen.append(candidate)
        given = in_units(freed_by(candidate.members))
        for unit in above:
            above[unit] -= given.get(unit, 0.0)
    return chosen


def within_what_is_above(terms: Terms, short: set[str], chosen: Sequence[EvictionSet]) -> bool:
    """Whether some order exists in which every share is still above its limits when its last attempt is asked."""
    given: dict[str, list[dict[str, float]]] = {}
    for candidate in chosen:
        given.setdefault(candidate.share, []).append(in_units(freed_by(candidate.members)))
    return all(
        any(
            amount > sum(each[unit] for each in amounts) - max(each[unit] for each in amounts)
            for unit, amount in _relevant(terms.left, share, short).items()
        )
        for share, amounts in given.items()
    )


def _relevant(quotas: Quotas, share: str, short: set[str]) -> dict[str, float]:
    """By how much a share is above its limits in the missing units; in any unit, if it has no limit for those."""
    above, limits = quotas.above(share), quotas.limits(share)
    if any(unit not in limits for unit in short):
        return above
    return {unit: amount for unit, amount in above.items() if unit in short}
