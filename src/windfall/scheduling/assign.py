"""Who gets which place: one pass over the waiting jobs in their order.

Whoever does not fit is passed by those behind (backfill). The first one in the order that has been passed
over too long gets a reservation, one for each set of environments. Because the pass goes from urgent to less
urgent, a reservation holds back jobs of its own priority and below, never more urgent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windfall.capacity.environments import WITHOUT_GPUS, Switch
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.dispatch_order import Line, Turns, by_priority
from windfall.scheduling.fit import Floor, Places
from windfall.scheduling.launchable import Pools
from windfall.scheduling.reserve import guard_for, soonest
from windfall.scheduling.snapshot import Placement, Reservation, Shape, Snapshot, Waiting


@dataclass(frozen=True, slots=True)
class Blocked:
    """Jobs of one shape in one queue that found no place in this tick."""

    queue: QueueName
    shape: Shape
    #: The first of them.
    head: Waiting
    count: int
    #: Where they could go.
    environments: tuple[EnvironmentName, ...]


@dataclass(slots=True)
class Assignment:
    """What a pass has decided so far, and what is left of the places."""

    snapshot: Snapshot
    floor: Floor
    pools: Pools
    placements: list[Placement] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    #: The sets of environments that have their one reservation.
    reserved_sets: set[frozenset[EnvironmentName]] = field(default_factory=set)
    #: Where each line can go, found once: many lines take turns with each other.
    options: dict[Line, list[Places]] = field(default_factory=dict)


def takers(
    snapshot: Snapshot, environments: Sequence[EnvironmentName], wanted: Resources
) -> tuple[EnvironmentName, ...]:
    """Of these environments those that take such jobs at all: enabled, and no Fargate for GPU jobs."""
    views = ((name, snapshot.environments.get(name)) for name in environments)
    return tuple(
        name
        for name, view in views
        if view is not None
        and view.environment.switch is Switch.ENABLED
        and not (wanted.gpus and view.environment.provisioning in WITHOUT_GPUS)
    )


def assign(snapshot: Snapshot, until: tuple[int, int] | None = None) -> Assignment:
    """Make the pass; with `until` (priority, order) only for the jobs whose turn is before that one's."""
    assignment = Assignment(snapshot, Floor(snapshot), Pools(snapshot))
    for level in by_priority(snapshot.queues):
        priority = level[0].queue.priority
        if until is not None and priority < until[0]:
            break
        turns = Turns(level)
        last = until[1] if until is not None and priority == until[0] else None
        while (line := turns.first()) is not None and (last is None or line.order < last):
            _serve(assignment, turns, line, last)
    return assignment


def _serve(assignment: Assignment, turns: Turns, line: Line, last: int | None) -> None:
    """Give places to the line at the front until another one has its turn or nothing fits any more."""
    all_places = assignment.options.get(line)
    if all_places is None:
        all_places = assignment.options[line] = _options(assignment, line)
    while turns.first() is line and (last is None or line.order < last):
        _fill(assignment, line, all_places)
        if line.left_of_head == 0:
            turns.head_done()
            continue
        turns.drop()
        shape, queue = line.group.shape, line.view.queue
        environments = takers(assignment.snapshot, queue.environments, shape.resources)
        left = Blocked(queue.name, shape, line.head, line.unplaced(last), environments)
        assignment.blocked.append(left)
        reserve(assignment, frozenset(queue.environments), left)
        return


def _options(assignment: Assignment, line: Line) -> list[Places]:
    """Where the jobs of a line can go, environment by environment in the queue's order."""
    shape = line.group.shape
    names = takers(assignment.snapshot, line.view.queue.environments, shape.resources)
    found = (assignment.floor.places(name, shape) for name in names)
    return [places for places in found if places is not None]


def _fill(assignment: Assignment, line: Line, all_places: list[Places]) -> None:
    """Place as many jobs of the line's head as there is room for."""
    shape, queue, job_id = line.group.shape, line.view.queue.name, line.head.job_id
    now, placements = assignment.snapshot.now, assignment.placements
    before = line.left_of_head
    for places in all_places:
        while line.left_of_head and (room := places.tightest()) is not None:
            gpu_ids = room.take(shape, now)
            placements.append(Placement(queue, job_id, room.view.id, gpu_ids))
            line.left_of_head -= 1
        if not line.left_of_head:
            break
    line.placed += before - line.left_of_head


def reserve(assignment: Assignment, key: frozenset[EnvironmentName], left: Blocked) -> Reservation | None:
    """Keep a place for a job that was passed over too long, if its set of environments has none kept yet."""
    snapshot, wanted = assignment.snapshot, left.shape.resources
    if (
        snapshot.now - left.head.runnable_at <= snapshot.rules.reserve_after_ms
        or key in assignment.reserved_sets
    ):
        return None
    if any(assignment.pools[name].on_its_way(wanted) for name in left.environments):
        return None  # New capacity for it comes without anybody having to stand back.
    rooms = [room for name in left.environments for room in assignment.floor.rooms.get(name, ())]
    chosen = soonest(rooms, wanted, snapshot.now)
    if chosen is None:
        return None
    guard = guard_for(left.head.job_id, chosen, wanted, snapshot.now)
    chosen.room.machine.guard = guard
    reservation = Reservation(left.head.job_id, chosen.room.view.id, chosen.expected_at)
    assignment.reservations.append(reservation)
    assignment.reserved_sets.add(key)
    return reservation
