"""Which single change would let a job start now: smaller needs, a timeout, another environment, more vCPUs.

SearchBudget at what is left at the job's own turn, so that what it names is true and not just likely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, floor
from operator import attrgetter

from windfall.capacity.environments import UNDECLARED, JobQueue, Switch
from windfall.capacity.machines import GpuDevice
from windfall.jobs.gpus import GpuWish
from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.admission import Asking
from windfall.scheduling.assign import Assignment, Blocked, assign
from windfall.scheduling.at_turn import starts_at_its_turn
from windfall.scheduling.counterfactuals import (
    AskAnyGpuModel,
    AskLess,
    AskLessGpuMemory,
    AskSmallerShare,
    Counterfactual,
    EnableEnvironment,
    RaiseMaxVcpus,
    SetTimeout,
    UseEnvironment,
)
from windfall.scheduling.dispatch_order import Until
from windfall.scheduling.fit import Room, takers
from windfall.scheduling.scale import launch_for
from windfall.scheduling.snapshot import EnvironmentView, QueueView, Shape, Snapshot, Waiting, WaitingGroup
from windfall.scheduling.wording import Resource

#: AWS Batch accepts no less than this for a job, so less is never suggested.
LEAST_MEMORY_MIB, LEAST_VCPUS, LEAST_TIMEOUT_S = 4, 0.25, 60
#: How many amounts, the largest first, are tried to see whether the job would start with them.
MOST_TRIED = 16
#: Of a GPU. Less is of no use.
LEAST_SHARE = 0.01
#: If more jobs than this wait ahead, a larger maxvCpus is no longer about this one.
MANY_JOBS = 10_000
#: More vCPUs than any environment may have.
UNBOUNDED = 10**9


def remedies(assignment: Assignment, view: QueueView, asking: Asking) -> tuple[Counterfactual, ...]:
    """The changes that would help, each alone; `assignment` is the pass up to the job's turn."""
    snapshot, queue, shape = assignment.snapshot, view.queue, asking.shape
    names = takers(snapshot, queue.environments, shape.resources, shape.market)
    return (
        *_smaller(assignment, view, names, asking),
        *_other_gpus(assignment, view, names, asking),
        *_shorter(assignment, view, names, asking),
        *_elsewhere(assignment, queue, shape),
        *_enabled(assignment, view, asking),
        *_larger_pool(assignment, queue, shape, asking.head),
    )


def _rooms_in_order(assignment: Assignment, names: Sequence[EnvironmentName], shape: Shape) -> list[Room]:
    """The rooms of the environments that come before, and of the first that can launch an instance for such a job."""
    rooms: list[Room] = []
    for name in names:
        rooms += assignment.floor.rooms.get(name, ())
        if assignment.prospects.pool(name).on_its_way(shape):
            break
    return rooms


def _smaller(
    assignment: Assignment, view: QueueView, names: Sequence[EnvironmentName], asking: Asking
) -> Iterator[Counterfactual]:
    """The largest amount of one resource with which the job would start, all else unchanged."""
    shape, now = asking.shape, assignment.floor.now
    wanted = shape.resources
    rooms = [room for name in names for room in assignment.floor.rooms.get(name, ())]
    open_rooms = [
        room.open_to(shape, now) for room in rooms if shape.admits(room.view.own_type, room.view.lacks)
    ]

    def most(amounts: Iterator[float], change: Callable[[float], Shape]) -> float | None:
        """The largest of these amounts with which it starts."""
        for amount in sorted(set(amounts), reverse=True)[:MOST_TRIED]:
            if _would_start(assignment, view, asking, change(amount)):
                return amount
        return None

    memory = most(
        (
            left.memory_mib
            for left in open_rooms
            if wanted.vcpus <= left.vcpus
            and wanted.gpus <= left.gpus
            and LEAST_MEMORY_MIB <= left.memory_mib < wanted.memory_mib
        ),
        lambda amount: replace(shape, resources=replace(wanted, memory_mib=int(amount))),
    )
    if memory is not None:
        yield AskLess(Resource.MEMORY, memory)
    vcpus = most(
        (
            floor(left.vcpus * 4) / 4
            for left in open_rooms
            if wanted.memory_mib <= left.memory_mib
            and wanted.gpus <= left.gpus
            and LEAST_VCPUS <= floor(left.vcpus * 4) / 4 < wanted.vcpus
        ),
        lambda amount: replace(shape, resources=replace(wanted, vcpus=amount)),
    )
    if vcpus is not None:
        yield AskLess(Resource.VCPUS, vcpus)
    gpus = most(
        (
            floor(left.gpus * 1000) / 1000 if shape.is_part else left.gpus
            for left in open_rooms
            if wanted.memory_mib <= left.memory_mib
            and wanted.vcpus <= left.vcpus
            and left.gpus < wanted.gpus
            and (left.gpus >= LEAST_SHARE if shape.is_part else left.gpus or shape.gpu_wish is None)
        ),
        lambda amount: _with_gpus(shape, amount),
    )
    if gpus is not None:
        yield AskSmallerShare(gpus) if shape.is_part else AskLess(Resource.GPUS, gpus)


