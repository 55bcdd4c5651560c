"""Whether and where a job fits: working copies of what is free, and the tightest place for a shape.

The copies only shrink while a plan is made. All savings depend on that: a place that has become too small for
a shape need not be looked at again. Knows nothing of the order of jobs or of how a reservation is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil

from windfall.capacity.environments import RECLAIMABLE, WITHOUT_GPUS, Switch
from windfall.capacity.gpu_sets import suited
from windfall.capacity.machines import InstanceState
from windfall.jobs.attempts import Market
from windfall.jobs.ids import EnvironmentName, InstanceId, JobId, MachineId
from windfall.jobs.resources import Resources
from windfall.scheduling.devices import NONE_KEPT, Devices, Kept
from windfall.scheduling.snapshot import InstanceView, MachineView, Shape, Snapshot


@dataclass(slots=True)
class Guard:
    """What reserved places leave to others, on their instances and on the machine behind them."""

    #: The first job that has a place reserved, and where.
    job_id: JobId
    room: Room
    #: When the first reserved job is expected to fit; None if unknown.
    expected_at: int | None
    #: What others may hold on an instance when its reserved jobs start, without delaying them.
    beside: dict[InstanceId, Resources]
    #: The same for the whole machine, for any environment.
    beside_on_machine: Resources
    #: How many places are kept that others are vacating; 0 for a job that was passed over too long.
    claims: int = 0
    #: Where particular GPUs matter: those that are kept, and how much of each.
    kept: dict[str, float] = field(default_factory=dict)

    def ends_in_time(self, timeout_s: int | None, now: int) -> bool:
        """Whether an attempt that starts now surely ends before the reserved job is due."""
        if timeout_s is None or self.expected_at is None:
            return False
        # At its timeout an attempt is only asked to stop.
        return now + timeout_s * 1000 + self.room.machine.grace_ms < self.expected_at

    def lets_in(self, room: Room, shape: Shape, now: int) -> bool:
        """Whether a job of this shape may start in a room of the guarded machine."""
        if self.ends_in_time(shape.timeout_s, now):
            return True
        wanted = shape.resources
        if not wanted.fits_in(self.beside_on_machine):
            return False
        own = self.beside.get(room.view.id)
        if own is not None and not wanted.fits_in(own):
            return False
        return (
            not self.kept or not wanted.gpus or room.machine.devices.usable(shape, self.kept) >= wanted.gpus
        )

    def kept_from(self, shape: Shape, now: int) -> Kept:
        """The devices that a job of this shape may not have."""
        return self.kept if self.kept and not self.ends_in_time(shape.timeout_s, now) else NONE_KEPT

    def give(self, room: Room, shape: Shape, now: int) -> None:
        """Count an admitted job; one that ends in time takes nothing from what others may hold."""
        if self.ends_in_time(shape.timeout_s, now):
            return
        self.keep(room, shape.resources)

    def keep(self, room: Room, amount: Resources) -> None:
        """Reduce what others may hold."""
        self.beside_on_machine = self.beside_on_machine - amount
        own = self.beside.get(room.view.id)
        if own is not None:
            self.beside[room.view.id] = own - amount


@dataclass(slots=True)
class MachineRoom:
    """What is left of a machine while a plan is made."""

    view: MachineView
    vcpus: float
    memory_mib: int
    devices: Devices
    #: The instances on it that are READY or terminating; terminating ones still give back what they hold.
    rooms: list[Room] = field(default_factory=list)
    guard: Guard | None = None
    #: Whether something on it runs, or could run, on reclaimable capacity.
    lends: bool = False
    #: How long an attempt may take to end after it was asked to.
    grace_ms: int = 0

    @property
    def free(self) -> Resources:
        """What no attempt holds."""
        return Resources(self.vcpus, self.memory_mib, self.devices.amount)


@dataclass(slots=True, eq=False)
class Room:
    """What is left of a READY instance while a plan is made."""

    view: InstanceView
    position: int
    machine: MachineRoom
    vcpus: float
    memory_mib: int
    gpus: float
    #: Whether what runs in it may be asked to leave.
    reclaimable: bool = False
    #: What this plan has started in it, and on which devices.
    started: list[tuple[Shape, tuple[str, ...]]] = field(default_factory=list)

    @property
    def own(self) -> Resources:
        """What is left of the instance's own claim, regardless of the machine."""
        return Resources(self.vcpus, self.memory_mib, self.gpus)

    @property
    def free(self) -> Resources:
        """What a job could have now: the smaller of what the instance and its machine have left."""
        machine = self.machine
        return Resources(
            min(self.vcpus, machine.vcpus),
            min(self.memory_mib, machine.memory_mib),
            min(self.gpus, machine.devices.amount),
        )

    def free_for(self, shape: Shape, reserved: Kept = NONE_KEPT) -> Resources:
        """The same, but only the GPUs that such a job can use: a number of whole ones, or the largest part of one."""
        machine = self.machine
        gpus = min(self.gpus, machine.devices.usable(shape, reserved))
        return Resources(
            min(self.vcpus, machine.vcpus), min(self.memory_mib, machine.memory_mib), max(0, gpus)
        )

    def open_to(self, shape: Shape, now: int) -> Resources:
        """The free capacity that such a job may take, respecting reservations of others."""
        guard = self.machine.guard
        if guard is None or guard.ends_in_time(shape.timeout_s, now):
            return self.free_for(shape)
        free = self.free_for(shape, guard.kept)
        beside = guard.beside_on_machine
        own = guard.beside.get(self.view.id)
        return least(free, beside if own is None else least(beside, own))

    def could_ever_hold(self, shape: Shape) -> bool:
        """Whether the job would fit if nothing else ran on the instance and its machine."""
        wanted, machine = shape.resources, self.machine.view
        return (
            wanted.fits_in(self.view.total)
            and wanted.fits_in(machine.total)
            and shape.admits(self.view.own_type, self.view.lacks)
            and (shape.gpu_wish is None or suited(machine.devices.devices, shape.gpu_wish) >= wanted.gpus)
        )

    def holds(self, shape: Shape, now: int) -> bool:
        """Whether a job of this shape may start in it now. Plan and explain share this check."""
        wanted, machine = shape.resources, self.machine
        vcpus, memory_mib, gpus = wanted.vcpus, wanted.memory_mib, wanted.gpus
        if vcpus > self.vcpus or memory_mib > self.memory_mib or gpus > self.gpus:
            return False
        if vcpus > machine.vcpus or memory_mib > machine.memory_mib:
            return False
        if gpus and machine.devices.usable(shape) < gpus:
            return False
        if not shape.admits(self.view.own_type, self.view.lacks):
            return False
        return machine.guard is None or machine.guard.lets_in(self, shape, now)

    def take(self, shape: Shape, now: int) -> tuple[str, ...]:
        """Give a job its place; returns the devices that it gets."""
        wanted, machine = shape.resources, self.machine
        self.vcpus -= wanted.vcpus
        self.memory_mib -= wanted.memory_mib
        machine.vcpus -= wanted.vcpus
        machine.memory_mib -= wanted.memory_mib
        gpu_ids: tuple[str, ...] = ()
        if wanted.gpus:
            reserved = NONE_KEPT if machine.guard is None else machine.guard.kept_from(shape, now)
            devices = machine.devices.find(shape, reserved)
            assert devices is not None, "a job is given a place that does not hold it"
            gpu_ids = devices
            machine.devices.take(shape, gpu_ids)
            self.gpus -= wanted.gpus
        self.started.append((shape, gpu_ids))
        if machine.guard is not None:
            machine.guard.give(self, shape, now)
        return gpu_ids

    def put_back(self, shape: Shape, gpu_ids: tuple[str, ...], now: int) -> None:
        """Undo a `take`, with nothing taken in between that has not been put back."""
        wanted, machine = shape.resources, self.machine
        self.vcpus += wanted.vcpus
        self.memory_mib += wanted.memory_mib
        machine.vcpus += wanted.vcpus
        machine.memory_mib += wanted.memory_mib
        if wanted.gpus:
            machine.devices.put_back(shape, gpu_ids)
            self.gpus += wanted.gpus
        self.started.remove((shape, gpu_ids))
        guard = machine.guard
        if guard is not None and not guard.ends_in_time(shape.timeout_s, now):
            guard.keep(self, Resources(0, 0, 0) - wanted)


