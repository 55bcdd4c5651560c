"""Who may be asked to leave by a job of a queue with quota shares, and which of them it is.

A job that asks for no more than its share's own may ask those of shares that hold more than theirs, as far as they do:
a share is asked for one attempt after another only while it is above its limits. A more urgent job may ask less urgent
ones of its own share, where that is enabled. Among them the least loss decides (victims.py), and only if the job then
really starts: there must be room on one machine, and its quota must let it in. Must not know how room is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from windfall.jobs.ids import AttemptToken, QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.fit import Floor, Room
from windfall.scheduling.quota_gate import InQueue, QuotaGate, amounts_of, in_units
from windfall.scheduling.quotas import Amounts, Quotas, Verdict
from windfall.scheduling.snapshot import Preemption, Release
from windfall.scheduling.victims import Need, freed_by, victims


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job needs of its quota, and whom it may ask."""

    queue: QueueName
    share: str
    amounts: Amounts
    #: As it will be when those have left who were asked before, and those have come who they were asked for.
    quotas: Quotas
    #: The same without those who are still to come.
    left: Quotas
    #: What its quota lacks then.
    lacks: Amounts
    #: Attempts of shares that hold more than their own, and less urgent ones of its own share.
    borrowers: tuple[Release, ...]
    less_urgent: tuple[Release, ...]

    @property
    def may_ask(self) -> bool:
        """Whether there is anybody."""
        return bool(self.borrowers or self.less_urgent)

    def let_in_after(self, leaving: Iterable[Release]) -> bool:
        """Whether its quota lets it in when these have left."""
        if not self.lacks:
            return True
        gone = [(one.share or "", in_units(one.resources)) for one in leaving]
        for share, amounts in gone:
            self.quotas.note(share, amounts, -1)
        verdict = self.quotas.verdict(self.share, self.amounts)
        for share, amounts in gone:
            self.quotas.note(share, amounts)
        return verdict is Verdict.ADMITTED


@dataclass(frozen=True, slots=True)
class PlaceNeed:
    """What a job lacks in one room: of the instance's own claim, of the machine, and of its quota."""

    room: Room
    #: Below 0 is what is there.
    own: Resources
    machine: Need
    terms: Terms
    #: Where those are who may be asked.
    where: Mapping[AttemptToken | None, Room]

    def met_by(self, leaving: Sequence[Release]) -> bool:
        """Whether it lacks nothing when these have left."""
        in_room = [one for one in leaving if self.where[one.token] is self.room]
        return (
            self.own.fits_in(freed_by(in_room))
            and self.machine.met_by(self.on_machine(leaving))
            and self.terms.let_in_after(leaving)
        )

    def on_machine(self, leaving: Iterable[Release]) -> list[Release]:
        """Those of them whose leaving makes room on the machine."""
        return [one for one in leaving if self.where[one.token].machine is self.room.machine]

    def helped_by(self, release: Release) -> float:
        """The largest share of something missing that one gives back, at most all of it."""
        amounts, lacks = in_units(release.resources), self.terms.lacks
        helps = [min(1.0, amounts.get(unit, 0.0) / lack) for unit, lack in lacks.items()]
        if self.where[release.token].machine is self.room.machine:
            helps.append(self.machine.helped_by(release))
        if self.where[release.token] is self.room:
            helps.append(Need(self.own).helped_by(release))
        return max(helps, default=0.0)

    @property
    def short(self) -> set[str]:
        """The units that it lacks, of whatever."""
        found = {unit for unit, amount in self.terms.lacks.items() if amount > 0}
        for missing in (self.own, self.machine.missing):
            found |= {unit for unit, amount in in_units(missing).items() if amount > 0}
        if self.machine.devices is not None and self.machine.devices.missing() > 0:
            found.add("GPU")
        return found


