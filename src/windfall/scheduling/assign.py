"""Which job gets which place: one pass over the waiting jobs in dispatch order.

Jobs behind one that does not fit may pass it (backfill). A job that may preempt others does so (reclaim.py).
The first job in the order that was passed over too long gets a reservation, one for each set of environments.
Because the pass goes from urgent to less urgent, a reservation holds back jobs of its own priority and below,
never more urgent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.scheduling.admission import Admission
from windfall.scheduling.dispatch_order import Turns, Until, by_priority
from windfall.scheduling.fit import Floor, Places, takers
from windfall.scheduling.gangs import keep_rooms, needs_of, on_its_way, seat_all
from windfall.scheduling.horizon import KeptPlaces
from windfall.scheduling.lanes import Line
from windfall.scheduling.launchable import Pools
from windfall.scheduling.precedence import Prospects
from windfall.scheduling.reclaim import MOST_AT_ONCE, Claims
from windfall.scheduling.reserve import guard_for, soonest
from windfall.scheduling.search_budget import SearchBudget
from windfall.scheduling.snapshot import (
    ORDINARY,
    Gang,
    Placement,
    Reservation,
    SchedulingClass,
    Shape,
    Snapshot,
    Waiting,
)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Jobs of one shape in one queue that found no place in this pass."""

    queue: QueueName
    shape: Shape
    #: The first of them.
    head: Waiting
    count: int
    #: Where they could go.
    environments: tuple[EnvironmentName, ...]
    #: How many of them have a place that others are vacating.
    claimed: int = 0
    #: How many jobs of the same queue and shape had their turn before, and got no place.
    ahead: int = 0
    #: Which gate bars them, if free capacity is not what they lack; nothing is launched, kept or freed for
    #: them then.
    barred_by: str | None = None
    scheduling_class: SchedulingClass = ORDINARY
    #: How many of them may be launched for at most; None means all.
    launchable: int | None = None


#: The places of an environment for a line, and the environments before it in the queue's order.
Option = tuple[Places, tuple[EnvironmentName, ...]]


@dataclass(slots=True)
class Assignment:
    """What a pass has decided so far, and the capacity that is left."""

    snapshot: Snapshot
    floor: Floor
    pools: Pools
    placements: list[Placement] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    #: The sets of environments that already have a reservation.
    reserved_sets: set[frozenset[EnvironmentName]] = field(default_factory=set)
    #: Where each line can go, computed once: many lines take turns with each other.
    options: dict[Line, list[Option]] = field(default_factory=dict)
    #: The turn before which the pass ended, if it did.
    until: Until | None = None
    #: The places that others are vacating, and the jobs they are kept for.
    claims: Claims = field(init=False)
    #: The limits other than capacity that can keep a job from starting.
    admission: Admission = field(init=False)
    #: Which multi-node jobs search for others to preempt.
    search_budget: SearchBudget = field(init=False)
    #: What environments can still launch for jobs whose turn is yet to come.
    prospects: Prospects = field(init=False)

    def __post_init__(self) -> None:
        self.prospects = Prospects(self.pools)
        self.admission = Admission.to(self.snapshot)
        self.claims = Claims(self.floor, self.snapshot.rules.notice_ms, self.admission)
        self.claims.keep_earlier(self.snapshot)
        self.search_budget = SearchBudget.of(self.snapshot)

    def drop(self, line: Line, left: Blocked) -> None:
        """Record that a line found no place, and what environments will launch for all of it."""
        self.blocked.append(left)
        if left.barred_by is None and left.scheduling_class.gang is None:
            # All of the line, even in a pass for one of its jobs: launches count the whole line.
            waiting = line.unplaced(None)
            if self.admission.gates:
                waiting = self.admission.admits(line, waiting)[0]
            self.prospects.take(left.environments, left.shape, waiting - left.claimed)


