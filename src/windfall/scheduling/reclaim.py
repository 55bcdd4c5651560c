"""Which attempts give their places back to a job: the least loss first, no more than needed, and never in vain.

Reclaimable attempts run on capacity that no on-demand job wants now. If an on-demand job finds no place on a
machine, the reclaimable attempts whose loss is least and whose leaving lets it start are asked to leave;
until they have left, what they free is kept for it. In queues with quota shares, preempting.py decides which
attempts a job may preempt. A multi-node job asks for all its nodes at once (gang_victims.py). Attempts that
leave already, or surely end before a notice would be over, are counted first. Must not know how the loss was
computed, nor dispatch order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.scheduling import gang_victims
from windfall.scheduling.admission import Admission
from windfall.scheduling.devices import NONE_KEPT
from windfall.scheduling.eviction_sets import EvictionSet, Holders, members_of
from windfall.scheduling.fit import Floor, Room, takers
from windfall.scheduling.gang_victims import GangNeed
from windfall.scheduling.gangs import needs_of
from windfall.scheduling.horizon import Horizon, KeptPlace, KeptPlaces, lift, matters_which
from windfall.scheduling.preempting import PlaceNeed, Preempting, Terms, least_loss, preemption_of
from windfall.scheduling.projected_capacity import ProjectedCapacity
from windfall.scheduling.quota_gate import GroupKey, InQueue, group_key
from windfall.scheduling.snapshot import Claim, Gang, Reclaim, Release, Snapshot
from windfall.scheduling.victims import Need, NeededDevices, cost_of

#: How many places are taken back in one pass at most; the next pass goes on.
MOST_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a place, or one for each node, would cost."""

    places: tuple[KeptPlace, ...]
    asked: tuple[EvictionSet, ...]

    @property
    def rank(self) -> tuple[float, int, int]:
        return (*cost_of(self.asked), self.places[0].room.position)


