"""Why a job waits and what would let it start, found by the same pass and the same fit that plan uses.

Runs the pass up to the job's own turn and looks at what is left. Changes nothing and guesses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from windfall.capacity.environments import Switch
from windfall.jobs.aws_texts import AwsReason
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.resources import NOTHING
from windfall.scheduling.admission import Asking
from windfall.scheduling.assign import Assignment, Blocked, assign, claim, reserve, reserved_set
from windfall.scheduling.at_turn import starts_at_its_turn
from windfall.scheduling.counterfactuals import Counterfactual
from windfall.scheduling.dispatch_order import Until
from windfall.scheduling.fit import takers
from windfall.scheduling.gang_obstacles import (
    fits_together,
    lasting_gang_obstacle,
    passing_gang_obstacles,
)
from windfall.scheduling.gangs import needs_of
from windfall.scheduling.horizon import KeptPlaces
from windfall.scheduling.obstacles import lasting_obstacle, passing_obstacles
from windfall.scheduling.quota_gate import QUOTA, group_key
from windfall.scheduling.quota_reasons import quota_words
from windfall.scheduling.reasons import (
    EngineTrouble,
    HeldBack,
    HigherPriority,
    InstanceLaunching,
    JobsAhead,
    LaunchesNext,
    LaunchFailed,
    MaxVcpusTooSmall,
    NextCapacity,
    NoEnvironmentEnabled,
    NoneAvailable,
    PlaceLeft,
    PlaceReserved,
    QueueDisabled,
    Reason,
    RoomTaken,
    StartsNext,
    Undetermined,
)
from windfall.scheduling.reclaim import MOST_AT_ONCE
from windfall.scheduling.remedies import remedies
from windfall.scheduling.reserve import soonest
from windfall.scheduling.share_reasons import share_turn
from windfall.scheduling.snapshot import (
    ORDINARY,
    QueueView,
    Reservation,
    SchedulingClass,
    Shape,
    Snapshot,
    Waiting,
)

#: With one of these, more capacity is not what the job waits for.
_CAPACITY_COMES = frozenset(
    reason.code for reason in (RoomTaken, HeldBack, PlaceLeft, PlaceReserved, InstanceLaunching, LaunchesNext)
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits: always at least one reason."""

    #: The most important first.
    reasons: tuple[Reason, ...]
    #: Each of them alone is enough.
    counterfactuals: tuple[Counterfactual, ...] = ()
    #: The latest time at which running jobs make room for it, if they have time limits and no other job takes
    #: it first.
    expected_at: int | None = None
    #: AWS's own text, if AWS has one for this case.
    aws_reason: str | None = None


def explain(
    snapshot: Snapshot,
    queue: QueueName,
    shape: Shape,
    waiting: Waiting,
    position: int,
    scheduling_class: SchedulingClass = ORDINARY,
) -> Explanation:
    """Say why a waiting job has not started; `position` is how many jobs of its queue are ahead of it."""
    view = {view.queue.name: view for view in snapshot.queues}[queue]
    gang = scheduling_class.gang
    wanted = shape.resources if gang is None else needs_of(gang)
    names = takers(snapshot, view.queue.environments, wanted, shape.market)
    lasting = {
        name: lasting_obstacle(snapshot, name, shape)
        if gang is None
        else lasting_gang_obstacle(snapshot, name, gang)
        for name in view.queue.environments
    }
    assignment = assign(snapshot, until=Until.turn_of(view, shape, scheduling_class, waiting))
    # Places that others vacate for this very job are kept from all other jobs only.
    asking = Asking(queue, shape, scheduling_class, waiting)
    same_group = [left.count for left in assignment.blocked if group_key(left) == group_key(asking)]
    assignment.claims.give_up(asking, first=sum(same_group))
    barred = assignment.admission.reasons(asking)
    left = Blocked(
        queue, shape, waiting, waiting.count, names, ahead=sum(same_group), scheduling_class=scheduling_class
    )
    if barred:
        left = replace(left, barred_by=QUOTA)
    # Nothing is freed or kept for a job that a gate bars; but a quota may be given back.
    asks = assignment.admission.only_quota_bars(asking)
    fits = (
        starts_at_its_turn(assignment, view, asking)
        if gang is None
        else fits_together(assignment, names, gang)
    )
    if fits:
        reasons = [*barred, *(_left_to_it(_claimed(assignment, left), queue) if barred and asks else ())]
        return Explanation(tuple(reasons) or (StartsNext(),), aws_reason=quota_words(reasons))
    # A change of capacity does not help a job that a gate bars.
    helpful = () if gang is not None or barred else remedies(assignment, view, asking)
    open_names = tuple(name for name in names if lasting[name] is None)
    if not open_names:
        return _never(snapshot, view, [*lasting.values(), *barred], helpful)

    # Obstacles are read before a place is kept for this job itself.
    passing = _passing(assignment, open_names, asking)
    rooms = [room for name in open_names for room in assignment.floor.rooms.get(name, ())]
    chosen = soonest(rooms, shape, snapshot.now) if gang is None else None
    claimed = _claimed(assignment, left) if asks else []
    reservation = None if barred else _reservation(assignment, view, left)
    expected_at = chosen.expected_at if chosen is not None else None
    reasons = [*barred]
    if claimed:
        expected_at = claimed[0].expected_at
        reasons += _left_to_it(claimed, queue)
    if reservation is not None:
        reasons.append(_reserved(snapshot, waiting, reservation))
    reasons += passing
    reasons += _before_it(snapshot, view, asking, position)
    if expected_at is not None and not any(
        isinstance(reason, PlaceLeft | PlaceReserved) for reason in reasons
    ):
        reasons.append(NextCapacity(expected_at))
    if not reasons:
        reasons.append(Undetermined())
    reasons += [reason for reason in lasting.values() if reason is not None]
    reasons += _disabled(view)
    return Explanation(tuple(reasons), helpful, expected_at, quota_words(reasons) or _aws_capacity(reasons))


