"""The GPUs of a machine or of an offer, and how many of them one job could have.

Decides the order in which devices are given away (the least memory first, so that larger ones stay for those who ask
for them) and which may be shared. Must not know what is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from windfall.capacity.machines import GpuDevice, Machine
from windfall.jobs.gpus import GpuWish, gib

#: This many programs at most use one device at a time: MPS takes no more.
MOST_SHARERS = 48


def can_be_shared(gpu: GpuDevice) -> bool:
    """Whether several jobs may have a part of a device each."""
    return gpu.sharing is not None


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """All GPUs of a machine, the ones that nobody gets included."""

    #: In the order in which they are given away.
    devices: tuple[GpuDevice, ...] = ()
    by_id: Mapping[str, GpuDevice] = field(default_factory=dict)
    #: The place of each in that order.
    rank: Mapping[str, int] = field(default_factory=dict)
    #: Those that are kept from everybody, and why.
    fenced: Mapping[str, str] = field(default_factory=dict)
    #: The others.
    ids: tuple[str, ...] = ()
    #: Whether it makes no difference which of them a job has: one model, none fenced, none shared.
    interchangeable: bool = True

    @classmethod
    def of(cls, machine: Machine) -> DeviceSet:
        """The devices of a machine as they are now."""
        if not machine.gpus:
            return NO_DEVICES
        # One whose memory nobody knows is not the one to keep for those who ask for much.
        devices = tuple(sorted(machine.gpus, key=lambda gpu: gpu.memory_mib or 0))
        reasons = ((gpu.id, machine.why_fenced(gpu)) for gpu in devices)
        fenced = {gpu_id: reason for gpu_id, reason in reasons if reason is not None}
        return cls(
            devices,
            {gpu.id: gpu for gpu in devices},
            {gpu.id: rank for rank, gpu in enumerate(devices)},
            fenced,
            tuple(gpu.id for gpu in devices if gpu.id not in fenced),
            not fenced
            and len({(gpu.name, gpu.memory_mib) for gpu in devices}) == 1
            and not any(can_be_shared(gpu) for gpu in devices),
        )


NO_DEVICES = DeviceSet()


def suited(devices: Iterable[GpuDevice], wish: GpuWish | None) -> int:
    """How many of these devices one job could have together: of one model if it asks for a model, one to share."""
    if wish is None:
        return sum(1 for _ in devices)
    fitting = [gpu for gpu in devices if wish.admits(gpu.name, gpu.memory_mib)]
    if wish.share is not None:
        return 1 if any(can_be_shared(gpu) for gpu in fitting) else 0
    if wish.model is None or not fitting:
        return len(fitting)
    return max(Counter((gpu.name, gpu.memory_mib) for gpu in fitting).values())


def listed_kinds(devices: Iterable[GpuDevice]) -> tuple[str, ...]:
    """Devices for people, as `2 x NVIDIA A10G (24 GiB)`, in their order."""
    counted = Counter((gpu.name, gpu.memory_mib) for gpu in devices)
    return tuple(
        f"{count} x {name}" if memory is None else f"{count} x {name} ({gib(memory)})"
        for (name, memory), count in counted.items()
    )
