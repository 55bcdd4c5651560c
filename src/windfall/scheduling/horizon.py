"""What machines and rooms will have when a notice that is given now is over, and how places there are kept until then.

Counts attempts that are leaving, attempts that surely end by then, and what is kept for others. Must not know
which attempts are asked to leave, nor why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from windfall.jobs.ids import JobId
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.devices import Devices
from windfall.scheduling.eviction_sets import Holders
from windfall.scheduling.fit import Guard, MachineRoom, Room
from windfall.scheduling.reserve import unbounded_gpus
from windfall.scheduling.snapshot import Release, Reservation, Shape
from windfall.scheduling.victims import freed_by


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """Room for one job, or for one node."""

    room: Room
    shape: Shape
    #: The devices that are kept for it, where particular ones matter.
    gpu_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """What is kept for a job while others vacate it: a place, or one for each node."""

    job_id: JobId
    places: tuple[KeptPlace, ...]
    #: The latest time at which it has them.
    expected_at: int
    #: The attempts that leave: asked now, or asked before.
    leaving: tuple[Release, ...]
    #: Whether they are asked only now.
    asked_now: bool

    @property
    def reservations(self) -> list[Reservation]:
        """One for each instance."""
        instances = dict.fromkeys(place.room.view.id for place in self.places)
        return [Reservation(self.job_id, instance, self.expected_at) for instance in instances]


@dataclass(slots=True)
class Horizon:
    """The time when a notice that is given now is over, or an earlier one."""

    holders: Holders
    at: int | None = None

    def coming(self, rooms: Iterable[Room]) -> Iterator[Release]:
        """What is given back by then."""
        return (release for room in rooms for release in room.view.releases if self._is_over(release))

    def _is_over(self, release: Release) -> bool:
        if self.at is None:
            return self.holders.ends_soon(release)
        return release.at is not None and release.at <= self.at

    def own(self, room: Room, *, exact: bool) -> Resources:
        """What an instance will have of its own claim; `exact` where particular GPUs matter."""
        guard = room.machine.guard
        beside = guard.beside.get(room.view.id) if guard is not None else None
        if beside is not None:
            return beside
        own = room.own + freed_by(self.coming((room,)))
        return unbounded_gpus(room, own) if exact else own

    def shared(self, room: Room, *, exact: bool) -> Resources:
        """What its machine will have."""
        machine = room.machine
        if machine.guard is not None:
            return machine.guard.beside_on_machine
        shared = machine.free + freed_by(self.coming(machine.rooms))
        return unbounded_gpus(room, shared) if exact else shared

    def devices(self, machine: MachineRoom) -> Devices:
        """The devices of a machine once all attempts have left that end soon, are leaving or were asked to."""
        devices = machine.devices.copy()
        for room in machine.rooms:
            for release in room.view.releases:
                if self._is_over(release) or (self.at is None and release.token in self.holders.asked):
                    devices.give_back(release.resources.gpus, release.gpu_ids)
        return devices

    def keep(
        self, job_id: JobId, places: Iterable[KeptPlace], leaving: Iterable[Release], expected_at: int
    ) -> None:
        """Keep the places that these attempts vacate for a job."""
        places, by_machine = tuple(places), dict[int, Guard]()
        exact = {id(place.room.machine) for place in places if matters_which(place.room, place.shape)}
        for place in places:
            room, machine = place.room, place.room.machine
            own = self.own(room, exact=id(machine) in exact)
            if machine.guard is None:
                shared = self.shared(room, exact=id(machine) in exact)
                machine.guard = Guard(job_id, room, expected_at, {}, shared)
            by_machine[id(machine)] = machine.guard
            machine.guard.beside.setdefault(room.view.id, own)
        for release in leaving:
            room = self.holders.room_of(release)
            guard = by_machine.get(id(room.machine))
            if guard is not None:
                # Attempts of other environments free nothing of the instance's own claim.
                guard.keep(room, NOTHING - release.resources)
        for place in places:
            guard = by_machine[id(place.room.machine)]
            _keep(guard, place, 1)
            guard.expected_at = min(guard.expected_at or expected_at, expected_at)


def matters_which(room: Room, shape: Shape) -> bool:
    """Whether the number of GPUs is not enough to place such a job on a machine."""
    return bool(shape.resources.gpus) and not room.machine.devices.interchangeable


def lift(place: KeptPlace) -> None:
    """Stop keeping a place."""
    guard = place.room.machine.guard
    assert guard is not None, "a place is kept on a machine that has no guard"
    _keep(guard, place, -1)
    if not guard.claims:
        place.room.machine.guard = None


def _keep(guard: Guard, place: KeptPlace, sign: int) -> None:
    wanted = place.shape.resources
    guard.keep(place.room, wanted if sign > 0 else NOTHING - wanted)
    part = min(1, wanted.gpus) * sign
    for gpu_id in place.gpu_ids:
        left = guard.kept.pop(gpu_id, 0) + part
        if left > 0:
            guard.kept[gpu_id] = left
    guard.claims += sign