def _would_start(assignment: Assignment, view: QueueView, asking: Asking, shape: Shape) -> bool:
    """Whether the job would start at its turn if it had another shape."""
    changed = replace(asking, shape=shape)
    if not starts_at_its_turn(assignment, view, changed):
        return False
    if len(view.queue.environments) < 2:
        return True
    # It leaves its line and joins another one, and the length of a line decides how many go on to a later
    # environment.
    moved, snapshot = _moved(view, asking, shape), assignment.snapshot
    queues = tuple(moved if other.queue.name == view.queue.name else other for other in snapshot.queues)
    until = Until.turn_of(moved, shape, asking.scheduling_class, asking.head)
    return starts_at_its_turn(assign(replace(snapshot, queues=queues), until=until), moved, changed)


def _moved(view: QueueView, asking: Asking, shape: Shape) -> QueueView:
    """The queue with a job that has another shape."""
    groups: list[WaitingGroup] = []
    joined = WaitingGroup(shape, (asking.head,), asking.head.count, asking.scheduling_class)
    for group in view.groups:
        if (group.shape, group.scheduling_class) == (shape, asking.scheduling_class):
            together = sorted((*group.entries, asking.head), key=attrgetter("order"))
            joined = replace(joined, entries=tuple(together), count=group.count + asking.head.count)
        elif (group.shape, group.scheduling_class) == (asking.shape, asking.scheduling_class):
            rest = tuple(entry for entry in group.entries if entry.job_id != asking.head.job_id)
            groups.append(replace(group, entries=rest, count=group.count - asking.head.count))
        else:
            groups.append(group)
    return replace(view, groups=(*groups, joined))


def _with_gpus(shape: Shape, amount: float) -> Shape:
    wish = shape.gpu_wish
    if wish is not None and wish.share is not None:
        wish = replace(wish, share=amount)
    return replace(shape, resources=replace(shape.resources, gpus=amount), gpu_wish=wish if amount else None)


def _other_gpus(
    assignment: Assignment, view: QueueView, names: Sequence[EnvironmentName], asking: Asking
) -> Iterator[Counterfactual]:
    """GPUs of another model, or with less memory, that would do if they were requested."""
    shape, wish = asking.shape, asking.shape.gpu_wish
    if wish is None:
        return

    def found(relaxed: GpuWish) -> bool | None:
        """Whether there is a place for it at once (True), or one to come (False); None if there is neither."""
        changed = replace(shape, gpu_wish=relaxed)
        if _would_start(assignment, view, asking, changed):
            return True
        return False if any(assignment.pools[name].on_its_way(changed) for name in names) else None

    if wish.model is not None and (at_once := found(replace(wish, model=None))) is not None:
        yield AskAnyGpuModel(at_once)
    if wish.memory_mib is not None:
        sizes = {gpu.memory_mib for name in names for gpu in _gpus_in(assignment, name)}
        for memory_mib in sorted(
            (memory_mib for memory_mib in sizes if memory_mib is not None), reverse=True
        ):
            if memory_mib < wish.memory_mib:
                at_once = found(replace(wish, memory_mib=memory_mib))
                if at_once is not None:
                    yield AskLessGpuMemory(memory_mib, at_once)
                    return


