"""Whom a job on demand takes its place back from: the least loss first, no more than needed, and never in vain.

Reclaimable attempts run on what nobody with a claim of his own wants now. When such a job finds no place on a machine,
those are asked to leave whose going costs least and lets it start; until they have left, what they free is kept for it.
Attempts that leave already, or surely end before a notice would be over, are counted first. Must not know how the loss
was worked out, nor who gets his turn when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from windfall.jobs.ids import AttemptToken, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.devices import NONE_KEPT, Devices
from windfall.scheduling.fit import Floor, Guard, MachineRoom, Room, takers
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
    #: By queue and shape: jobs that are alike take such places in their order, whoever they were freed for.
    held: dict[tuple[QueueName, Shape], list[Held]] = field(default_factory=dict)
    reclaims: list[Reclaim] = field(default_factory=list)
    _asked: set[AttemptToken] = field(default_factory=set)

    def keep_earlier(self, snapshot: Snapshot) -> None:
        """Keep what others were asked to leave before; more urgent jobs that may be asked themselves get none of it."""
        if not snapshot.claims:
            return
        queues = {view.queue.name: view.queue for view in snapshot.queues}
        for claim in snapshot.claims:
            queue = queues.get(claim.queue)
            names = queue.environments if queue is not None else ()
            rooms = [
                room
                for name in takers(snapshot, names, claim.shape.resources)
                for room in self.floor.claimable.get(name, ())
                if room.machine.view.id == claim.machine
            ]
            for _ in range(claim.count):
                if self.claim(claim.job_id, claim.queue, claim.shape, rooms, ask=False) is None:
                    break

    def claim(
        self, job_id: JobId, queue: QueueName, shape: Shape, rooms: Iterable[Room], *, ask: bool
    ) -> Held | None:
        """Keep a place for a job that others leave, asking some to do so if that is allowed and helps."""
        best: _Offer | None = None
        for room in rooms:
            found = self._offer(room, queue, shape, ask=ask)
            if found is not None and (best is None or found.rank < best.rank):
                best = found
        return None if best is None else self._take(job_id, queue, shape, best)

    def count(self, queue: QueueName, shape: Shape) -> int:
        """How many places are kept for such jobs."""
        return len(self.held.get((queue, shape), ()))

    def lift(self, queue: QueueName, shape: Shape, first: int = 0) -> list[Held]:
        """Stop keeping the places of such jobs, but for the first so many, so that they can be taken."""
        kept = self.held.get((queue, shape), [])
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
        return lifted

    def _coming(self, rooms: Iterable[Room]) -> Iterator[Release]:
        """What is given back before a notice that is given now is over."""
        latest = self.floor.now + self.notice_ms
        return (
            release
            for room in rooms
            for release in room.view.releases
            if release.leaving or (release.at is not None and release.at <= latest)
        )

    def _offer(self, room: Room, queue: QueueName, shape: Shape, *, ask: bool) -> _Offer | None:
        machine, wanted = room.machine, shape.resources
        guard = machine.guard
        if not room.could_ever_hold(shape) or (guard is not None and not guard.claims):
            return None
        devices = self._devices(machine) if wanted.gpus and not machine.devices.alike else None
        own = guard.beside.get(room.view.id) if guard is not None else None
        if own is None:
            own = _sum(room.own, self._coming((room,)))
            own = own if devices is None else unbounded_gpus(room, own)
        if not wanted.fits_in(own):
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
        if need.met_by(()):
            chosen: tuple[Release, ...] | None = ()
        else:
            chosen = victims(need, self._candidates(machine, queue)) if ask else None
        if chosen is None:
            return None
        return _Offer(room, shared, own, chosen, (needed.after(chosen) or ()) if needed is not None else ())

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

    def _candidates(self, machine: MachineRoom, queue: QueueName) -> list[Release]:
        """Who may be asked. Not those of the same queue: they came first, and would ask in turn."""
        coming = {release.token for release in self._coming(machine.rooms)}
        return [
            release
            for room in machine.rooms
            for release in room.view.releases
            if release.reclaimable
            and release.queue != queue
            and release.token not in self._asked
            and release.token not in coming
        ]

    def _take(self, job_id: JobId, queue: QueueName, shape: Shape, offer: _Offer) -> Held:
        room, machine, now = offer.room, offer.room.machine, self.floor.now
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
        guard.beside.setdefault(room.view.id, offer.own)
        guard.beside_on_machine = _sum(guard.beside_on_machine, offer.asked)
        guard.keep(room, shape.resources)
        keep_devices(guard, offer.gpu_ids, _part_of(shape))
        guard.claims += 1
        guard.expected_at = min(guard.expected_at or expected_at, expected_at)
        reservation = Reservation(job_id, room.view.id, expected_at)
        held = Held(room, shape, reservation, leaving, bool(offer.asked), offer.gpu_ids)
        self.held.setdefault((queue, shape), []).append(held)
        for other in machine.rooms:
            self.reclaims += [
                Reclaim(release.token, other.view.id, job_id)
                for release in other.view.releases
                if release.token is not None and release.token in {one.token for one in offer.asked}
            ]
        self._asked.update(release.token for release in offer.asked if release.token is not None)
        return held


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
