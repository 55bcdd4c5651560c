"""Which attempts must leave so that all nodes of a multi-node job can start; none, unless all nodes then do.

Few candidates are tried in every combination, so that the result has the least loss. With many, some orders
are tried, and no attempt is taken that could be spared. Both within an effort that a pass can afford. Must
not know which attempts may be asked, nor how places are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from windfall.jobs.ids import MachineId
from windfall.scheduling.eviction_sets import EvictionSet, members_of
from windfall.scheduling.gangs import Seat, needs_of
from windfall.scheduling.preempting import Terms, above_limits, within_what_is_above
from windfall.scheduling.projected_capacity import ProjectedCapacity
from windfall.scheduling.quota_gate import in_units
from windfall.scheduling.victims import cost_of, first_enough, freed_by, spared

#: Up to this many candidates, every combination is tried.
EXACT_MOST = 8
#: The effort of one search, in rooms, nodes and attempts examined; after that the best result so far is used.
MOST_EFFORT = 25_000


@dataclass(slots=True)
class GangNeed:
    """What a multi-node job lacks in one environment: rooms for all nodes, and its quota."""

    projected: ProjectedCapacity
    terms: Terms | None
    _effort: int = field(default=0)

    def met_by(self, leaving: Sequence[EvictionSet]) -> bool:
        """Whether all nodes start after these have left; False also when the effort is used up."""
        if self.terms is not None and not self.terms.let_in_after(leaving):
            return False
        if self._effort > MOST_EFFORT:
            return False
        return bool(self.seats(leaving))

    def seats(self, leaving: Sequence[EvictionSet]) -> list[Seat]:
        """The places that the nodes then have."""
        gone = list(members_of(leaving))
        self._effort += self.each + len(gone)
        return self.projected.seats(gone)

    @property
    def each(self) -> int:
        """The effort of one try, without the attempts that leave."""
        return len(self.projected.rooms) + self.projected.gang.size

    def helped_by(self, eviction_set: EvictionSet) -> float:
        """The largest fraction of what the nodes need, or its quota lacks, that one candidate gives back."""
        given = in_units(freed_by(self.projected.on_machines(eviction_set.members)))
        needs = in_units(needs_of(self.projected.gang))
        helps = [min(1.0, given[unit] / amount) for unit, amount in needs.items() if amount > 0]
        return max([0.0 if self.terms is None else self.terms.helped_by(eviction_set), *helps])

    @property
    def short(self) -> set[str]:
        """The units that it lacks; all that it needs, if it lacks them only in one place."""
        needs, free = in_units(needs_of(self.projected.gang)), in_units(self.projected.free())
        lacks = set() if self.terms is None else set(self.terms.lacks)
        lacks |= {unit for unit, amount in needs.items() if amount > free[unit]}
        return lacks or {unit for unit, amount in needs.items() if amount > 0}


def least_loss(need: GangNeed, others: Sequence[EvictionSet]) -> tuple[EvictionSet, ...] | None:
    """Candidates whose leaving lets all nodes start; empty if none has to leave, None if it is impossible."""
    if not needs_of(need.projected.gang).fits_in(need.projected.most):
        return None
    if need.met_by(()):
        return ()
    terms = need.terms
    free = [*(() if terms is None else terms.less_urgent), *others]
    borrowers = [] if terms is None else list(terms.borrowers)
    help_of = {id(candidate): need.helped_by(candidate) for candidate in (*free, *borrowers)}
    helpful = [candidate for candidate in (*free, *borrowers) if help_of[id(candidate)] > 0]
    if not need.met_by(helpful):
        return None
    lent = {id(candidate) for candidate in borrowers}
    if len(helpful) <= EXACT_MOST and need.each * 2 ** len(helpful) <= MOST_EFFORT:
        return _exactly(need, helpful, lent)
    prices = _prices(need, helpful)
    orders: tuple[Callable[[EvictionSet], float], ...] = (
        lambda candidate: min(prices[machine] for machine in _machines(need, candidate)),
        lambda candidate: candidate.loss / help_of[id(candidate)],
        lambda candidate: candidate.loss,
    )
    choices = [_in_order(need, sorted(helpful, key=order), lent) for order in orders]
    return min((chosen for chosen in choices if chosen is not None), key=cost_of, default=None)


def _exactly(need: GangNeed, helpful: list[EvictionSet], lent: set[int]) -> tuple[EvictionSet, ...] | None:
    """The first combination in the order of cost."""
    every = [chosen for count in range(1, len(helpful) + 1) for chosen in combinations(helpful, count)]
    short = need.short
    for chosen in sorted(every, key=cost_of):
        borrowers = [candidate for candidate in chosen if id(candidate) in lent]
        if need.terms is not None and not within_what_is_above(need.terms, short, borrowers):
            continue
        if need.met_by(chosen):
            return chosen
    return None


def _in_order(need: GangNeed, ordered: list[EvictionSet], lent: set[int]) -> tuple[EvictionSet, ...] | None:
    """The shortest beginning of the list that is enough, without those that could stay."""
    if need.terms is not None:
        above = above_limits(
            need.terms, need.short, [candidate for candidate in ordered if id(candidate) in lent]
        )
        allowed = {id(candidate) for candidate in above}
        ordered = [
            candidate for candidate in ordered if id(candidate) not in lent or id(candidate) in allowed
        ]
    chosen = first_enough(ordered, need.met_by)
    if chosen is None:
        return None
    seated = {seat.room.machine.view.id for seat in need.seats(chosen)}
    there = tuple(candidate for candidate in chosen if seated & _machines(need, candidate))
    return spared(there if need.met_by(there) else chosen, need.met_by)


def _machines(need: GangNeed, eviction_set: EvictionSet) -> set[MachineId | None]:
    """The machine on which a candidate makes room; None for one that gives back only a quota."""
    room_of = need.projected.horizon.holders.room_of
    return {
        room_of(release).machine.view.id for release in need.projected.on_machines(eviction_set.members)
    } or {None}


def _prices(need: GangNeed, helpful: Sequence[EvictionSet]) -> dict[MachineId | None, float]:
    """The cost of emptying each machine: nodes need much in one place rather than a little everywhere."""
    prices: dict[MachineId | None, float] = {}
    for candidate in helpful:
        for machine in _machines(need, candidate):
            prices[machine] = prices.get(machine, 0.0) + candidate.loss
    return prices
