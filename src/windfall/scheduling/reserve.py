"""Where a job that was passed over too long gets its place, when, and what others may still do there.

A reservation is made anew in every tick, from the snapshot alone. It does not wander without gain: the guard
lets nobody in who would make the wait longer, so the chosen place is at least as good in the next tick.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from operator import itemgetter

from windfall.jobs.ids import JobId
from windfall.jobs.resources import Resources
from windfall.scheduling.fit import Guard, MachineRoom, Room
from windfall.scheduling.snapshot import Release, Shape


@dataclass(frozen=True, slots=True)
class Prospect:
    """When a room can take a job: at a time, or once something without a time limit has ended."""

    room: Room
    expected_at: int | None
    #: What must still be given back: GPUs, vCPUs, MiB.
    missing: tuple[int, float, int]

    @property
    def rank(self) -> tuple[int, int, tuple[int, float, int], int]:
        """Known times before unknown ones, soonest first; then the least that is missing; then the first."""
        known = self.expected_at is not None
        return (0 if known else 1, self.expected_at or 0, self.missing, self.room.position)


def given_back(release: Release) -> Resources:
    """What a release gives back; its devices are counted once, wherever they are noted."""
    resources = release.resources
    return Resources(resources.vcpus, resources.memory_mib, max(resources.gpus, release.gpus))


def missing_in(room: Room, wanted: Resources) -> tuple[int, float, int]:
    """What the room lacks for a job now: GPUs, vCPUs, MiB."""
    free = room.free
    return (
        max(0, wanted.gpus - free.gpus),
        max(0, wanted.vcpus - free.vcpus),
        max(0, wanted.memory_mib - free.memory_mib),
    )


def _timed_releases(machine: MachineRoom, now: int, until: float) -> list[tuple[int, Resources, Room]]:
    """What is given back on a machine at a known time, soonest first, starts of this plan included."""
    timed = [
        (at, given_back(release), room)
        for room in machine.rooms
        for release in room.view.releases
        if release.at is not None and (at := max(release.at, now)) <= until
    ]
    timed += [
        (at, shape.resources, room)
        for room in machine.rooms
        for shape in room.started
        if shape.timeout_s is not None and (at := now + shape.timeout_s * 1000) <= until
    ]
    return sorted(timed, key=itemgetter(0))


def prospect(room: Room, shape: Shape, now: int, until: float = inf) -> Prospect | None:
    """When the room can take the job, if it ever can; a time after `until` counts as unknown.

    Reservations of others are not looked at.
    """
    if not room.could_ever_hold(shape):
        return None
    wanted = shape.resources
    own, shared = room.own, room.machine.free
    expected_at = now if wanted.fits_in(own) and wanted.fits_in(shared) else None
    if expected_at is None:
        for at, amount, holder in _timed_releases(room.machine, now, until):
            shared = shared + amount
            if holder is room:
                own = own + amount
            if wanted.fits_in(own) and wanted.fits_in(shared):
                expected_at = at
                break
    return Prospect(room, expected_at, missing_in(room, wanted))


def soonest(rooms: Iterable[Room], shape: Shape, now: int) -> Prospect | None:
    """The unreserved room that can take the job first."""
    best: Prospect | None = None
    for room in rooms:
        if room.machine.guard is None:
            # Nobody needs to know how much later than the best one another room would be.
            until = inf if best is None or best.expected_at is None else best.expected_at
            found = prospect(room, shape, now, until)
            if found is not None and (best is None or found.rank < best.rank):
                best = found
    return best


def guard_for(job_id: JobId, chosen: Prospect, wanted: Resources, now: int) -> Guard:
    """The guard that keeps a chosen room for a job."""
    room = chosen.room
    own, shared = room.own, room.machine.free
    if chosen.expected_at is not None:
        for _, amount, holder in _timed_releases(room.machine, now, chosen.expected_at):
            shared = shared + amount
            own = own + amount if holder is room else own
    # Without a known time nothing may be taken of which the job still lacks something: whatever is given back
    # is kept. With one, all that is free beside the job at that moment can be had until then and beyond.
    beside = {room.view.id: _above(own, wanted)}
    return Guard(job_id, room, chosen.expected_at, beside, _above(shared, wanted))


def _above(amount: Resources, wanted: Resources) -> Resources:
    left = amount - wanted
    return Resources(max(0, left.vcpus), max(0, left.memory_mib), max(0, left.gpus))