def _gpus_in(assignment: Assignment, name: EnvironmentName) -> Iterator[GpuDevice]:
    """The devices that an environment has or could get."""
    for room in assignment.floor.rooms.get(name, ()):
        yield from room.machine.view.devices.devices
    pool = assignment.pools[name]
    for offer in pool.view.offers:
        yield from pool.gpus_of(offer)


def _shorter(
    assignment: Assignment, view: QueueView, names: Sequence[EnvironmentName], asking: Asking
) -> Iterator[Counterfactual]:
    """The longest timeout with which it would end before a reservation begins."""
    shape, now = asking.shape, assignment.floor.now
    rooms = _rooms_in_order(assignment, names, shape)
    due = [
        room.machine.guard.expected_at - room.machine.grace_ms
        for room in rooms
        if room.machine.guard is not None
        and room.machine.guard.expected_at is not None
        and shape.resources.fits_in(room.free_for(shape))
        and shape.admits(room.view.own_type, room.view.lacks)
    ]
    longest_s = (max(due, default=now) - now - 1) // 1000
    changed = replace(shape, timeout_s=longest_s)
    if longest_s >= LEAST_TIMEOUT_S and _would_start(assignment, view, asking, changed):
        yield SetTimeout(longest_s)


def _elsewhere(assignment: Assignment, queue: JobQueue, shape: Shape) -> Iterator[Counterfactual]:
    """Environments outside the queue that have a free place for it; jobs and training jobs keep to their own."""
    snapshot = assignment.snapshot
    if UNDECLARED.intersection(queue.environments):
        return
    others = snapshot.environments.keys() - UNDECLARED.union(queue.environments)
    for name in takers(snapshot, sorted(others), shape.resources, shape.market):
        if _has_place(assignment, name, shape):
            yield UseEnvironment(name)


def _has_place(assignment: Assignment, name: EnvironmentName, shape: Shape) -> bool:
    rooms = assignment.floor.rooms.get(name, ())
    return any(room.holds(shape, assignment.floor.now) for room in rooms)


def _changed(snapshot: Snapshot, view: EnvironmentView) -> Snapshot:
    return replace(snapshot, environments={**snapshot.environments, view.environment.name: view})


def _enabled(assignment: Assignment, view: QueueView, asking: Asking) -> Iterator[Counterfactual]:
    """Disabled environments of the queue that would have a place left at its turn."""
    snapshot, queue = assignment.snapshot, view.queue
    for name in queue.environments:
        disabled = snapshot.environments.get(name)
        if disabled is None or disabled.environment.switch is Switch.ENABLED:
            continue
        enabled = replace(disabled, environment=replace(disabled.environment, switch=Switch.ENABLED))
        then = assign(_changed(snapshot, enabled), until=assignment.until)
        if starts_at_its_turn(then, view, asking):
            yield EnableEnvironment(name)


def _larger_pool(
    assignment: Assignment, queue: JobQueue, shape: Shape, waiting: Waiting
) -> Iterator[Counterfactual]:
    """The maxvCpus with which an environment could launch for all that is ahead, and for this job."""
    snapshot = assignment.snapshot
    names = takers(snapshot, queue.environments, shape.resources, shape.market)
    if sum(left.count for left in assignment.blocked) > MANY_JOBS:
        return
    if any(assignment.pools[name].on_its_way(shape) for name in names):
        return
    for name in names:
        view = snapshot.environments[name]
        if not any(assignment.pools[name].holds(offer, shape) for offer in view.offers):
            continue
        unbounded = replace(view, environment=replace(view.environment, max_vcpus=UNBOUNDED))
        then = assign(_changed(snapshot, unbounded), until=assignment.until)
        for ahead in then.blocked:
            if ahead.barred_by is None:
                launch_for(then, ahead)
        _, unserved = launch_for(then, Blocked(queue.name, shape, waiting, 1, (name,)))
        at_least = ceil(then.pools[name].vcpus)
        if not unserved and at_least > view.environment.max_vcpus:
            yield RaiseMaxVcpus(name, at_least)
