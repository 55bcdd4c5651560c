"""Who holds what: derived from the attempts that have a place, never stored.

One occupancy covers all machines and instances, because environments on one machine share it. It refuses to
over-commit: that would be a defect of the scheduler, and is better found here than on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windfall.capacity.gpu_sets import MOST_SHARERS, DeviceSet
from windfall.capacity.machines import Hold, Instance, Machine
from windfall.jobs.ids import AttemptToken, InstanceId, MachineId
from windfall.jobs.resources import NOTHING, Resources


class Overcommitted(Exception):
    """An attempt was given what another one holds."""


@dataclass(slots=True)
class InstanceUse:
    """What is held on one instance."""

    used: Resources = NOTHING
    holds: dict[AttemptToken, Hold] = field(default_factory=dict)
    #: Since when nothing runs on it.
    idle_since: int | None = None

    @property
    def count(self) -> int:
        """How many attempts have a place; those that wait for one of these hold nothing."""
        return sum(hold.resources != NOTHING for hold in self.holds.values())


@dataclass(frozen=True, slots=True)
class PartUse:
    """What is held of a device that several share."""

    used: float = 0.0
    sharers: int = 0


@dataclass(slots=True)
class MachineUse:
    """What is held on one machine."""

    used: Resources = NOTHING
    #: The devices that attempts have for themselves, and those that they share.
    held_gpus: set[str] = field(default_factory=set)
    shared_gpus: dict[str, PartUse] = field(default_factory=dict)


@dataclass(slots=True)
class Occupancy:
    """All holds, by instance and by machine."""

    instances: dict[InstanceId, InstanceUse] = field(default_factory=dict)
    machines: dict[MachineId, MachineUse] = field(default_factory=dict)
    #: The devices of each machine in order, and the machine that they were read from.
    _devices: dict[MachineId, tuple[Machine, DeviceSet]] = field(default_factory=dict)

    def take(self, token: AttemptToken, hold: Hold, instance: Instance) -> None:
        """Give an attempt its resources and particular devices."""
        use = self.instances.setdefault(instance.id, InstanceUse())
        if token in use.holds:
            raise Overcommitted(f"attempt {token} already holds a place on {instance.id}")
        machine = None
        if instance.machine is not None:
            machine = self.machines.setdefault(instance.machine, MachineUse())
            _check_devices(machine, token, hold)
        use.holds[token] = hold
        use.used = use.used + hold.resources
        use.idle_since = None
        if machine is not None:
            machine.used = machine.used + hold.resources
            if hold.is_part:
                for gpu_id in hold.gpu_ids:
                    part = machine.shared_gpus.get(gpu_id, PartUse())
                    machine.shared_gpus[gpu_id] = PartUse(part.used + hold.resources.gpus, part.sharers + 1)
            else:
                machine.held_gpus.update(hold.gpu_ids)

    def give_back(self, token: AttemptToken, instance: Instance, now: int) -> None:
        """Take back what an attempt held; an attempt that holds nothing is not an error (reports may repeat)."""
        use = self.instances.get(instance.id)
        hold = use.holds.pop(token, None) if use else None
        if use is None or hold is None:
            return
        use.used = use.used - hold.resources
        if not use.holds:
            use.idle_since = now
        if instance.machine is not None:
            machine = self.machines[instance.machine]
            machine.used = machine.used - hold.resources
            if not hold.is_part:
                machine.held_gpus.difference_update(hold.gpu_ids)
                return
            for gpu_id in hold.gpu_ids:
                part = machine.shared_gpus.pop(gpu_id)
                if part.sharers > 1:
                    machine.shared_gpus[gpu_id] = PartUse(part.used - hold.resources.gpus, part.sharers - 1)

    def devices(self, machine: Machine) -> DeviceSet:
        """The devices of a machine in the order in which they are given away, found once."""
        remembered = self._devices.get(machine.id)
        if remembered is None or remembered[0] is not machine:
            remembered = self._devices[machine.id] = (machine, DeviceSet.of(machine))
        return remembered[1]

    def free_gpus(self, machine: Machine) -> tuple[str, ...]:
        """The devices of a machine that nobody has any of and that are not fenced, the least memory first."""
        ids, use = self.devices(machine).ids, self.machines.get(machine.id)
        if use is None or not (use.held_gpus or use.shared_gpus):
            return ids
        return tuple(
            gpu_id for gpu_id in ids if gpu_id not in use.held_gpus and gpu_id not in use.shared_gpus
        )

    def shared_gpus(self, machine: MachineId) -> Mapping[str, PartUse]:
        """What is held of the devices of a machine that are shared."""
        use = self.machines.get(machine)
        return dict(use.shared_gpus) if use and use.shared_gpus else _NONE_SHARED

    def used_on(self, machine: MachineId) -> Resources:
        """What all environments together use of a machine."""
        use = self.machines.get(machine)
        return use.used if use else NOTHING


_NONE_SHARED: Mapping[str, PartUse] = {}


def _check_devices(machine: MachineUse, token: AttemptToken, hold: Hold) -> None:
    clash = machine.held_gpus.intersection(hold.gpu_ids)
    if not hold.is_part:
        clash |= machine.shared_gpus.keys() & set(hold.gpu_ids)
    if clash:
        raise Overcommitted(f"attempt {token} was given {sorted(clash)}, which another attempt holds")
    for gpu_id in hold.gpu_ids if hold.is_part else ():
        part = machine.shared_gpus.get(gpu_id, PartUse())
        if part.used + hold.resources.gpus > 1 or part.sharers >= MOST_SHARERS:
            raise Overcommitted(
                f"attempt {token} was given {hold.resources.gpus:g} of {gpu_id}, of which {part.sharers} others"
                f" hold {part.used:g}"
            )
