"""Which single change would let a job start now: smaller needs, a timeout, another environment, more vCPUs.

Looks at what is left at the job's own turn, so that what it names is true and not just likely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, floor

from windfall.capacity.environments import UNDECLARED, JobQueue, Switch
from windfall.capacity.machines import GpuDevice
from windfall.jobs.gpus import GpuWish
from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.assign import Assignment, Blocked, assign
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
from windfall.scheduling.fit import Room, takers
from windfall.scheduling.scale import launch_for
from windfall.scheduling.snapshot import EnvironmentView, Shape, Snapshot, Waiting
from windfall.scheduling.wording import Resource

#: AWS Batch takes no less than this for a job; asking less would be no advice.
LEAST_MEMORY_MIB, LEAST_VCPUS, LEAST_TIMEOUT_S = 4, 0.25, 60
#: Of a GPU. Less is of no use to anybody.
LEAST_SHARE = 0.01
#: Beyond so many jobs waiting ahead, a larger maxvCpus is no longer about this one.
MANY_JOBS = 10_000
#: More vCPUs than any environment may have.
UNBOUNDED = 10**9


def remedies(
    assignment: Assignment, queue: JobQueue, shape: Shape, waiting: Waiting
) -> tuple[Counterfactual, ...]:
    """The changes that would do, each alone; `assignment` is the pass up to the job's turn."""
    snapshot = assignment.snapshot
    names = takers(snapshot, queue.environments, shape.resources)
    rooms = [room for name in names for room in assignment.floor.rooms.get(name, ())]
    return (
        *_smaller(rooms, shape, snapshot.now),
        *_other_gpus(assignment, names, shape),
        *_shorter(rooms, shape, snapshot.now),
        *_elsewhere(assignment, queue, shape),
        *_enabled(assignment, queue, shape),
        *_larger_pool(assignment, queue, shape, waiting),
    )


def _smaller(rooms: list[Room], shape: Shape, now: int) -> Iterator[Counterfactual]:
    """The largest amount of one resource with which the job would fit, all else as it is."""
    wanted = shape.resources
    open_rooms = [room.open_to(shape, now) for room in rooms if shape.admits(room.view.own_type)]
    memory = [
        left.memory_mib for left in open_rooms if wanted.vcpus <= left.vcpus and wanted.gpus <= left.gpus
    ]
    if memory and LEAST_MEMORY_MIB <= max(memory) < wanted.memory_mib:
        yield AskLess(Resource.MEMORY, max(memory))
    vcpus = [
        left.vcpus for left in open_rooms if wanted.memory_mib <= left.memory_mib and wanted.gpus <= left.gpus
    ]
    quarters = floor(max(vcpus, default=0) * 4) / 4
    if LEAST_VCPUS <= quarters < wanted.vcpus:
        yield AskLess(Resource.VCPUS, quarters)
    gpus = [
        left.gpus
        for left in open_rooms
        if wanted.memory_mib <= left.memory_mib and wanted.vcpus <= left.vcpus
    ]
    if gpus and max(gpus) < wanted.gpus:
        if shape.is_part:
            if max(gpus) >= LEAST_SHARE:
                yield AskSmallerShare(floor(max(gpus) * 1000) / 1000)
        elif max(gpus) or shape.gpu_wish is None:  # Who asks for GPUs of a kind needs one.
            yield AskLess(Resource.GPUS, max(gpus))


def _other_gpus(
    assignment: Assignment, names: Sequence[EnvironmentName], shape: Shape
) -> Iterator[Counterfactual]:
    """GPUs of another model, or with less memory, that would do if they were asked for."""
    wish = shape.gpu_wish
    if wish is None:
        return

    def found(relaxed: GpuWish) -> bool | None:
        """Whether there is a place for it at once (True), or one to come (False); None when there is neither."""
        changed = replace(shape, gpu_wish=relaxed)
        if any(_has_place(assignment, name, changed) for name in names):
            return True
        return False if any(assignment.pools[name].on_its_way(changed) for name in names) else None

    if wish.model is not None and (at_once := found(replace(wish, model=None))) is not None:
        yield AskAnyGpuModel(at_once)
    if wish.memory_mib is not None:
        known = {gpu.memory_mib for name in names for gpu in _gpus_in(assignment, name)}
        for memory_mib in sorted((one for one in known if one is not None), reverse=True):
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


def _shorter(rooms: list[Room], shape: Shape, now: int) -> Iterator[Counterfactual]:
    """The longest timeout with which it would be over before a reservation begins."""
    due = [
        room.machine.guard.expected_at - room.machine.grace_ms
        for room in rooms
        if room.machine.guard is not None
        and room.machine.guard.expected_at is not None
        and shape.resources.fits_in(room.free_for(shape))
        and shape.admits(room.view.own_type)
    ]
    longest_s = (max(due, default=now) - now - 1) // 1000
    if longest_s >= LEAST_TIMEOUT_S:
        yield SetTimeout(longest_s)


def _elsewhere(assignment: Assignment, queue: JobQueue, shape: Shape) -> Iterator[Counterfactual]:
    """Environments outside the queue that have a free place for it; jobs and training jobs keep to their own."""
    snapshot = assignment.snapshot
    if UNDECLARED.intersection(queue.environments):
        return
    others = snapshot.environments.keys() - UNDECLARED.union(queue.environments)
    for name in takers(snapshot, sorted(others), shape.resources):
        if _has_place(assignment, name, shape):
            yield UseEnvironment(name)


def _has_place(assignment: Assignment, name: EnvironmentName, shape: Shape) -> bool:
    rooms = assignment.floor.rooms.get(name, ())
    return any(room.holds(shape, assignment.floor.now) for room in rooms)


def _changed(snapshot: Snapshot, view: EnvironmentView) -> Snapshot:
    return replace(snapshot, environments={**snapshot.environments, view.environment.name: view})


def _enabled(assignment: Assignment, queue: JobQueue, shape: Shape) -> Iterator[Counterfactual]:
    """Disabled environments of the queue that would have a place left at its turn."""
    snapshot = assignment.snapshot
    for name in queue.environments:
        view = snapshot.environments.get(name)
        if view is None or view.environment.switch is Switch.ENABLED:
            continue
        enabled = replace(view, environment=replace(view.environment, switch=Switch.ENABLED))
        then = assign(_changed(snapshot, enabled), until=assignment.until)
        names = takers(then.snapshot, queue.environments, shape.resources)
        if any(_has_place(then, each, shape) for each in names):
            yield EnableEnvironment(name)


def _larger_pool(
    assignment: Assignment, queue: JobQueue, shape: Shape, waiting: Waiting
) -> Iterator[Counterfactual]:
    """The maxvCpus with which an environment could launch for all that is ahead, and for this job."""
    snapshot = assignment.snapshot
    names = takers(snapshot, queue.environments, shape.resources)
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