def assign(snapshot: Snapshot, until: Until | None = None) -> Assignment:
    """Make the pass; with `until`, only for the jobs whose turn comes before it."""
    assignment = Assignment(snapshot, Floor(snapshot), Pools(snapshot), until=until)
    for level in by_priority(snapshot.queues):
        priority = level[0].queue.priority
        if until is not None and priority < until.priority:
            break
        turns = Turns(level)
        last = until if until is not None and priority == until.priority else None
        while (line := turns.first()) is not None:
            if _only_borrows(assignment, turns, line):
                turns.defer()
                continue
            if last is not None and last.reached(line):
                break
            _serve(assignment, turns, line, last)
            if last is not None and line.dropped and last.in_same_group(line):
                break  # A job before it in its line found no place, so neither will it.
    return assignment


def _only_borrows(assignment: Assignment, turns: Turns, line: Line) -> bool:
    """Whether the first line's share would have to borrow while owners may still want their own."""
    quota = assignment.admission.quota
    if quota is None:
        return False
    quota.borrowing = turns.borrowing
    return quota.waits_to_borrow(line)


def _serve(assignment: Assignment, turns: Turns, line: Line, last: Until | None) -> None:
    """Place jobs of the first line until another line has its turn or nothing fits."""
    all_places = assignment.options.get(line)
    if all_places is None:
        all_places = assignment.options[line] = _options(assignment, line)
    while turns.first() is line and not (last is not None and last.reached(line)):
        admitted, barred_by = assignment.admission.admits(line, min(line.left_of_head, turns.stride))
        before = line.left_of_head
        if admitted and assignment.claims.held:
            _fill_claimed(assignment, line, admitted)
        _fill(assignment, line, all_places, admitted - (before - line.left_of_head))
        if before > line.left_of_head:
            assignment.admission.started(line, before - line.left_of_head)
        if line.left_of_head == 0:
            turns.head_done()
            continue
        if before - line.left_of_head == admitted:
            # More of them may fit, but another line has its turn, or a gate bars them.
            if barred_by is None:
                turns.go_on()
                continue
            if _only_borrows(assignment, turns, line):
                turns.defer()
                return
            left = _barred(assignment, line, barred_by)
            if left.claimed < left.count:
                turns.drop()
                assignment.blocked.append(replace(left, count=_unplaced(line, last)))
                return
            assignment.blocked.append(left)
            line.claimed += left.count
            turns.head_done()
            continue
        queue = line.view.queue
        left = Blocked(
            *(queue.name, line.shape, line.head, line.left_of_head, _taking(assignment, line)),
            ahead=line.claimed,
            scheduling_class=line.scheduling_class,
        )
        left = replace(left, claimed=_claim_head(assignment, left))
        if left.claimed == left.count:
            # All of them have a place once others have left: those behind have their turn.
            assignment.blocked.append(left)
            line.claimed += left.count
            turns.head_done()
            continue
        turns.drop()
        left = _within_gates(assignment, line, replace(left, count=_unplaced(line, last)))
        assignment.drop(line, left)
        reserve(assignment, reserved_set(queue.environments, left), left)
        return


def reserved_set(environments: Sequence[EnvironmentName], left: Blocked) -> frozenset[EnvironmentName]:
    """The environments that a reservation for such jobs stands for."""
    return frozenset(environments if left.shape.market is None else left.environments)


def _unplaced(line: Line, last: Until | None) -> int:
    return line.unplaced(None if last is None else last.before(line))


def _barred(assignment: Assignment, line: Line, gate: str) -> Blocked:
    """Jobs of a line's head that a gate bars; preempting others may give back a quota for them."""
    left = Blocked(line.queue, line.shape, line.head, line.left_of_head, (), ahead=line.claimed)
    left = replace(left, barred_by=gate, scheduling_class=line.scheduling_class)
    quota = assignment.admission.quota
    if quota is None or gate != quota.name or not assignment.admission.only_quota_bars(line):
        return left
    names = _taking(assignment, line)
    return replace(left, claimed=_claim_head(assignment, replace(left, environments=names)))


