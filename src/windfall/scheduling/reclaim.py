"""Whom a job takes its place back from: the least loss first, no more than needed, and never in vain.

Reclaimable attempts run on what nobody with a claim of his own wants now. When a job on demand finds no place on a
machine, those are asked to leave whose going costs least and lets it start; until they have left, what they free is
kept for it. In queues with quota shares it depends on who asks whom he may ask (preempting.py). Attempts that leave
already, or surely end before a notice would be over, are counted first. Must not know how the loss was worked out, nor
who gets his turn when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from windfall.jobs.ids import AttemptToken, EnvironmentName, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.devices import NONE_KEPT, Devices
from windfall.scheduling.fit import Floor, Guard, MachineRoom, Room, takers
from windfall.scheduling.preempting import PlaceNeed, Preempting, Terms, least_loss, preemption_of
from windfall.scheduling.quota_gate import InQueue, Kin, kin_of
from windfall.scheduling.reserve import unbounded_gpus
from windfall.scheduling.snapshot import Reclaim, Release, Reservation, Shape, Snapshot
from windfall.scheduling.victims import Need, NeededDevices, freed_by, victims

#: So many places at most are taken back in one tick; the next one goes on.
MOST_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Held:
    """A place that is kept for a job while others leave it."""

    room: Room
    shape: Shape
    reservation: Reservation
    #: Who leaves: those that are asked now, or those that have been asked before.
    leaving: tuple[Release, ...]
    #: Whether they are asked only now.
    asked_now: bool
    #: The devices that are kept for it, where it matters which.
    gpu_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a place would cost."""

    room: Room
    #: What the machine and the instance will have by then, without those who would have to be asked.
    shared: Resources
    own: Resources
    asked: tuple[Release, ...]
    gpu_ids: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[float, int, int]:
        return (sum(release.loss for release in self.asked), len(self.asked), self.room.position)