def least(first: Resources, second: Resources) -> Resources:
    """The smaller amount of each resource."""
    return Resources(
        min(first.vcpus, second.vcpus), min(first.memory_mib, second.memory_mib), min(first.gpus, second.gpus)
    )


def _most_free(rooms: Iterable[Room]) -> Resources:
    """The most that any of the rooms has free of each resource, taken one by one."""
    vcpus: float = 0
    gpus: float = 0
    memory_mib = 0
    for room in rooms:
        machine = room.machine
        vcpus = max(vcpus, min(room.vcpus, machine.vcpus))
        memory_mib = max(memory_mib, min(room.memory_mib, machine.memory_mib))
        gpus = max(gpus, min(room.gpus, machine.devices.amount))
    return Resources(vcpus, memory_mib, gpus)


def takers(
    snapshot: Snapshot,
    environments: Sequence[EnvironmentName],
    wanted: Resources,
    market: Market | None = None,
) -> tuple[EnvironmentName, ...]:
    """The environments that accept such jobs at all: enabled, not Fargate for GPU jobs, and of their market."""
    views = ((name, snapshot.environments.get(name)) for name in environments)
    return tuple(
        name
        for name, view in views
        if view is not None
        and view.environment.switch is Switch.ENABLED
        and not (wanted.gpus and view.environment.provisioning in WITHOUT_GPUS)
        and (market is None or (market is Market.SPOT) == (view.environment.provisioning in RECLAIMABLE))
    )