@dataclass(slots=True)
class Preempting:
    """Who holds places in queues with quota shares, looked up once while a plan is made."""

    gate: QuotaGate
    floor: Floor
    _held: dict[QueueName, list[Release]] = field(default_factory=dict)
    #: Where each of them is.
    where: dict[AttemptToken | None, Room] = field(default_factory=dict)

    def terms(self, asking: InQueue, asked: set[AttemptToken]) -> Terms | None:
        """What such a job may do; None for a queue without quota shares."""
        quotas = self.gate.soon.get(asking.queue)
        if quotas is None:
            return None
        share, amounts = asking.standing.share or "", amounts_of(asking)
        held = [one for one in self._attempts(asking.queue) if one.token not in asked]
        left = self.gate.left[asking.queue]
        above = {name for name in left.shares if name != share and left.above(name)}
        if not above or not quotas.entitles(share, amounts):
            above = set()
        known = quotas.shares.get(share)
        within = known is not None and known.preempts_within
        return Terms(
            asking.queue,
            share,
            amounts,
            quotas,
            left,
            quotas.missing(share, amounts),
            tuple(one for one in held if one.share in above),
            tuple(
                one
                for one in held
                if within and one.share == share and one.priority < asking.standing.priority
            ),
        )

    def left(self, release: Release, queue: QueueName) -> None:
        """Note that one is asked to leave."""
        if release.queue == queue and release.share is not None:
            self.gate.leaves(queue, release.share, in_units(release.resources))

    def _attempts(self, queue: QueueName) -> list[Release]:
        """All attempts of a queue that could be asked."""
        if not self._held:
            self._held = {name: [] for name in self.gate.soon}
            for machine in self.floor.machines.values():
                for room in machine.rooms:
                    for release in room.view.releases:
                        if release.share is not None and release.queue in self._held:
                            self._held[release.queue].append(release)
                            self.where[release.token] = room
        return self._held[queue]


def preemption_of(release: Release, asking: InQueue) -> Preemption | None:
    """Why one may be asked; None when it runs on capacity that others may take back anyway."""
    if release.queue != asking.queue or release.share is None:
        return None
    return Preemption.IN_SHARE if release.share == asking.standing.share else Preemption.CROSS_SHARE


def least_loss(need: PlaceNeed, others: Sequence[Release]) -> tuple[Release, ...] | None:
    """Those whose leaving lets the job start at little loss; `others` may be asked without regard to quotas.

    Tried are several orders in which a share could be asked for its attempts, and each attempt alone.
    """
    help_of = {one.token: need.helped_by(one) for one in need.terms.borrowers}
    helpful = [one for one in need.terms.borrowers if help_of[one.token] > 0]
    orders: tuple[Callable[[Release], float], ...] = (
        lambda one: one.loss,
        lambda one: one.loss / help_of[one.token],
        lambda one: -help_of[one.token],
    )
    free = [*need.terms.less_urgent, *others]
    choices = [victims(need, [*free, *_above_limits(need, sorted(helpful, key=order))]) for order in orders]
    alone = min((one for one in helpful if need.met_by((one,))), key=lambda one: one.loss, default=None)
    if alone is not None:
        choices.append((alone,))
    found = [chosen for chosen in choices if chosen is not None]
    return min(found, key=lambda chosen: (sum(one.loss for one in chosen), len(chosen)), default=None)


def _above_limits(need: PlaceNeed, ordered: Sequence[Release]) -> list[Release]:
    """Of each share so many as it is above its limits by, in what the job lacks; the last may bring it below."""
    short = need.short
    left = {name: _relevant(need.terms.left, name, short) for name in {one.share or "" for one in ordered}}
    chosen = []
    for one in ordered:
        above = left[one.share or ""]
        if not any(amount > 0 for amount in above.values()):
            continue
        chosen.append(one)
        given = in_units(one.resources)
        for unit in above:
            above[unit] -= given.get(unit, 0.0)
    return chosen


def _relevant(quotas: Quotas, share: str, short: set[str]) -> dict[str, float]:
    """By how much a share is above its limits in what is short; where it has no limit for that, in anything."""
    above, limits = quotas.above(share), quotas.limits(share)
    if any(unit not in limits for unit in short):
        return above
    return {unit: amount for unit, amount in above.items() if unit in short}
