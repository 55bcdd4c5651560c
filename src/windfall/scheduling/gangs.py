"""Places for the nodes of a multi-node job: all of them in one environment, or none.

Tries with the working copies of the plan and puts back what it took if a node finds no place. The same fit
serves plan, reservations, launches and explain. Must not know dispatch order, nor what nodes run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from windfall.jobs.ids import EnvironmentName, JobId
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.fit import Floor, Places, Room
from windfall.scheduling.launchable import Pool, Pools, pack, times
from windfall.scheduling.reserve import Prospect, guard_for, prospect
from windfall.scheduling.snapshot import Gang, Launch, Shape


@dataclass(frozen=True, slots=True)
class Seat:
    """A node that has a place while a plan is made."""

    #: The node's number.
    number: int
    shape: Shape
    room: Room
    gpu_ids: tuple[str, ...]


#: Nodes that found no place: how many of which shape.
Standees = list[tuple[Shape, int]]


#: Nodes of one shape with their numbers.
Part = tuple[Shape, Sequence[int]]


def seat(
    rooms: Iterable[Room], gang: Gang, now: int, order: Sequence[Part] | None = None
) -> tuple[list[Seat], Standees]:
    """Place as many nodes as these rooms hold, the largest first; and those that found none."""
    rooms = list(rooms)
    seats: list[Seat] = []
    standees: Standees = []
    for shape, numbers in order or _largest_first(gang):
        places = Places(shape, rooms, now)
        left = list(reversed(numbers))
        while left and (room := places.tightest()) is not None:
            seats.append(Seat(left.pop(), shape, room, room.take(shape, now)))
        if left:
            standees.append((shape, len(left)))
    return seats, standees


def put_back(seats: Sequence[Seat], now: int) -> None:
    """Free the places of a gang that does not start after all."""
    for seat in reversed(seats):
        seat.room.put_back(seat.shape, seat.gpu_ids, now)


def seat_all(floor: Floor, names: Iterable[EnvironmentName], gang: Gang) -> list[Seat]:
    """Places for all nodes in the first environment that has them, the main node's first; empty if none has."""
    for name in names:
        seats = seat_in(floor.rooms.get(name, ()), gang, floor.now)
        if seats:
            return seats
    return []


def seat_in(rooms: Sequence[Room], gang: Gang, now: int) -> list[Seat]:
    """Places for all nodes in these rooms, the main node's first; empty if they do not hold all.

    Nodes of one shape find places if there are any. If shapes differ, large ones may take what others need,
    so some orders are tried; if all fail, another order might still succeed.
    """
    if not _enough(rooms, gang):
        return []
    for order in _orders(gang):
        seats, standees = seat(rooms, gang, now, order)
        if not standees:
            numbers = {number: place for place, number in enumerate(_numbers(gang))}
            return sorted(seats, key=lambda seat: numbers[seat.number])
        put_back(seats, now)
    return []


def _enough(rooms: Iterable[Room], gang: Gang) -> bool:
    """Whether the rooms have as much as all nodes need together: a quick check."""
    vcpus = gpus = 0.0
    memory_mib = 0
    wanted = needs_of(gang)
    for room in rooms:
        vcpus, memory_mib, gpus = vcpus + room.vcpus, memory_mib + room.memory_mib, gpus + room.gpus
        if vcpus >= wanted.vcpus and memory_mib >= wanted.memory_mib and gpus >= wanted.gpus:
            return True
    return False


def needs_of(gang: Gang) -> Resources:
    """What all nodes need together."""
    total = NOTHING
    for shape, count in gang.parts:
        total = total + _times(shape.resources, count)
    return total


def _numbers(gang: Gang) -> Sequence[int]:
    return gang.numbers or range(gang.size)


def _largest_first(gang: Gang) -> list[Part]:
    """Each part with its nodes' numbers; large ones first, because they do not fit into what small ones leave."""
    return _orders(gang)[0]


def _orders(gang: Gang) -> list[list[Part]]:
    """The parts with their nodes' numbers, by GPUs, by vCPUs and by memory, the largest first; equal orders once."""
    numbers, parts, first = _numbers(gang), list[Part](), 0
    for shape, count in gang.parts:
        parts.append((shape, numbers[first : first + count]))
        first += count
    orders: list[list[Part]] = []
    for size in (_by_gpus, _by_vcpus, _by_memory):
        order = sorted(parts, key=lambda part: size(part[0].resources), reverse=True)
        if order not in orders:
            orders.append(order)
    return orders


def _by_gpus(wanted: Resources) -> tuple[float, float, float]:
    return (wanted.gpus, wanted.vcpus, wanted.memory_mib)


def _by_vcpus(wanted: Resources) -> tuple[float, float, float]:
    return (wanted.vcpus, wanted.memory_mib, wanted.gpus)


def _by_memory(wanted: Resources) -> tuple[float, float, float]:
    return (wanted.memory_mib, wanted.vcpus, wanted.gpus)


def _times(amount: Resources, count: int) -> Resources:
    return Resources(amount.vcpus * count, amount.memory_mib * count, amount.gpus * count)


# Reservations -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Part:
    """Nodes of one shape for which no room is kept yet."""

    shape: Shape
    left: int