@dataclass(slots=True)
class Claims:
    """The places that are being made free, and for whom, while a plan is made."""

    floor: Floor
    notice_ms: int
    #: For queues with quota shares.
    preempting: Preempting | None = None
    #: By queue, shape and standing: jobs that are alike take such places in their order, whoever they were freed for.
    held: dict[Kin, list[Held]] = field(default_factory=dict)
    reclaims: list[Reclaim] = field(default_factory=list)
    _asked: set[AttemptToken] = field(default_factory=set)
    #: Of a quota that others give back, what is kept for jobs that have no room kept.
    _roomless: Counter[Kin] = field(default_factory=Counter)

    def keep_earlier(self, snapshot: Snapshot) -> None:
        """Keep what others were asked to leave before; more urgent jobs that may be asked themselves get none of it."""
        if not snapshot.claims:
            return
        queues = {view.queue.name: view.queue for view in snapshot.queues}
        for claim in snapshot.claims:
            queue = queues.get(claim.queue)
            names = takers(snapshot, queue.environments if queue is not None else (), claim.shape.resources)
            rooms = [room for room in self.rooms(claim, names) if room.machine.view.id == claim.machine]
            elsewhere = self.rooms(claim, names) if claim.queue in snapshot.quotas else ()
            for _ in range(claim.count):
                if self.preempting is not None and not self.preempting.gate.will_admit(claim):
                    break  # Limits have changed since, or others hold what it would need.
                held = self.claim(claim.job_id, claim, rooms, ask=False)
                if held is None and self.claim(claim.job_id, claim, elsewhere, ask=False) is None:
                    self.pledge(claim)  # The room may be free by then, and its quota must be, too.
                    self._roomless[kin_of(claim)] += 1

    def rooms(self, asking: InQueue, names: Iterable[EnvironmentName]) -> list[Room]:
        """Where others could be asked to leave their places to such jobs."""
        if self.preempting is not None and asking.queue in self.preempting.gate.now:
            return [room for name in names for room in self.floor.rooms.get(name, ())]
        return [room for name in names for room in self.floor.claimable.get(name, ())]

    def may_ask(self, asking: InQueue) -> bool:
        """Whether such jobs could ask others of their own queue to leave."""
        terms = self._terms(asking)
        return terms is not None and terms.may_ask

    def claim(self, job_id: JobId, asking: InQueue, rooms: Iterable[Room], *, ask: bool) -> Held | None:
        """Keep a place for a job that others leave, asking some to do so if that is allowed and helps."""
        best: _Offer | None = None
        terms = self._terms(asking) if ask else None
        for room in rooms:
            found = self._offer(room, asking, terms, ask=ask)
            if found is not None and (best is None or found.rank < best.rank):
                best = found
        return None if best is None else self._take(job_id, asking, best)

    def count(self, asking: InQueue) -> int:
        """How many places are kept for such jobs."""
        return len(self.held.get(kin_of(asking), ()))

    def give_up(self, asking: InQueue, first: int = 0) -> None:
        """Keep nothing for such jobs any more, but for the first so many: neither room nor what is pledged to them."""
        self.lift(asking, first)
        roomless = self._roomless.pop(kin_of(asking), 0)
        self.pledge(asking, -max(0, roomless - max(0, first - self.count(asking))))

    def lift(self, asking: InQueue, first: int = 0) -> list[Held]:
        """Stop keeping the places of such jobs, but for the first so many, so that they can be taken."""
        kept = self.held.get(kin_of(asking), [])
        lifted = kept[first:]
        del kept[first:]
        for held in lifted:
            guard = held.room.machine.guard
            assert guard is not None, "a place is kept on a machine that has no guard"
            guard.keep(held.room, Resources(0, 0, 0) - held.shape.resources)
            keep_devices(guard, held.gpu_ids, -_part_of(held.shape))
            guard.claims -= 1
            if not guard.claims:
                held.room.machine.guard = None
        self.pledge(asking, -len(lifted))
        return lifted

    def pledge(self, asking: InQueue, count: int = 1) -> None:
        """Keep what so many such jobs will hold of their quota from others."""
        if self.preempting is not None:
            self.preempting.gate.pledge(asking, count)

    def _terms(self, asking: InQueue) -> Terms | None:
        return None if self.preempting is None else self.preempting.terms(asking, self._asked)

    def _coming(self, rooms: Iterable[Room]) -> Iterator[Release]:
        """What is given back before a notice that is given now is over."""
        latest = self.floor.now + self.notice_ms
        return (
            release
            for room in rooms
            for release in room.view.releases
            if release.leaving or (release.at is not None and release.at <= latest)
        )

    def _offer(self, room: Room, asking: InQueue, terms: Terms | None, *, ask: bool) -> _Offer | None:
        machine, shape, wanted = room.machine, asking.shape, asking.shape.resources
        guard = machine.guard
        if not room.could_ever_hold(shape) or (guard is not None and not guard.claims):
            return None
        devices = self._devices(machine) if wanted.gpus and not machine.devices.alike else None
        own = guard.beside.get(room.view.id) if guard is not None else None
        if own is None:
            own = _sum(room.own, self._coming((room,)))
            own = own if devices is None else unbounded_gpus(room, own)
        if terms is None and not wanted.fits_in(own):
            return None  # Its own environment uses up its claim: nobody else could help by leaving.
        if guard is not None:
            shared = guard.beside_on_machine
        else:
            shared = _sum(machine.free, self._coming(machine.rooms))
            shared = shared if devices is None else unbounded_gpus(room, shared)
        needed = None
        if devices is not None:
            needed = NeededDevices(shape, devices, guard.kept if guard is not None else NONE_KEPT)
        need = Need(wanted - shared, needed)
        candidates = self._candidates(room, asking.queue) if ask else []
        if terms is None:
            chosen = () if need.met_by(()) else victims(need, candidates) if ask else None
            leave_here: Iterable[Release] = chosen or ()
        else:
            place = self._place_need(room, wanted - own, need, terms, candidates)
            chosen = () if place.met_by(()) else least_loss(place, candidates)
            leave_here = place.on_machine(chosen or ())
        if chosen is None:
            return None
        return _Offer(
            room, shared, own, chosen, (needed.after(leave_here) or ()) if needed is not None else ()
        )

    def _place_need(
        self, room: Room, own: Resources, need: Need, terms: Terms, candidates: list[Release]
    ) -> PlaceNeed:
        assert self.preempting is not None, "there are terms where there are quotas"
        where = self.preempting.where
        if candidates:
            where = where | {one.token: self._where(one, room.machine) for one in candidates}
        return PlaceNeed(room, own, need, terms, where)

    def _devices(self, machine: MachineRoom) -> Devices:
        """The devices of a machine when all have left who end soon, leave already, or were asked to in this plan."""
        devices = machine.devices.copy()
        coming = list(self._coming(machine.rooms))
        known = {release.token for release in coming}
        asked = [
            release
            for room in machine.rooms
            for release in room.view.releases
            if release.token in self._asked and release.token not in known
        ]
        for release in (*coming, *asked):
            devices.give_back(release.resources.gpus, release.gpu_ids)
        return devices

    def _candidates(self, room: Room, queue: QueueName) -> list[Release]:
        """Who may be asked, quotas apart. Not those of the same queue: they came first, and would ask in turn."""
        machine = room.machine
        if room.reclaimable or not machine.lends:
            return []
        coming = {release.token for release in self._coming(machine.rooms)}
        return [
            release
            for other in machine.rooms
            for release in other.view.releases
            if release.reclaimable
            and release.queue != queue
            and release.token not in self._asked
            and release.token not in coming
        ]

    def _take(self, job_id: JobId, asking: InQueue, offer: _Offer) -> Held:
        room, machine, now, shape = offer.room, offer.room.machine, self.floor.now, asking.shape
        if offer.asked:
            leaving, expected_at = offer.asked, now + self.notice_ms
        else:
            coming = list(self._coming(machine.rooms))
            leaving = tuple(release for release in coming if release.leaving)
            expected_at = max((release.at or now for release in leaving or coming), default=now)
        expected_at = max(expected_at, now)
        guard = machine.guard
        if guard is None:
            guard = machine.guard = Guard(job_id, room, expected_at, {}, offer.shared)
        where = {one.token: self._where(one, machine) for one in offer.asked}
        in_room = [one for one in offer.asked if where[one.token] is room]
        # Those of other environments free nothing of what the instance itself has.
        guard.beside.setdefault(room.view.id, offer.own)
        guard.beside[room.view.id] = _sum(guard.beside[room.view.id], in_room)
        on_machine = [one for one in offer.asked if where[one.token].machine is machine]
        guard.beside_on_machine = _sum(guard.beside_on_machine, on_machine)
        guard.keep(room, shape.resources)
        keep_devices(guard, offer.gpu_ids, _part_of(shape))
        guard.claims += 1
        guard.expected_at = min(guard.expected_at or expected_at, expected_at)
        reservation = Reservation(job_id, room.view.id, expected_at)
        held = Held(room, shape, reservation, leaving, bool(offer.asked), offer.gpu_ids)
        self.held.setdefault(kin_of(asking), []).append(held)
        # One on the machine stands for the place; those who give back nothing but a quota may be anywhere.
        for number, one in enumerate(
            sorted(offer.asked, key=lambda one: where[one.token].machine is not machine)
        ):
            if one.token is not None:
                self._asked.add(one.token)
                place, preemption = where[one.token].view.id, preemption_of(one, asking)
                beside = preemption is not None and number > 0
                self.reclaims.append(Reclaim(one.token, place, job_id, preemption, beside))
                if self.preempting is not None:
                    self.preempting.left(one, asking.queue)
        self.pledge(asking)
        return held

    def _where(self, release: Release, machine: MachineRoom) -> Room:
        """The room of one who is asked to leave."""
        if self.preempting is not None and release.token in self.preempting.where:
            return self.preempting.where[release.token]
        return next(
            room for room in machine.rooms if any(one.token == release.token for one in room.view.releases)
        )


def keep_devices(guard: Guard, gpu_ids: Iterable[str], part: float) -> None:
    """Keep so much more of these devices, or less if it is below 0."""
    for gpu_id in gpu_ids:
        left = guard.kept.pop(gpu_id, 0) + part
        if left > 0:
            guard.kept[gpu_id] = left


def _part_of(shape: Shape) -> float:
    """How much of each of its devices a job has."""
    return min(1, shape.resources.gpus)


def _sum(amount: Resources, releases: Iterable[Release]) -> Resources:
    return amount + freed_by(releases)
