"""Where a job that was passed over too long gets its place, when, and what others may still do there.

A reservation is made anew in every pass, from the snapshot alone. It moves only if the job gains by it: the
guard admits no job that would make the wait longer, so the chosen place is at least as good in the next pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from operator import itemgetter

from windfall.capacity.gpu_sets import suited
from windfall.jobs.ids import JobId
from windfall.jobs.resources import Resources
from windfall.scheduling.devices import Devices
from windfall.scheduling.fit import Guard, MachineRoom, Room
from windfall.scheduling.snapshot import Shape


@dataclass(frozen=True, slots=True)
class Prospect:
    """When a room can take a job: at a time, or once something without a time limit has ended."""

    room: Room
    expected_at: int | None
    #: What must still be given back: GPUs, vCPUs, MiB.
    missing: tuple[float, float, int]

    @property
    def rank(self) -> tuple[int, int, tuple[float, float, int], int]:
        """Known times before unknown ones, soonest first; then the least that is missing; then the first."""
        has_time = self.expected_at is not None
        return (0 if has_time else 1, self.expected_at or 0, self.missing, self.room.position)


#: When, how much and which devices are given back, and where. A plain tuple: thousands are made in a pass.
Ending = tuple[int, Resources, tuple[str, ...], Room]


def missing_in(room: Room, shape: Shape) -> tuple[float, float, int]:
    """What the room lacks for a job now: GPUs that it can use, vCPUs, MiB."""
    free, wanted = room.free_for(shape), shape.resources
    return (
        max(0, wanted.gpus - free.gpus),
        max(0, wanted.vcpus - free.vcpus),
        max(0, wanted.memory_mib - free.memory_mib),
    )


def _endings(machine: MachineRoom, now: int, until: float) -> list[Ending]:
    """What is given back on a machine at a known time, soonest first, including starts of this plan."""
    timed = [
        (at, release.resources, release.gpu_ids, room)
        for room in machine.rooms
        for release in room.view.releases
        if release.at is not None and (at := max(release.at, now)) <= until
    ]
    timed += [
        (at, shape.resources, gpu_ids, room)
        for room in machine.rooms
        for shape, gpu_ids in room.started
        if shape.timeout_s is not None and (at := now + shape.timeout_s * 1000) <= until
    ]
    return sorted(timed, key=itemgetter(0))


class _Outlook:
    """What a room and its machine have as time passes and attempts end."""

    __slots__ = ("devices", "own", "room", "shape", "shared")

    def __init__(self, room: Room, shape: Shape) -> None:
        machine = room.machine
        self.room, self.shape = room, shape
        self.own, self.shared = room.own, machine.free
        #: Tracked only where particular devices matter.
        self.devices: Devices | None = None
        if shape.resources.gpus and not machine.devices.interchangeable:
            self.devices = machine.devices.copy()

    def after(self, ending: Ending) -> None:
        _, amount, gpu_ids, where = ending
        self.shared = self.shared + amount
        if where is self.room:
            self.own = self.own + amount
        if self.devices is not None and gpu_ids:
            self.devices.give_back(amount.gpus, gpu_ids)

    @property
    def holds(self) -> bool:
        wanted = self.shape.resources
        return (
            wanted.fits_in(self.own)
            and wanted.fits_in(self.shared)
            and (self.devices is None or self.devices.usable(self.shape) >= wanted.gpus)
        )


def prospect(room: Room, shape: Shape, now: int, until: float = inf) -> Prospect | None:
    """When the room can take the job, if it ever can; a time after `until` counts as unknown.

    Ignores reservations of others. A place whose missing device is fenced is not worth waiting for.
    """
    if not room.could_ever_hold(shape) or lacks_fenced(room, shape):
        return None
    outlook = _Outlook(room, shape)
    expected_at = now if outlook.holds else None
    if expected_at is None:
        for ending in _endings(room.machine, now, until):
            outlook.after(ending)
            if outlook.holds:
                expected_at = ending[0]
                break
    return Prospect(room, expected_at, missing_in(room, shape))


def lacks_fenced(room: Room, shape: Shape) -> bool:
    """Whether a job could not have its GPUs there until some are no longer fenced."""
    devices = room.machine.view.devices
    if not devices.fenced or not shape.resources.gpus:
        return False
    well = (devices.by_id[gpu_id] for gpu_id in devices.ids)
    return suited(well, shape.gpu_wish) < shape.resources.gpus


def soonest(rooms: Iterable[Room], shape: Shape, now: int) -> Prospect | None:
    """The unreserved room that can take the job first."""
    best: Prospect | None = None
    for room in rooms:
        if room.machine.guard is None:
            # It does not matter how much later than the best one another room would be.
            until = inf if best is None or best.expected_at is None else best.expected_at
            candidate = prospect(room, shape, now, until)
            if candidate is not None and (best is None or candidate.rank < best.rank):
                best = candidate
    return best


def guard_for(job_id: JobId, chosen: Prospect, shape: Shape, now: int) -> Guard:
    """The guard that keeps a chosen room for a job."""
    room, wanted = chosen.room, shape.resources
    outlook = _Outlook(room, shape)
    if chosen.expected_at is not None:
        for ending in _endings(room.machine, now, chosen.expected_at):
            outlook.after(ending)
    own, shared, reserved = outlook.own, outlook.shared, {}
    if outlook.devices is not None:
        reserved = _devices_kept(outlook.devices, shape)
        own, shared = unbounded_gpus(room, own), unbounded_gpus(room, shared)
    # Without a known time, others may take only what the job does not lack: everything given back is kept.
    # With one, all that is free beside the job at that moment is available until then and beyond.
    beside = {room.view.id: _above(own, wanted)}
    return Guard(job_id, room, chosen.expected_at, beside, _above(shared, wanted), kept=reserved)


def unbounded_gpus(room: Room, amount: Resources) -> Resources:
    """The same with all GPUs of the machine: where particular devices are kept, their number does not limit others."""
    gpus = room.machine.view.total.gpus
    return replace(amount, gpus=gpus) if room.view.total.gpus >= gpus else amount


def _devices_kept(devices: Devices, shape: Shape) -> dict[str, float]:
    """The devices that a job is to have; while it lacks some, all candidates."""
    gpu_ids = devices.find(shape)
    if gpu_ids is not None:
        return dict.fromkeys(gpu_ids, shape.resources.gpus if shape.is_part else 1.0)
    return dict.fromkeys(devices.candidates(shape), 1.0)


def _above(amount: Resources, wanted: Resources) -> Resources:
    left = amount - wanted
    return Resources(max(0, left.vcpus), max(0, left.memory_mib), max(0, left.gpus))