def keep_rooms(
    floor: Floor, pools: Pools, names: Iterable[EnvironmentName], gang: Gang, job_id: JobId
) -> list[Prospect]:
    """Reserve as many machines as a gang needs, those that are free soonest; none if no environment has enough.

    Instances that are being launched count while there are any: they are reserved once they are there.
    """
    for name in names:
        rooms = [room for room in floor.rooms.get(name, ()) if room.machine.guard is None]
        # A busy machine is not held back if what is free and what is launching is enough.
        for only_free in (True, False):
            prospects, left = _kept(rooms, gang, job_id, floor.now, only_free=only_free)
            coming = [replace(bin_) for bin_ in pools[name].coming]
            if all(pack(coming, shape, count) == 0 for shape, count in left):
                return prospects
            for chosen in prospects:
                chosen.room.machine.guard = None
    return []


def _kept(
    rooms: Iterable[Room], gang: Gang, job_id: JobId, now: int, *, only_free: bool
) -> tuple[list[Prospect], Standees]:
    waiting = [_Part(shape, len(numbers)) for shape, numbers in _largest_first(gang)]
    prospects = []
    for room in rooms:
        together = _together(room, waiting)
        candidate = None if together is None else prospect(room, together[0], now)
        if candidate is not None:
            prospects.append(candidate)
    reserved: list[Prospect] = []
    for chosen in sorted(prospects, key=lambda candidate: candidate.rank):
        together = _together(chosen.room, waiting)
        if together is None or chosen.room.machine.guard is not None:
            continue
        shape, taken = together
        candidate = prospect(chosen.room, shape, now)
        if candidate is None or (only_free and candidate.expected_at != now):
            continue
        chosen.room.machine.guard = guard_for(job_id, candidate, shape, now)
        reserved.append(candidate)
        for part, count in zip(waiting, taken, strict=True):
            part.left -= count
    return reserved, [(part.shape, part.left) for part in waiting if part.left]


def _together(room: Room, waiting: Iterable[_Part]) -> tuple[Shape, list[int]] | None:
    """As many of the nodes as a room could ever hold, as one shape, and how many of each part."""
    whole: Shape | None = None
    taken = []
    for part in waiting:
        fitting = 0
        while fitting < part.left:
            more = part.shape if whole is None else _both(whole, part.shape)
            if more is None or not room.could_ever_hold(more):
                break
            whole, fitting = more, fitting + 1
        taken.append(fitting)
    return None if whole is None else (whole, taken)


def _both(first: Shape, second: Shape) -> Shape | None:
    """Two nodes on one machine as one shape, unless they require different types or devices."""
    if first.instance_type != second.instance_type or first.needs != second.needs:
        return None
    wish = first.gpu_wish if first.resources.gpus else second.gpu_wish
    if first.resources.gpus and second.resources.gpus and first.gpu_wish != second.gpu_wish:
        return None
    return replace(first, resources=first.resources + second.resources, gpu_wish=wish)


# Launches ---------------------------------------------------------------------------------------------------------


def launch_into(pool: Pool, shape: Shape, jobs: int) -> tuple[list[Launch], int]:
    """Instances of one environment for this many jobs beyond what is launching; and how many jobs get none."""
    launched: list[Launch] = []
    while jobs:
        index = next((choice for choice in pool.choices(shape, jobs) if pool.launchable(choice, 1)), None)
        if index is None:
            break
        offer = pool.view.offers[index]
        each = times(shape, offer.resources)
        # The instances that are filled. For the rest another type may be the best.
        count = pool.launchable(index, max(1, jobs // each) if each else 1)
        pool.launch(index, count)
        jobs = pack(pool.coming, shape, jobs)
        launched += [Launch(pool.view.environment.name, offer)] * count
    return launched, jobs


def copy_of(pool: Pool) -> Pool:
    """A copy to try changes on."""
    return replace(pool, coming=[replace(bin_) for bin_ in pool.coming], taken=pool.taken.copy())


def can_come(pool: Pool, standees: Standees) -> bool:
    """Whether instances for all nodes without a place are available: none is launched for some of them alone."""
    pool = copy_of(pool)
    return all(launch_into(pool, shape, pack(pool.coming, shape, count))[1] == 0 for shape, count in standees)


def on_its_way(floor: Floor, pools: Pools, names: Iterable[EnvironmentName], gang: Gang) -> bool:
    """Whether an environment can launch what all nodes lack now."""
    for name in names:
        seats, standees = seat(floor.rooms.get(name, ()), gang, floor.now)
        put_back(seats, floor.now)
        if can_come(pools[name], standees):
            return True
    return False


def launch_all(
    floor: Floor, pools: Pools, names: Iterable[EnvironmentName], gang: Gang, job_id: JobId
) -> list[Launch] | None:
    """Instances for all nodes that find no place now, in the first environment that can launch them; None if none can.

    Places that the other nodes find now, or that are kept for them, are taken from the jobs after this one.
    """
    for name in names:
        pool = pools[name]
        before = copy_of(pool)
        rooms = floor.rooms.get(name, ())
        _open_own(rooms, job_id)
        seats, standees = seat(rooms, gang, floor.now)
        launched: list[Launch] = []
        for shape, count in standees:
            more, count = launch_into(pool, shape, pack(pool.coming, shape, count))
            launched += more
            if count:
                break
        else:
            return launched
        put_back(seats, floor.now)
        pool.coming, pool.taken = before.coming, before.taken
        pool.vcpus, pool.lasting_vcpus = before.vcpus, before.lasting_vcpus
    return None


def _open_own(rooms: Iterable[Room], job_id: JobId) -> None:
    """Stop keeping rooms from the job that they are kept for; the pass is over, so no other job gets them."""
    for room in rooms:
        guard = room.machine.guard
        if guard is not None and guard.job_id == job_id and not guard.claims:
            room.machine.guard = None
