"""What stands between a job and one environment: for good, or just now.

Uses the rooms and pools that a plan uses, so that explain cannot contradict plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from windfall.capacity.environments import WITHOUT_GPUS, Switch
from windfall.capacity.gpu_sets import listed_kinds, suited
from windfall.capacity.machines import GpuDevice, InstanceState, Offer
from windfall.jobs.ids import EnvironmentName, MachineId
from windfall.jobs.resources import Resources
from windfall.scheduling.allocate import too_expensive
from windfall.scheduling.assign import Assignment
from windfall.scheduling.fit import Room, least, takers
from windfall.scheduling.gpu_reasons import GpusFenced, GpusNotShared, NoSuchGpu
from windfall.scheduling.launchable import Pool, has_gpus, own_type
from windfall.scheduling.reach_reasons import OthersOutOfReach, OutOfReach
from windfall.scheduling.reasons import (
    AsksTooMuch,
    EarlierEnvironment,
    EngineTrouble,
    EnvironmentDisabled,
    EnvironmentUnknown,
    GpusOnFargate,
    HeldBack,
    InstanceLaunching,
    LaunchesNext,
    LaunchFailed,
    MaxVcpusReached,
    MaxVcpusTooSmall,
    NoneAvailable,
    NoSingleInstance,
    NothingOffered,
    OtherInstanceType,
    Reason,
    RoomTaken,
    TooExpensive,
)
from windfall.scheduling.reserve import lacks_fenced, missing_in
from windfall.scheduling.snapshot import EnvironmentView, InstanceView, Shape, Snapshot
from windfall.scheduling.wording import Resource


def lasting_obstacle(snapshot: Snapshot, name: EnvironmentName, shape: Shape) -> Reason | None:
    """Why an environment will never take such a job as things are; None if it would."""
    view = snapshot.environments.get(name)
    if view is None:
        return EnvironmentUnknown(name)
    if view.environment.switch is not Switch.ENABLED:
        return EnvironmentDisabled(name)
    wanted = shape.resources
    if wanted.gpus and view.environment.provisioning in WITHOUT_GPUS:
        return GpusOnFargate(name, wanted.gpus, environments_for(snapshot, shape))
    return _too_small(snapshot, view, shape)


def environments_for(snapshot: Snapshot, shape: Shape) -> tuple[EnvironmentName, ...]:
    """All environments that would take such a job sooner or later, by name."""
    names = takers(snapshot, sorted(snapshot.environments), shape.resources, shape.market)
    return tuple(name for name in names if _too_small(snapshot, snapshot.environments[name], shape) is None)


def _too_small(snapshot: Snapshot, view: EnvironmentView, shape: Shape) -> Reason | None:
    environment, wanted = view.environment, shape.resources
    instances = [
        instance
        for instance in snapshot.instances
        if instance.environment == environment.name and instance.state is not InstanceState.TERMINATING
    ]
    admitted = [instance for instance in instances if shape.admits(instance.own_type, instance.lacks)]
    present = [_on_machine(snapshot, instance.machine, instance.total) for instance in admitted]
    if any(
        wanted.fits_in(total) and has_gpus(_gpus_of(snapshot, view, instance), shape)
        for instance, total in zip(admitted, present, strict=True)
    ):
        return None
    offers = [offer for offer in view.offers if shape.admits(own_type(offer), offer.lacks)]
    if not present and not offers and (instances or view.offers):
        lacks = [instance.lacks for instance in instances] + [offer.lacks for offer in view.offers]
        if missing := sorted(frozenset.intersection(*lacks).intersection(shape.needs)):
            return OutOfReach(environment.name, tuple(missing))
        types = {instance.type for instance in instances} | {offer.type for offer in view.offers}
        return OtherInstanceType(environment.name, shape.instance_type or "", tuple(sorted(types)))
    offered = [_on_machine(snapshot, offer.machine, offer.resources) for offer in offers]
    sizes = [
        offer.resources.vcpus
        for offer, total in zip(offers, offered, strict=True)
        if wanted.fits_in(total) and has_gpus(_offered_gpus(snapshot, offer), shape)
    ]
    if sizes:
        smallest = min(sizes)
        if smallest <= environment.max_vcpus:
            return None
        return MaxVcpusTooSmall(environment.name, environment.max_vcpus, smallest)
    if not present and not offered:
        # An engine in trouble may know no offers now and have some later.
        return NothingOffered(environment.name) if view.trouble is None else None
    if elsewhere := _missing_elsewhere(snapshot, view, shape):
        return OutOfReach(environment.name, elsewhere, others_too_small=True)
    largest = _most(present + offered)
    for resource in Resource:
        if resource.of(wanted) > resource.of(largest):
            return AsksTooMuch(environment.name, resource, resource.of(wanted), resource.of(largest))
    if shape.gpu_wish is not None and any(wanted.fits_in(total) for total in present + offered):
        devices: dict[str | None, tuple[GpuDevice, ...]] = {
            **{offer.machine or offer.type: _offered_gpus(snapshot, offer) for offer in offers},
            **{
                instance.own_type or instance.machine: _gpus_of(snapshot, view, instance)
                for instance in admitted
            },
        }
        return _other_gpus(environment.name, shape, [gpu for each in devices.values() for gpu in each])
    return NoSingleInstance(environment.name, wanted)


def _missing_elsewhere(snapshot: Snapshot, view: EnvironmentView, shape: Shape) -> tuple[str, ...]:
    """The storage whose absence alone keeps the job off machines that are large enough for it."""
    if not shape.needs:
        return ()
    name, anywhere = view.environment.name, replace(shape, needs=())
    instances = [
        (
            instance.lacks,
            _on_machine(snapshot, instance.machine, instance.total),
            _gpus_of(snapshot, view, instance),
        )
        for instance in snapshot.instances
        if instance.environment == name
        and instance.state is not InstanceState.TERMINATING
        and anywhere.admits(instance.own_type)
    ]
    offers = [
        (offer.lacks, _on_machine(snapshot, offer.machine, offer.resources), _offered_gpus(snapshot, offer))
        for offer in view.offers
        if anywhere.admits(own_type(offer))
    ]
    large_enough = [
        lacks
        for lacks, total, gpus in instances + offers
        if shape.resources.fits_in(total) and has_gpus(gpus, shape)
    ]
    return tuple(sorted(frozenset[str]().union(*large_enough).intersection(shape.needs)))


def _other_gpus(name: EnvironmentName, shape: Shape, devices: list[GpuDevice]) -> Reason:
    """What is wrong with the existing GPUs, each kind named once."""
    wish = shape.gpu_wish
    assert wish is not None, "a job without a wish takes any GPU"
    fitting = [gpu for gpu in devices if wish.admits(gpu.name, gpu.memory_mib)]
    if wish.share is not None and fitting:
        return GpusNotShared(name, wish.share, wish.words(), listed_kinds(fitting))
    of_model = [gpu for gpu in devices if replace(wish, memory_mib=None).admits(gpu.name, gpu.memory_mib)]
    kinds = listed_kinds(devices)
    return NoSuchGpu(name, shape.resources.gpus, wish.words(), kinds, listed_kinds(of_model))


def _gpus_of(snapshot: Snapshot, view: EnvironmentView, instance: InstanceView) -> tuple[GpuDevice, ...]:
    """The devices of an instance; of a launching one, those of its instance type."""
    machine = snapshot.machines.get(instance.machine) if instance.machine is not None else None
    if machine is not None:
        return machine.devices.devices
    offers = (offer for offer in view.offers if offer.type == instance.type)
    return next((_offered_gpus(snapshot, offer) for offer in offers), ())


def _offered_gpus(snapshot: Snapshot, offer: Offer) -> tuple[GpuDevice, ...]:
    machine = snapshot.machines.get(offer.machine) if offer.machine is not None else None
    return offer.gpus if machine is None else machine.devices.devices


def _on_machine(snapshot: Snapshot, machine: MachineId | None, amount: Resources) -> Resources:
    view = snapshot.machines.get(machine) if machine is not None else None
    return amount if view is None else least(amount, view.total)


def passing_obstacles(
    assignment: Assignment, name: EnvironmentName, shape: Shape, jobs: int = 1
) -> Iterator[Reason]:
    """Why an environment that accepts such jobs has no place for one of `jobs` jobs at this job's turn."""
    room_reason = _rooms_full(assignment, name, shape)
    if room_reason is not None:
        yield room_reason
        if missing := _missing_elsewhere(assignment.snapshot, assignment.pools[name].view, shape):
            yield OthersOutOfReach(name, missing)
    pool = assignment.pools[name]
    coming = pool.coming_for(shape)
    if coming:
        yield InstanceLaunching(name, coming)
    launch_reason = _launch(pool, shape, jobs)
    if launch_reason is not None:
        yield launch_reason