def _taking(assignment: Assignment, line: Line) -> tuple[EnvironmentName, ...]:
    """The environments of its queue that accept such jobs at all."""
    gang = line.scheduling_class.gang
    wanted = line.shape.resources if gang is None else needs_of(gang)
    return takers(assignment.snapshot, line.view.queue.environments, wanted, line.shape.market)


def _within_gates(assignment: Assignment, line: Line, left: Blocked) -> Blocked:
    """Limit launches to what the gates admit, and keep others from borrowing what those jobs will hold."""
    if not assignment.admission.gates:
        return left
    quota, (admitted, _) = assignment.admission.quota, assignment.admission.admits(line, left.count)
    coming = any(assignment.pools[name].on_its_way(left.shape) for name in left.environments)
    if quota is not None and coming:
        quota.pledge(line, max(0, admitted - assignment.claims.count(left)))
    return replace(left, launchable=admitted)


def _options(assignment: Assignment, line: Line) -> list[Option]:
    """Where the jobs of a line can go, environment by environment in the queue's order."""
    shape = line.group.shape
    names = takers(assignment.snapshot, line.view.queue.environments, shape.resources, shape.market)
    options = ((assignment.floor.places(name, shape), names[:number]) for number, name in enumerate(names))
    return [(places, before) for places, before in options if places is not None]


def _fill(assignment: Assignment, line: Line, all_places: list[Option], most: int) -> None:
    """Place as many jobs of the line's head as fit, at most `most`."""
    if line.scheduling_class.gang is not None:
        _fill_gang(assignment, line, most)
        return
    shape, queue, job_id = line.group.shape, line.view.queue.name, line.head.job_id
    now, placements = assignment.snapshot.now, assignment.placements
    before = line.left_of_head
    stop_at = before - most
    for places, earlier in all_places:
        if earlier and line.left_of_head > stop_at and places.tightest() is not None:
            stop_at = max(stop_at, line.left_of_head - _going_on(assignment, line, earlier, before))
        while line.left_of_head > stop_at and (room := places.tightest()) is not None:
            gpu_ids = room.take(shape, now)
            placements.append(Placement(queue, job_id, room.view.id, gpu_ids))
            line.left_of_head -= 1
        if line.left_of_head <= stop_at:
            break
    line.placed += before - line.left_of_head


def _going_on(assignment: Assignment, line: Line, earlier: tuple[EnvironmentName, ...], before: int) -> int:
    """How many jobs of a line may go to a later environment: those that the earlier ones cannot launch for."""
    waiting = line.group.count - line.placed - line.claimed - (before - line.left_of_head)
    if assignment.admission.gates:
        waiting = assignment.admission.admits(line, waiting)[0]
    return waiting - assignment.prospects.brought(earlier, line.shape, waiting)


def _fill_gang(assignment: Assignment, line: Line, most: int) -> None:
    """Place all nodes of the multi-node job at the head of a line, or none."""
    gang = line.scheduling_class.gang
    if gang is None or most < 1:
        return
    seats = seat_all(assignment.floor, _taking(assignment, line), gang)
    assignment.placements += [
        Placement(line.queue, line.head.job_id, seat.room.view.id, seat.gpu_ids, seat.number)
        for seat in seats
    ]
    if seats:
        line.left_of_head -= 1
        line.placed += 1


