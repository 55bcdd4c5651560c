"""Why a job waits and what would let it start, said by the same pass and the same fit that plan uses.

Runs the pass up to the job's own turn and looks at what is left. Changes nothing and guesses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windfall.capacity.environments import Switch
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.resources import NOTHING
from windfall.scheduling.assign import Assignment, Blocked, assign, claim, reserve
from windfall.scheduling.counterfactuals import Counterfactual
from windfall.scheduling.fit import takers
from windfall.scheduling.obstacles import lasting_obstacle, passing_obstacles
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
from windfall.scheduling.reclaim import MOST_AT_ONCE, Held
from windfall.scheduling.remedies import remedies
from windfall.scheduling.reserve import soonest
from windfall.scheduling.snapshot import QueueView, Reservation, Shape, Snapshot, Waiting

#: With one of these, more capacity is not what the job waits for.
_CAPACITY_COMES = frozenset(
    reason.code for reason in (RoomTaken, HeldBack, PlaceLeft, PlaceReserved, InstanceLaunching, LaunchesNext)
)


class AwsReason(StrEnum):
    """What AWS Batch writes into the statusReason of a job that blocks the head of a queue."""

    TOO_LARGE = (
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is "
        "higher than that can be met by the CE(s) attached to the job queue."
    )
    MAX_VCPUS = (
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue cannot meet "
        "the CPU requirement of the job."
    )
    #: Followed by the instance types in brackets.
    NO_CAPACITY = (
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for "
        "instance type"
    )
    INVALID = "ACTION_REQUIRED - CE(s) associated with the job queue are invalid."
    UNDETERMINED = "UNDETERMINED - Batch job is blocked, root cause is undetermined."


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits: never without a reason."""

    #: The most telling first.
    reasons: tuple[Reason, ...]
    #: Each of them alone would do.
    counterfactuals: tuple[Counterfactual, ...] = ()
    #: When running jobs have made room for it at the latest, if they have time limits and nobody is quicker.
    expected_at: int | None = None
    #: AWS's own words, where AWS has some for this case.
    aws_reason: str | None = None


def explain(
    snapshot: Snapshot, queue: QueueName, shape: Shape, waiting: Waiting, position: int
) -> Explanation:
    """Say why a waiting job has not started; `position` is how many jobs of its queue are ahead of it."""
    view = {view.queue.name: view for view in snapshot.queues}[queue]
    wanted = shape.resources
    names = takers(snapshot, view.queue.environments, wanted)
    lasting = {name: lasting_obstacle(snapshot, name, shape) for name in view.queue.environments}
    assignment = assign(snapshot, until=(view.queue.priority, waiting.order))
    # What others leave to this very job is kept from everybody else alone.
    alike = [left.count for left in assignment.blocked if (left.queue, left.shape) == (queue, shape)]
    assignment.claims.lift(queue, shape, first=sum(alike))
    if _fits(assignment, names, shape):
        return Explanation((StartsNext(),))
    helpful = remedies(assignment, view.queue, shape, waiting)
    open_names = tuple(name for name in names if lasting[name] is None)
    if not open_names:
        return _never(snapshot, view, lasting, helpful)

    # What stands in the way is read before a place is kept for this job itself.
    passing = [reason for name in open_names for reason in passing_obstacles(assignment, name, shape)]
    rooms = [room for name in open_names for room in assignment.floor.rooms.get(name, ())]
    chosen = soonest(rooms, shape, snapshot.now)
    left = Blocked(queue, shape, waiting, waiting.count, names, ahead=sum(alike))
    held = _claimed(assignment, left)
    reservation = _reservation(assignment, view, left)
    expected_at = chosen.expected_at if chosen is not None else None
    reasons: list[Reason] = []
    if held:
        expected_at = held[0].reservation.expected_at
        reasons += _left_to_it(held)
    if reservation is not None:
        reasons.append(_reserved(snapshot, waiting, reservation))
    reasons += passing
    reasons += _more_urgent(snapshot, view)
    if position > 0:
        reasons.append(JobsAhead(queue, position))
    if expected_at is not None and not any(
        isinstance(reason, PlaceLeft | PlaceReserved) for reason in reasons
    ):
        reasons.append(NextCapacity(expected_at))
    if not reasons:
        reasons.append(Undetermined())
    reasons += [reason for reason in lasting.values() if reason is not None]
    reasons += _disabled(view)
    return Explanation(tuple(reasons), helpful, expected_at, _aws_capacity(reasons))


def _fits(assignment: Assignment, names: tuple[EnvironmentName, ...], shape: Shape) -> bool:
    floor = assignment.floor
    return any(room.holds(shape, floor.now) for name in names for room in floor.rooms.get(name, ()))


def _never(
    snapshot: Snapshot,
    view: QueueView,
    lasting: dict[EnvironmentName, Reason | None],
    helpful: tuple[Counterfactual, ...],
) -> Explanation:
    """The job cannot start before somebody changes it or its environments."""
    found = [reason for reason in lasting.values() if reason is not None]
    reasons: list[Reason] = [*found, *_disabled(view)]
    if not takers(snapshot, view.queue.environments, NOTHING):
        aws = AwsReason.INVALID
        reasons.insert(0, NoEnvironmentEnabled(view.queue.name))
    elif any(isinstance(reason, MaxVcpusTooSmall) for reason in found):
        aws = AwsReason.MAX_VCPUS
    else:
        aws = AwsReason.TOO_LARGE
    return Explanation(tuple(reasons), helpful, None, aws.value)


def _reservation(assignment: Assignment, view: QueueView, left: Blocked) -> Reservation | None:
    """The place that is kept for the job, if it is the first of its shape that has none; the others stand behind."""
    if any(
        (other.queue, other.shape) == (left.queue, left.shape) and other.claimed < other.count
        for other in assignment.blocked
    ):
        return None
    return reserve(assignment, frozenset(view.queue.environments), left)


def _claimed(assignment: Assignment, left: Blocked) -> list[Held]:
    """The places that others leave to the job, or to the children of an array."""
    found: list[Held] = []
    while len(found) < min(left.count, MOST_AT_ONCE):
        held = claim(assignment, left, left.head.job_id)
        if held is None:
            break
        found.append(held)
    return found


def _left_to_it(held: list[Held]) -> list[Reason]:
    """Who leaves it and until when, if anybody has to."""
    left = [one for one in held if one.leaving]
    jobs = {release.job_id for one in left for release in one.leaving if release.job_id is not None}
    if not jobs:
        return []
    at = max(one.reservation.expected_at or 0 for one in left)
    have_notice = not any(one.asked_now for one in left)
    return [PlaceLeft(left[0].reservation.instance, tuple(sorted(jobs)), at, have_notice)]


def _reserved(snapshot: Snapshot, waiting: Waiting, reservation: Reservation) -> PlaceReserved:
    since = waiting.runnable_at + snapshot.rules.reserve_after_ms
    return PlaceReserved(reservation.instance, since, reservation.expected_at)


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
    """AWS has words for an engine that cannot launch, and none for a job that only waits its turn."""
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
