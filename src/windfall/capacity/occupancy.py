"""Who holds what: derived from the attempts that have a place, never stored.

One occupancy covers all machines and instances, because environments on one machine share it. It refuses to
over-commit: that would be a defect of the scheduler, and is better found here than on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(slots=True)
class MachineUse:
    """What is held on one machine."""

    used: Resources = NOTHING
    held_gpus: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Occupancy:
    """All holds, by instance and by machine."""

    instances: dict[InstanceId, InstanceUse] = field(default_factory=dict)
    machines: dict[MachineId, MachineUse] = field(default_factory=dict)

    def take(self, token: AttemptToken, hold: Hold, instance: Instance) -> None:
        """Give an attempt its resources and particular devices."""
        use = self.instances.setdefault(instance.id, InstanceUse())
        if token in use.holds:
            raise Overcommitted(f"attempt {token} already holds a place on {instance.id}")
        machine = None
        if instance.machine is not None:
            machine = self.machines.setdefault(instance.machine, MachineUse())
            clash = machine.held_gpus.intersection(hold.gpu_ids)
            if clash:
                raise Overcommitted(f"attempt {token} was given {sorted(clash)}, which another attempt holds")
        use.holds[token] = hold
        use.used = use.used + hold.resources
        use.idle_since = None
        if machine is not None:
            machine.used = machine.used + hold.resources
            machine.held_gpus.update(hold.gpu_ids)

    def give_back(self, token: AttemptToken, instance: Instance, now: int) -> None:
        """Take back what an attempt held; an attempt that holds nothing is no error (reports may repeat)."""
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
            machine.held_gpus.difference_update(hold.gpu_ids)

    def free_gpus(self, machine: Machine) -> tuple[str, ...]:
        """The devices of a machine that nobody holds, in the machine's own order."""
        use = self.machines.get(machine.id)
        held = use.held_gpus if use else ()
        return tuple(gpu.id for gpu in machine.gpus if gpu.id not in held)

    def used_on(self, machine: MachineId) -> Resources:
        """What all environments together use of a machine."""
        use = self.machines.get(machine)
        return use.used if use else NOTHING