class Places:
    """The places of one environment for one shape, tightest first; a full place is dropped for good."""

    __slots__ = ("_next", "_now", "_rooms", "_shape")

    def __init__(self, shape: Shape, rooms: Sequence[Room], now: int) -> None:
        self._shape, self._now = shape, now
        self._rooms = sorted((room for room in rooms if room.holds(shape, now)), key=self._looseness)
        self._next = 0

    def _looseness(self, room: Room) -> tuple[int, float, float, int, int]:
        # Free GPUs come first: a job without GPUs takes the places without any before it spoils one that has,
        # and one with GPUs those with the smallest that do.
        free = room.free
        size = self._size_of_gpus(room) if self._shape.resources.gpus else 0
        return (size, free.gpus, free.vcpus, free.memory_mib, room.position)

    def _size_of_gpus(self, room: Room) -> int:
        """The memory of the devices that it would get there; a device that is shared already goes before all others."""
        devices = room.machine.devices
        gpu_ids = devices.find(self._shape) or ()
        if self._shape.is_part and gpu_ids and gpu_ids[0] in devices.parts:
            return -1
        gpus = (devices.known.by_id.get(gpu_id) for gpu_id in gpu_ids)
        return max((gpu.memory_mib or 0 for gpu in gpus if gpu is not None), default=0)

    def tightest(self) -> Room | None:
        """The tightest place that still holds the shape; None once there is none, for the rest of the plan."""
        while self._next < len(self._rooms):
            room = self._rooms[self._next]
            # A chosen place gets tighter with every job, so it stays the best choice until it is full.
            if room.holds(self._shape, self._now):
                return room
            self._next += 1
        return None


class Floor:
    """All rooms of a snapshot, by environment, with the places of the shapes asked for so far."""

    __slots__ = ("_by_instance", "_most_free", "_places", "claimable", "machines", "now", "rooms")

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.machines: dict[MachineId, MachineRoom] = {}
        self.rooms: dict[EnvironmentName, list[Room]] = {}
        self._by_instance: dict[InstanceId, Room] = {}
        lenders = {
            name
            for name, environment in snapshot.environments.items()
            if environment.environment.provisioning in RECLAIMABLE
        }
        for position, instance in enumerate(snapshot.instances):
            view = snapshot.machines.get(instance.machine) if instance.machine is not None else None
            if view is None or instance.state is InstanceState.LAUNCHING:
                continue
            machine = self._machine(view, snapshot.rules.grace_ms)
            total, used = instance.total, instance.used
            # No `total - used`: with 10,000 instances the values between would be a third of the pass.
            room = Room(
                instance,
                position,
                machine,
                total.vcpus - used.vcpus,
                total.memory_mib - used.memory_mib,
                total.gpus - used.gpus,
            )
            machine.rooms.append(room)
            if instance.environment in lenders:
                room.reclaimable = machine.lends = True
            if instance.state is InstanceState.READY and view.closed is None:
                self._by_instance[instance.id] = room
                self.rooms.setdefault(instance.environment, []).append(room)
        #: Where an on-demand job could take back what others on the machine have borrowed.
        self.claimable: dict[EnvironmentName, list[Room]] = {}
        for machine in self.machines.values():
            if machine.lends and len(machine.rooms) > 1:
                for room in machine.rooms:
                    if not room.reclaimable and room.view.id in self._by_instance:
                        self.claimable.setdefault(room.view.environment, []).append(room)
        self._places: dict[tuple[EnvironmentName, Shape], Places] = {}
        #: At the start of the pass. A larger shape is refused without looking at a single room.
        self._most_free = {name: _most_free(rooms) for name, rooms in self.rooms.items()}

    def _machine(self, view: MachineView, grace_ms: int) -> MachineRoom:
        machine = self.machines.get(view.id)
        if machine is None:
            total, used = view.total, view.used
            free = list(view.free_gpus[: max(0, ceil(total.gpus - used.gpus))]) if view.free_gpus else []
            devices = Devices(view.devices, free, view.shared_gpus)
            vcpus, memory_mib = total.vcpus - used.vcpus, total.memory_mib - used.memory_mib
            machine = MachineRoom(view, vcpus, memory_mib, devices, grace_ms=grace_ms)
            self.machines[view.id] = machine
        return machine

    def places(self, environment: EnvironmentName, shape: Shape) -> Places | None:
        """The places of an environment for a shape; None if it cannot have any in this pass."""
        if not shape.resources.fits_in(self._most_free.get(environment, _NO_ROOM)):
            return None
        key = (environment, shape)
        places = self._places.get(key)
        if places is None:
            places = self._places[key] = Places(shape, self.rooms[environment], self.now)
        return places

    def room(self, instance: InstanceId) -> Room | None:
        """The room of an instance; None if it is not READY."""
        return self._by_instance.get(instance)


#: Less than any job needs, so that an environment without rooms refuses even a job that needs nothing.
_NO_ROOM = Resources(-1, -1, -1)