def _fill_claimed(assignment: Assignment, line: Line, most: int) -> None:
    """Let the head of a line take the places kept for its group, as far as they are free by now."""
    # Places of jobs before it in the line stay: they are not free yet, or those jobs would have taken them.
    lifted = assignment.claims.lift(line, first=line.claimed)
    if not lifted:
        return
    names = _taking(assignment, line)
    floor, before = assignment.floor, line.placed
    # First where they were freed for it. Then anywhere, with a new search: the earlier one ran while the
    # line's own places were kept from it too.
    freed = [claim.places[0].room for claim in lifted]
    rooms = [freed, *(floor.rooms.get(name, ()) for name in names)]
    _fill(assignment, line, [(Places(line.shape, some, floor.now), ()) for some in rooms], most)
    if line.placed == before:
        assignment.claims.restore(line, lifted)
        return
    for claim in lifted[: max(0, len(lifted) - (line.placed - before))]:
        if line.scheduling_class.gang is None:
            assignment.claims.claim_one_of(claim.job_id, line, (claim.places[0].room,), ask=False)
        else:
            assignment.claims.claim(claim.job_id, line, names, ask=False)


def _claim_head(assignment: Assignment, left: Blocked) -> int:
    """Make others vacate places for the jobs at the head of a line, if they may preempt; returns how many have one."""
    claims = assignment.claims
    if not any(name in assignment.floor.claimable for name in left.environments) and not claims.may_ask(left):
        return 0
    most = min(left.ahead + left.count, MOST_AT_ONCE)
    while claims.count(left) < most:
        if left.scheduling_class.gang is not None and not assignment.search_budget.allows_next():
            break
        if claim(assignment, left, left.head.job_id) is None:
            break
    return max(0, min(left.count, claims.count(left) - left.ahead))


def claim(assignment: Assignment, left: Blocked, job_id: JobId) -> KeptPlaces | None:
    """Make others vacate a place for a job that found none, unless new capacity can come and is what it lacks."""
    if not assignment.claims.rooms(left, left.environments):
        return None
    if left.barred_by is None and _comes(assignment, left):
        return None
    return assignment.claims.claim(job_id, left, left.environments, ask=True)


def _comes(assignment: Assignment, left: Blocked) -> bool:
    """Whether new capacity can come for the first of them."""
    gang, pools = left.scheduling_class.gang, assignment.pools
    if gang is not None:
        return on_its_way(assignment.floor, pools, left.environments, gang)
    return any(pools[name].on_its_way(left.shape) for name in left.environments)


def reserve(assignment: Assignment, key: frozenset[EnvironmentName], left: Blocked) -> Reservation | None:
    """Reserve a place for a job that was passed over too long, if its set of environments has none reserved yet."""
    snapshot, shape = assignment.snapshot, left.shape
    if (
        assignment.claims.count(left) > left.ahead
        or snapshot.now - left.head.runnable_at <= snapshot.rules.reserve_after_ms
        or key in assignment.reserved_sets
    ):
        return None
    if left.scheduling_class.gang is not None:
        return _reserve_gang(assignment, key, left, left.scheduling_class.gang)
    if any(assignment.pools[name].on_its_way(shape) for name in left.environments):
        return None  # New capacity comes for it without holding anything back from others.
    rooms = [room for name in left.environments for room in assignment.floor.rooms.get(name, ())]
    chosen = soonest(rooms, shape, snapshot.now)
    if chosen is None:
        return None
    guard = guard_for(left.head.job_id, chosen, shape, snapshot.now)
    chosen.room.machine.guard = guard
    reservation = Reservation(left.head.job_id, chosen.room.view.id, chosen.expected_at)
    assignment.reservations.append(reservation)
    assignment.reserved_sets.add(key)
    return reservation


def _reserve_gang(
    assignment: Assignment, key: frozenset[EnvironmentName], left: Blocked, gang: Gang
) -> Reservation | None:
    """Reserve as many machines as a multi-node job needs; returns the one that is free last."""
    prospects = keep_rooms(assignment.floor, assignment.pools, left.environments, gang, left.head.job_id)
    if not prospects:
        return None
    made = [
        Reservation(left.head.job_id, prospect.room.view.id, prospect.expected_at) for prospect in prospects
    ]
    assignment.reservations += made
    assignment.reserved_sets.add(key)
    return max(made, key=lambda reservation: (reservation.expected_at is None, reservation.expected_at or 0))