def _rooms_full(assignment: Assignment, name: EnvironmentName, shape: Shape) -> Reason | None:
    wanted = shape.resources
    rooms = [room for room in assignment.floor.rooms.get(name, ()) if room.could_ever_hold(shape)]
    if not rooms:
        return None
    closest = min(rooms, key=lambda room: (lacks_fenced(room, shape), missing_in(room, shape), room.position))
    if lacks_fenced(closest, shape):
        return _fenced(closest)
    guard = closest.machine.guard
    if closest.holds(shape, assignment.floor.now):
        return EarlierEnvironment(name, closest.view.id)
    if wanted.fits_in(closest.free_for(shape)):
        assert guard is not None, "explain is asked about a job that fits, which plan would have placed"
        return HeldBack(guard.job_id, guard.room.view.id, guard.expected_at)
    return _room_taken(closest, shape)


def _fenced(room: Room) -> GpusFenced:
    devices = room.machine.view.devices
    fenced = tuple(devices.fenced.items())
    return GpusFenced(room.view.environment, room.view.id, fenced, len(devices.devices))


def _room_taken(room: Room, shape: Shape) -> RoomTaken:
    wanted, wish = shape.resources, shape.gpu_wish
    free, total = room.free_for(shape), least(room.view.total, room.machine.view.total)
    if wish is not None:
        total = replace(total, gpus=suited(room.machine.view.devices.devices, wish))
    lacking = next(resource for resource in Resource if resource.of(wanted) > resource.of(free))
    return RoomTaken(
        room.view.environment,
        room.view.id,
        lacking,
        lacking.of(wanted),
        lacking.of(free),
        lacking.of(total),
        sum(len(other.view.releases) + len(other.started) for other in room.machine.rooms),
        wish.words() if wish is not None and lacking is Resource.GPUS else "",
    )