def _never(
    snapshot: Snapshot,
    view: QueueView,
    lasting: Iterable[Reason | None],
    helpful: tuple[Counterfactual, ...],
) -> Explanation:
    """The job cannot start unless it or its environments are changed."""
    obstacles = [reason for reason in lasting if reason is not None]
    reasons: list[Reason] = [*obstacles, *_disabled(view)]
    if not takers(snapshot, view.queue.environments, NOTHING):
        aws = AwsReason.INVALID
        reasons.insert(0, NoEnvironmentEnabled(view.queue.name))
    elif any(isinstance(reason, MaxVcpusTooSmall) for reason in obstacles):
        aws = AwsReason.MAX_VCPUS
    else:
        aws = AwsReason.TOO_LARGE
    return Explanation(tuple(reasons), helpful, None, aws.value)


def _reservation(assignment: Assignment, view: QueueView, left: Blocked) -> Reservation | None:
    """The place reserved for the job, if it is the first of its group without one; the others wait behind it."""
    if any(
        group_key(other) == group_key(left) and other.claimed < other.count for other in assignment.blocked
    ):
        return None
    return reserve(assignment, reserved_set(view.queue.environments, left), left)


def _claimed(assignment: Assignment, left: Blocked) -> list[KeptPlaces]:
    """The places that others vacate for the job, or for the children of an array."""
    claimed: list[KeptPlaces] = []
    while len(claimed) < min(left.count, MOST_AT_ONCE):
        places = claim(assignment, left, left.head.job_id)
        if places is None:
            break
        claimed.append(places)
    return claimed


def _left_to_it(claimed: list[KeptPlaces], queue: QueueName) -> list[Reason]:
    """Which jobs vacate its place and until when, if any have to."""
    left = [held_places for held_places in claimed if held_places.leaving]
    leaving = [release for held_places in left for release in held_places.leaving]
    named = ((release.job_id if release.alone else release.gang) for release in leaving)
    jobs = {job_id for job_id in named if job_id is not None}
    if not jobs:
        return []
    at = max(held_places.expected_at for held_places in left)
    have_notice = not any(held_places.asked_now for held_places in left)
    # On-demand jobs take nothing back from their own queue: within one queue, the reason is a quota.
    by_quota = all(release.queue == queue for release in leaving)
    instances = tuple(reservation.instance for reservation in left[0].reservations)
    return [PlaceLeft(instances, tuple(sorted(jobs)), at, have_notice, by_quota)]


def _reserved(snapshot: Snapshot, waiting: Waiting, reservation: Reservation) -> PlaceReserved:
    since = waiting.runnable_at + snapshot.rules.reserve_after_ms
    return PlaceReserved(reservation.instance, since, reservation.expected_at)


def _passing(assignment: Assignment, names: tuple[EnvironmentName, ...], asking: Asking) -> list[Reason]:
    """The obstacles in each environment that could take it."""
    gang = asking.scheduling_class.gang
    reasons: list[Reason] = []
    for name in names:
        if gang is None:
            reasons += passing_obstacles(assignment, name, asking.shape, asking.head.count)
        else:
            reasons += passing_gang_obstacles(assignment, name, gang)
    return reasons


def _before_it(snapshot: Snapshot, view: QueueView, asking: Asking, position: int) -> list[Reason]:
    """What has its turn before it: more urgent queues, other shares, and jobs ahead of it in its own line."""
    reasons = _more_urgent(snapshot, view)
    if (turn := share_turn(view, asking.scheduling_class, asking.head, position)) is not None:
        reasons.append(turn)
    elif position > 0:
        reasons.append(JobsAhead(view.queue.name, position))
    return reasons


def _more_urgent(snapshot: Snapshot, view: QueueView) -> list[Reason]:
    """Queues that go first and share an environment, the most urgent first."""
    mine = set(view.queue.environments)
    others = [
        (other.queue, sum(group.count for group in other.groups))
        for other in snapshot.queues
        if other.queue.priority > view.queue.priority and mine.intersection(other.queue.environments)
    ]
    ordered = sorted(others, key=lambda item: (-item[0].priority, item[0].name))
    return [HigherPriority(queue.name, queue.priority, jobs) for queue, jobs in ordered if jobs]


def _disabled(view: QueueView) -> list[Reason]:
    return [] if view.queue.switch is Switch.ENABLED else [QueueDisabled(view.queue.name)]


def _aws_capacity(reasons: list[Reason]) -> str | None:
    """AWS's text for an engine that cannot launch; a job that only waits its turn has none."""
    if any(isinstance(reason, Undetermined) for reason in reasons):
        return AwsReason.UNDETERMINED.value
    if any(reason.code in _CAPACITY_COMES for reason in reasons):
        return None
    for reason in reasons:
        if isinstance(reason, NoneAvailable):
            return f"{AwsReason.NO_CAPACITY.value} [{', '.join(reason.types)}]"
        if isinstance(reason, LaunchFailed):
            return f"{AwsReason.NO_CAPACITY.value} [{reason.type}]"
        if isinstance(reason, EngineTrouble):
            return f"{AwsReason.NO_CAPACITY.value} [{reason.environment}]"
    return None