@dataclass(slots=True)
class Claims:
    """The places that are being vacated, and the jobs they are kept for, while a plan is made."""

    floor: Floor
    notice_ms: int
    admission: Admission
    #: By queue, shape and scheduling class: jobs of one group take such places in their order.
    held: dict[GroupKey, list[KeptPlaces]] = field(default_factory=dict)
    reclaims: list[Reclaim] = field(default_factory=list)
    #: For queues with quota shares.
    preempting: Preempting | None = field(init=False)
    _horizon: Horizon = field(init=False)
    #: Quota that others give back, kept for jobs that have no room kept.
    _roomless: Counter[GroupKey] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        holders, quota = Holders(self.floor, self.notice_ms), self.admission.quota
        self._horizon = Horizon(holders)
        self.preempting = None if quota is None else Preempting(quota, holders)

    def all(self) -> Iterator[KeptPlaces]:
        """All that is kept."""
        return (claim for each in self.held.values() for claim in each)

    def keep_earlier(self, snapshot: Snapshot) -> None:
        """Keep what others were asked to vacate before; more urgent jobs that may be preempted get none of it."""
        if not snapshot.claims:
            return
        queues = {view.queue.name: view.queue for view in snapshot.queues}
        quota = self.admission.quota
        # As in the pass, jobs within their share's limits go first.
        claims = snapshot.claims if quota is None else sorted(snapshot.claims, key=quota.waits_to_borrow)
        for claim in claims:
            queue, gang = queues.get(claim.queue), claim.scheduling_class.gang
            wanted = claim.shape.resources if gang is None else needs_of(gang)
            of_queue = queue.environments if queue is not None else ()
            names = takers(snapshot, of_queue, wanted, claim.shape.market)
            for _ in range(claim.count):
                if self.preempting is not None and not self.preempting.gate.will_admit(claim):
                    break  # Limits have changed since, or others hold what it would need.
                if not self._kept_again(claim, names):
                    self.pledge(claim)  # The room may be free by then, and its quota must be, too.
                    self._roomless[group_key(claim)] += 1

    def _kept_again(self, claim: Claim, names: tuple[EnvironmentName, ...]) -> bool:
        """Keep a place that others were asked to vacate: there if possible, and for a quota wherever there is room."""
        if claim.scheduling_class.gang is not None:
            # First without counting on attempts that were asked after those that leave for it.
            return any(
                self.claim(claim.job_id, claim, names, ask=False, by=by) is not None
                for by in dict.fromkeys((claim.expected_at, None))
            )
        rooms = self.rooms(claim, names)
        there = [room for room in rooms if room.machine.view.id == claim.machine]
        if self.claim_one_of(claim.job_id, claim, there, ask=False) is not None:
            return True
        by_quota = self.preempting is not None and claim.queue in self.preempting.gate.now
        return by_quota and self.claim_one_of(claim.job_id, claim, rooms, ask=False) is not None

    def rooms(self, asking: InQueue, names: Iterable[EnvironmentName]) -> list[Room]:
        """The machines where others could be asked to vacate places for such jobs."""
        if self.preempting is not None and asking.queue in self.preempting.gate.now:
            return [room for name in names for room in self.floor.rooms.get(name, ())]
        return [room for name in names for room in self.floor.claimable.get(name, ())]

    def may_ask(self, asking: InQueue) -> bool:
        """Whether such jobs could preempt others of their own queue."""
        terms = self._terms(asking)
        return terms is not None and terms.may_ask

    def claim(
        self,
        job_id: JobId,
        asking: InQueue,
        names: Iterable[EnvironmentName],
        *,
        ask: bool,
        by: int | None = None,
    ) -> KeptPlaces | None:
        """Keep for a job what others vacate, asking some to leave if that is allowed and helps.

        With `by`, a multi-node job counts only on what is left by then.
        """
        gang = asking.scheduling_class.gang
        if gang is None:
            return self.claim_one_of(job_id, asking, self.rooms(asking, names), ask=ask)
        terms, horizon = self._terms(asking) if ask else None, replace(self._horizon, at=by)
        offers = [self._offer_all(name, asking, gang, terms, horizon, ask=ask) for name in names]
        # Of environments at equal cost, the first.
        best = min(
            (offer for offer in offers if offer is not None),
            key=lambda offer: cost_of(offer.asked),
            default=None,
        )
        return None if best is None else self._take(job_id, asking, best)

    def claim_one_of(
        self, job_id: JobId, asking: InQueue, rooms: Iterable[Room], *, ask: bool
    ) -> KeptPlaces | None:
        """The same for one place in these rooms."""
        terms = self._terms(asking) if ask else None
        offers = [self._offer(room, asking, terms, ask=ask) for room in rooms]
        best = min(
            (offer for offer in offers if offer is not None), key=lambda offer: offer.rank, default=None
        )
        return None if best is None else self._take(job_id, asking, best)

    def count(self, asking: InQueue) -> int:
        """How many jobs of this group have something kept."""
        return len(self.held.get(group_key(asking), ()))

    def give_up(self, asking: InQueue, first: int = 0) -> None:
        """Keep nothing for these jobs any more, except for the first ones: neither room nor what is pledged to them."""
        self.lift(asking, first)
        roomless = self._roomless.pop(group_key(asking), 0)
        self.pledge(asking, -max(0, roomless - max(0, first - self.count(asking))))

    def lift(self, asking: InQueue, first: int = 0) -> list[KeptPlaces]:
        """Stop keeping the places of these jobs, except for the first ones, so that they can be taken."""
        claims = self.held.get(group_key(asking), [])
        lifted = claims[first:]
        del claims[first:]
        for claim in lifted:
            for place in claim.places:
                lift(place)
        self.pledge(asking, -len(lifted))
        return lifted

    def restore(self, asking: InQueue, lifted: Iterable[KeptPlaces]) -> None:
        """Keep again what was lifted, with nothing taken in between."""
        for claim in lifted:
            self._horizon.keep(claim.job_id, claim.places, (), claim.expected_at)
            self.held.setdefault(group_key(asking), []).append(claim)
            self.pledge(asking)

    def pledge(self, asking: InQueue, count: int = 1) -> None:
        """Keep from others what these jobs will hold of their quota, and their tokens."""
        self.admission.pledge(asking, count)

    def _terms(self, asking: InQueue) -> Terms | None:
        return None if self.preempting is None else self.preempting.terms(asking)

    def _offer(self, room: Room, asking: InQueue, terms: Terms | None, *, ask: bool) -> _Offer | None:
        machine, shape, wanted = room.machine, asking.shape, asking.shape.resources
        guard = machine.guard
        if not room.could_ever_hold(shape) or (guard is not None and not guard.claims):
            return None
        exact = matters_which(room, shape)
        own = self._horizon.own(room, exact=exact)
        if terms is None and not wanted.fits_in(own):
            return None  # Its own environment's claim is used up: no other attempt helps by leaving.
        needed = None
        if exact:
            reserved = guard.kept if guard is not None else NONE_KEPT
            needed = NeededDevices(shape, self._horizon.devices(machine), reserved)
        on_machine = Need(wanted - self._horizon.shared(room, exact=exact), needed)
        need = PlaceNeed(room, wanted - own, on_machine, terms, self._horizon.holders)
        chosen: tuple[EvictionSet, ...] | None = ()
        if not need.met_by(()):
            chosen = least_loss(need, self._candidates((room,), asking.queue)) if ask else None
        if chosen is None:
            return None
        gpu_ids = None if needed is None else needed.after(need.on_machine(members_of(chosen)))
        return _Offer((KeptPlace(room, shape, gpu_ids or ()),), chosen)

    def _offer_all(
        self,
        name: EnvironmentName,
        asking: InQueue,
        gang: Gang,
        terms: Terms | None,
        horizon: Horizon,
        *,
        ask: bool,
    ) -> _Offer | None:
        """The same for all nodes of a gang, in one environment."""
        if not self.rooms(asking, (name,)):
            return None
        rooms = self.floor.rooms.get(name, ())
        others = self._candidates(rooms, asking.queue) if ask else []
        askable = [*others, *((*terms.borrowers, *terms.less_urgent) if terms is not None else ())]
        need = GangNeed(ProjectedCapacity(horizon, rooms, gang, list(members_of(askable))), terms)
        chosen = gang_victims.least_loss(need, others)
        if chosen is None:
            return None
        return _Offer(
            tuple(KeptPlace(seat.room, seat.shape, seat.gpu_ids) for seat in need.seats(chosen)), chosen
        )

    def _candidates(self, rooms: Iterable[Room], queue: QueueName) -> list[EvictionSet]:
        """Which attempts may be asked, quotas aside; never those of the same queue, which came first."""
        machines = {id(room.machine): room.machine for room in rooms if not room.reclaimable}
        return self._horizon.holders.eviction_sets(
            release
            for machine in machines.values()
            if machine.lends
            for other in machine.rooms
            for release in other.view.releases
            if release.reclaimable and release.queue != queue
        )

    def _take(self, job_id: JobId, asking: InQueue, offer: _Offer) -> KeptPlaces:
        now, holders = self.floor.now, self._horizon.holders
        machines = {id(place.room.machine): place.room.machine for place in offer.places}
        victims = list(members_of(offer.asked))
        if victims:
            leaving, expected_at = victims, now + self.notice_ms
        else:
            rooms = (room for machine in machines.values() for room in machine.rooms)
            coming = list(self._horizon.coming(rooms))
            leaving = [release for release in coming if release.leaving]
            expected_at = max((release.at or now for release in leaving or coming), default=now)
        claim = KeptPlaces(job_id, offer.places, max(expected_at, now), tuple(leaving), bool(victims))
        self._horizon.keep(job_id, offer.places, victims, claim.expected_at)
        self.held.setdefault(group_key(asking), []).append(claim)
        holders.asked.update(release.token for release in victims)
        self._ask(job_id, asking, offer, set(machines))
        if self.preempting is not None:
            for release in victims:
                self.preempting.left(release, asking.queue)
        self.pledge(asking)
        return claim

    def _ask(self, job_id: JobId, asking: InQueue, offer: _Offer, machines: set[int]) -> None:
        """Ask one attempt of each set: on a machine that the job gets, if there is one, and those first."""
        room_of = self._horizon.holders.room_of

        def elsewhere(release: Release) -> bool:
            return id(room_of(release).machine) not in machines

        triggers = [min(eviction_set.triggers, key=elsewhere) for eviction_set in offer.asked]
        for number, release in enumerate(sorted(triggers, key=elsewhere)):
            if release.token is not None:
                preemption = preemption_of(release, asking)
                # One attempt stands for a place; those that give back only a quota may be anywhere.
                beside = preemption is not None and number > 0 and asking.scheduling_class.gang is None
                self.reclaims.append(
                    Reclaim(release.token, room_of(release).view.id, job_id, preemption, beside)
                )
