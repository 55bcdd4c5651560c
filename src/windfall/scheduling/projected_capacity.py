"""The rooms of one environment after some attempts have left, to place the nodes of a multi-node job in.

Works on copies: what is free in the plan stays as it is. Must not know which attempts may be asked to leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from windfall.jobs.ids import InstanceId, MachineId
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.devices import Devices
from windfall.scheduling.fit import MachineRoom, Room, least
from windfall.scheduling.gangs import Seat, seat_in
from windfall.scheduling.horizon import Horizon, matters_which
from windfall.scheduling.snapshot import Gang, Release


class ProjectedCapacity:
    """The rooms of an environment that could hold nodes of a gang if all candidates left."""

    __slots__ = ("_devices", "_own", "_shared", "gang", "horizon", "most", "rooms")

    def __init__(
        self, horizon: Horizon, rooms: Iterable[Room], gang: Gang, askable: Sequence[Release]
    ) -> None:
        self.horizon, self.gang = horizon, gang
        self.rooms: dict[InstanceId, Room] = {}
        self._own: dict[InstanceId, Resources] = {}
        self._shared: dict[MachineId, Resources] = {}
        #: What they would have together if all candidates left: an upper bound for the nodes.
        self.most = NOTHING
        #: Of machines where particular GPUs matter.
        self._devices: dict[MachineId, Devices] = {}
        in_room, on_machine = _where(horizon, askable)
        for room in rooms:
            guard, machine = room.machine.guard, room.machine.view.id
            if guard is not None and not guard.claims:
                continue  # It is kept for a job that was passed over too long.
            exact = any(matters_which(room, shape) for shape, _ in gang.parts)
            own, shared = horizon.own(room, exact=exact), horizon.shared(room, exact=exact)
            most = least(own + in_room.get(room.view.id, NOTHING), shared + on_machine.get(machine, NOTHING))
            if not any(
                shape.resources.fits_in(replace(most, gpus=shape.resources.gpus) if exact else most)
                and room.could_ever_hold(shape)
                for shape, _ in gang.parts
            ):
                continue
            self.rooms[room.view.id] = room
            self.most = self.most + most
            self._own[room.view.id] = own
            self._shared.setdefault(machine, shared)
            if exact and machine not in self._devices:
                self._devices[machine] = horizon.devices(room.machine)

    def free(self) -> Resources:
        """What they have together if no attempt is asked to leave."""
        total = NOTHING
        for room_id, room in self.rooms.items():
            total = total + least(self._own[room_id], self._shared[room.machine.view.id])
        return total

    def on_machines(self, leaving: Iterable[Release]) -> list[Release]:
        """The attempts that leave machines with such rooms."""
        room_of = self.horizon.holders.room_of
        return [release for release in leaving if room_of(release).machine.view.id in self._shared]

    def seats(self, leaving: Sequence[Release]) -> list[Seat]:
        """The places of all nodes after these have left; empty if one of them finds none."""
        copies = self._after(leaving)
        seats = seat_in(copies, self.gang, self.horizon.holders.floor.now)
        return [
            replace(
                seat,
                room=self.rooms[seat.room.view.id],
                gpu_ids=seat.gpu_ids if seat.room.machine.view.id in self._devices else (),
            )
            for seat in seats
        ]

    def _after(self, leaving: Sequence[Release]) -> list[Room]:
        in_room, on_machine = _where(self.horizon, leaving)
        machines: dict[MachineId, MachineRoom] = {}
        copies = []
        for room_id, room in self.rooms.items():
            machine_id = room.machine.view.id
            machine = machines.get(machine_id)
            if machine is None:
                shared, given = self._shared[machine_id], on_machine.get(machine_id)
                shared = shared if given is None else shared + given
                machine = machines[machine_id] = self._machine(room.machine, shared, leaving)
            own, given = self._own[room_id], in_room.get(room_id)
            own = own if given is None else own + given
            copies.append(Room(room.view, room.position, machine, own.vcpus, own.memory_mib, own.gpus))
        return copies

    def _machine(self, machine: MachineRoom, shared: Resources, leaving: Sequence[Release]) -> MachineRoom:
        remembered = self._devices.get(machine.view.id)
        if remembered is None:
            # Counts are enough: any devices will do for them.
            count = max(0, int(shared.gpus))
            ids = [*machine.view.devices.ids, *(f"{number}" for number in range(count))][:count]
            devices = Devices(machine.view.devices, ids, {})
        else:
            devices = remembered.copy()
            for release in leaving:
                if self.horizon.holders.room_of(release).machine is machine:
                    devices.give_back(release.resources.gpus, release.gpu_ids)
            reserved = machine.guard.kept if machine.guard is not None else {}
            devices.whole[:] = [gpu_id for gpu_id in devices.whole if gpu_id not in reserved]
        return MachineRoom(machine.view, shared.vcpus, shared.memory_mib, devices)


def _where(
    horizon: Horizon, leaving: Iterable[Release]
) -> tuple[dict[InstanceId, Resources], dict[MachineId, Resources]]:
    """What these give back, by instance and by machine."""
    in_room: dict[InstanceId, list[float]] = {}
    on_machine: dict[MachineId, list[float]] = {}
    for release in leaving:
        room, given = horizon.holders.room_of(release), release.resources
        # Summed as plain numbers: a search reads hundreds of them hundreds of times.
        for sums in (
            in_room.setdefault(room.view.id, [0.0, 0.0, 0.0]),
            on_machine.setdefault(room.machine.view.id, [0.0, 0.0, 0.0]),
        ):
            sums[0] += given.vcpus
            sums[1] += given.memory_mib
            sums[2] += given.gpus
    return (
        {key: Resources(vcpus, int(memory), gpus) for key, (vcpus, memory, gpus) in in_room.items()},
        {key: Resources(vcpus, int(memory), gpus) for key, (vcpus, memory, gpus) in on_machine.items()},
    )