def _launch(pool: Pool, shape: Shape, jobs: int) -> Reason | None:
    """What a launch for the jobs would run into; None if no offer would take them."""
    view = pool.view
    name = view.environment.name
    if view.trouble is not None:
        return EngineTrouble(name, view.trouble)
    offers = [(index, view.offers[index]) for index in pool.choices(shape, jobs)]
    if not offers:
        expensive = [
            offer
            for offer in view.offers
            if pool.holds(offer, shape) and too_expensive(view.environment, offer)
        ]
        return _too_expensive(view, expensive) if expensive else None
    for index, offer in offers:
        if pool.launchable(index, 1):
            return LaunchesNext(name, offer.type)
    short = [(offer, view.shortages[offer.type]) for _, offer in offers if offer.type in view.shortages]
    if short:
        offer, shortage = min(short, key=lambda item: item[1].again_at)
        return LaunchFailed(name, offer.type, shortage.reason, shortage.again_at)
    if all(offer.available == 0 for _, offer in offers):
        return NoneAvailable(name, tuple(offer.type for _, offer in offers))
    return MaxVcpusReached(name, pool.vcpus, view.environment.max_vcpus)


def _too_expensive(view: EnvironmentView, expensive: list[Offer]) -> Reason:
    offer = min(expensive, key=lambda offer: offer.usd_hour or 0.0)
    bid = view.environment.bid_percent or 0
    return TooExpensive(
        view.environment.name, offer.type, offer.usd_hour or 0.0, offer.on_demand_usd_hour or 0.0, bid
    )


def _most(amounts: Iterable[Resources]) -> Resources:
    """The largest amount of each resource, taken one by one."""
    listed = [Resources(0, 0, 0), *amounts]
    return Resources(
        max(amount.vcpus for amount in listed),
        max(amount.memory_mib for amount in listed),
        max(amount.gpus for amount in listed),
    )
