"""What stands between a job and one environment: for good, or just now.

Uses the rooms and pools that a plan uses, so that explain cannot say something else than plan does.
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.capacity.environments import WITHOUT_GPUS, Switch
from windfall.capacity.machines import InstanceState
from windfall.jobs.ids import EnvironmentName, MachineId
from windfall.jobs.resources import Resources
from windfall.scheduling.assign import Assignment, takers
from windfall.scheduling.fit import Room, least, most
from windfall.scheduling.launchable import Pool
from windfall.scheduling.reasons import (
    AsksTooMuch,
    EngineTrouble,
    EnvironmentDisabled,
    EnvironmentUnknown,
    GpusOnFargate,
    HeldBack,
    InstanceLaunching,
    LaunchesNext,
    MaxVcpusReached,
    MaxVcpusTooSmall,
    NoneAvailable,
    NoSingleInstance,
    NothingOffered,
    Reason,
    RoomTaken,
)
from windfall.scheduling.reserve import missing_in
from windfall.scheduling.snapshot import EnvironmentView, Shape, Snapshot
from windfall.scheduling.wording import Resource


def lasting_obstacle(snapshot: Snapshot, name: EnvironmentName, wanted: Resources) -> Reason | None:
    """Why an environment will never take such a job as things are; None if it would."""
    view = snapshot.environments.get(name)
    if view is None:
        return EnvironmentUnknown(name)
    if view.environment.switch is not Switch.ENABLED:
        return EnvironmentDisabled(name)
    if wanted.gpus and view.environment.provisioning in WITHOUT_GPUS:
        return GpusOnFargate(name, wanted.gpus, environments_for(snapshot, wanted))
    return _too_small(snapshot, view, wanted)


def environments_for(snapshot: Snapshot, wanted: Resources) -> tuple[EnvironmentName, ...]:
    """All environments that would take such a job sooner or later, by name."""
    names = takers(snapshot, sorted(snapshot.environments), wanted)
    return tuple(name for name in names if _too_small(snapshot, snapshot.environments[name], wanted) is None)


def _too_small(snapshot: Snapshot, view: EnvironmentView, wanted: Resources) -> Reason | None:
    environment = view.environment
    present = [
        _on_machine(snapshot, instance.machine, instance.total)
        for instance in snapshot.instances
        if instance.environment == environment.name and instance.state is not InstanceState.TERMINATING
    ]
    if any(wanted.fits_in(total) for total in present):
        return None
    offers = view.offers
    offered = [_on_machine(snapshot, offer.machine, offer.resources) for offer in offers]
    sizes = [
        offer.resources.vcpus for offer, total in zip(offers, offered, strict=True) if wanted.fits_in(total)
    ]
    if sizes:
        smallest = min(sizes)
        if smallest <= environment.max_vcpus:
            return None
        return MaxVcpusTooSmall(environment.name, environment.max_vcpus, smallest)
    if not present and not offered:
        # An engine in trouble may know no offers now and have some later.
        return NothingOffered(environment.name) if view.trouble is None else None
    largest = most(present + offered)
    for resource in Resource:
        if resource.of(wanted) > resource.of(largest):
            return AsksTooMuch(environment.name, resource, resource.of(wanted), resource.of(largest))
    return NoSingleInstance(environment.name, wanted)


def _on_machine(snapshot: Snapshot, machine: MachineId | None, amount: Resources) -> Resources:
    view = snapshot.machines.get(machine) if machine is not None else None
    return amount if view is None else least(amount, view.total)


def passing_obstacles(assignment: Assignment, name: EnvironmentName, shape: Shape) -> Iterator[Reason]:
    """Why an environment that takes such jobs has no place for one at this job's turn."""
    room_reason = _rooms_full(assignment, name, shape)
    if room_reason is not None:
        yield room_reason
    pool = assignment.pools[name]
    coming = sum(one.instances for one in pool.coming if shape.resources.fits_in(one.left))
    if coming:
        yield InstanceLaunching(name, coming)
    launch_reason = _launch(pool, shape.resources)
    if launch_reason is not None:
        yield launch_reason


def _rooms_full(assignment: Assignment, name: EnvironmentName, shape: Shape) -> Reason | None:
    wanted = shape.resources
    rooms = [room for room in assignment.floor.rooms.get(name, ()) if room.could_ever_hold(wanted)]
    if not rooms:
        return None
    closest = min(rooms, key=lambda room: (missing_in(room, wanted), room.position))
    guard = closest.machine.guard
    if wanted.fits_in(closest.free):
        assert guard is not None, "explain is asked about a job that fits, which plan would have placed"
        return HeldBack(guard.job_id, guard.room.view.id, guard.expected_at)
    return _room_taken(closest, wanted)


def _room_taken(room: Room, wanted: Resources) -> RoomTaken:
    free, total = room.free, least(room.view.total, room.machine.view.total)
    lacking = next(resource for resource in Resource if resource.of(wanted) > resource.of(free))
    return RoomTaken(
        room.view.environment,
        room.view.id,
        lacking,
        lacking.of(wanted),
        lacking.of(free),
        lacking.of(total),
        sum(len(other.view.releases) + len(other.started) for other in room.machine.rooms),
    )


def _launch(pool: Pool, wanted: Resources) -> Reason | None:
    """What a launch for the job would meet; None where none of the offers would take it."""
    view = pool.view
    name = view.environment.name
    if view.trouble is not None:
        return EngineTrouble(name, view.trouble)
    offers = [(index, offer) for index, offer in enumerate(view.offers) if pool.holds(offer, wanted)]
    if not offers or not pool.can_launch:
        return None
    for index, offer in offers:
        if pool.launchable(index, 1):
            return LaunchesNext(name, offer.type)
    if all(offer.available == 0 for _, offer in offers):
        return NoneAvailable(name, tuple(offer.type for _, offer in offers))
    return MaxVcpusReached(name, pool.vcpus, view.environment.max_vcpus)
