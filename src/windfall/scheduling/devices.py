"""Which GPUs of a machine a job gets: working copies of what is free, whole devices and parts of shared ones.

Whole devices are given out smallest first, of one model where possible, and always of one model if a model
was requested. Parts go where they leave the least over, and open another device only if no shared one has
room. Must not know vCPUs, memory or dispatch order.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping

from windfall.capacity.gpu_sets import MOST_SHARERS, DeviceSet, can_be_shared
from windfall.capacity.machines import GpuDevice
from windfall.capacity.occupancy import PartUse
from windfall.jobs.gpus import GpuWish
from windfall.scheduling.snapshot import Shape

#: Devices that are kept for a job, and how much of each.
Kept = Mapping[str, float]
NONE_KEPT: Kept = {}


class Devices:
    """What is left of the GPUs of a machine."""

    __slots__ = ("known", "parts", "whole")

    def __init__(self, device_set: DeviceSet, whole: list[str], parts: Mapping[str, PartUse]) -> None:
        self.known = device_set
        #: Unused devices, in the order in which they are given out.
        self.whole = whole
        self.parts: dict[str, PartUse] = dict(parts) if parts else {}

    @property
    def interchangeable(self) -> bool:
        """Whether counts are enough: it makes no difference which devices a job has, and none is shared."""
        return self.known.interchangeable and not self.parts

    @property
    def amount(self) -> float:
        """Everything free together, including the rest of shared devices; an upper bound for any job."""
        if not self.parts:
            return len(self.whole)
        return len(self.whole) + sum(1 - part.used for part in self.parts.values())

    def copy(self) -> Devices:
        """A copy to try changes on."""
        return Devices(self.known, list(self.whole), self.parts)

    def usable(self, shape: Shape, reserved: Kept = NONE_KEPT) -> float:
        """How much of what is free a job of this shape could have: whole devices, or the largest part of one."""
        wish = shape.gpu_wish
        if wish is None:
            return len(self.whole) if not reserved else sum(gpu_id not in reserved for gpu_id in self.whole)
        if shape.is_part:
            return max((left for _, left in self._parts_left(wish, reserved)), default=0)
        fitting = self._fitting(wish, reserved)
        if wish.model is None or not fitting:
            return len(fitting)
        return max(Counter(_kind(gpu) for gpu in fitting).values())

    def find(self, shape: Shape, reserved: Kept = NONE_KEPT) -> tuple[str, ...] | None:
        """The devices that a job of this shape gets; None if there are not enough of the right kind."""
        wanted, wish = shape.resources.gpus, shape.gpu_wish
        if not wanted:
            return ()
        if shape.is_part:
            return self._find_part(wanted, wish or GpuWish(), reserved)
        count = int(wanted)
        if not reserved and wish is None and (count == 1 or self.known.interchangeable):
            return tuple(self.whole[:count]) if len(self.whole) >= count else None
        fitting = self._fitting(wish, reserved)
        by_kind: dict[tuple[str, int | None], list[str]] = {}
        for gpu in fitting:
            by_kind.setdefault(_kind(gpu), []).append(gpu.id)
        enough = next((same for same in by_kind.values() if len(same) >= count), None)
        if enough is not None:
            return tuple(enough[:count])
        if len(fitting) < count or (wish is not None and wish.model is not None):
            return None
        return tuple(gpu.id for gpu in fitting[:count])

    def candidates(self, shape: Shape) -> tuple[str, ...]:
        """The free devices that such a job could have; for a part, the device with the most left."""
        wish = shape.gpu_wish
        if not shape.is_part:
            return tuple(gpu.id for gpu in self._fitting(wish, NONE_KEPT))
        most = max(self._parts_left(wish or GpuWish(), NONE_KEPT), key=lambda part: part[1], default=None)
        return () if most is None else (most[0],)

    def take(self, shape: Shape, gpu_ids: tuple[str, ...]) -> None:
        """Give out these devices, or a part of this one."""
        for gpu_id in gpu_ids:
            if not shape.is_part:
                self.whole.remove(gpu_id)
                continue
            part = self.parts.get(gpu_id)
            if part is None:
                part = PartUse()
                self.whole.remove(gpu_id)
            self.parts[gpu_id] = PartUse(part.used + shape.resources.gpus, part.sharers + 1)

    def put_back(self, shape: Shape, gpu_ids: tuple[str, ...]) -> None:
        """Undo a `take`. Unlike what attempts give back, these were free a moment ago, whether known or not."""
        if shape.is_part:
            self.give_back(shape.resources.gpus, gpu_ids)
        else:
            self.whole[:] = sorted([*gpu_ids, *self.whole], key=lambda gpu_id: self.known.rank.get(gpu_id, 0))

    def give_back(self, gpus: float, gpu_ids: Iterable[str]) -> None:
        """Return devices, or a part of one; a fenced device stays unusable."""
        for gpu_id in gpu_ids:
            if gpu_id in self.known.fenced or gpu_id not in self.known.rank:
                continue
            if 0 < gpus < 1:
                part = self.parts.pop(gpu_id, PartUse(gpus, 1))
                if part.sharers > 1:
                    self.parts[gpu_id] = PartUse(part.used - gpus, part.sharers - 1)
                    continue
            insort(self.whole, gpu_id, key=self.known.rank.__getitem__)

    def _fitting(self, wish: GpuWish | None, reserved: Kept) -> list[GpuDevice]:
        gpus = (self._device(gpu_id) for gpu_id in self.whole if gpu_id not in reserved)
        return [gpu for gpu in gpus if wish is None or wish.admits(gpu.name, gpu.memory_mib)]

    def _device(self, gpu_id: str) -> GpuDevice:
        return self.known.by_id.get(gpu_id) or GpuDevice(gpu_id, "")

    def _parts_left(self, wish: GpuWish, reserved: Kept) -> Iterable[tuple[str, float]]:
        """What is left of each device that the job may share: shared ones first, then unused ones."""
        for gpu_id, part in self.parts.items():
            if part.sharers < MOST_SHARERS and gpu_id not in self.known.fenced and self._shares(gpu_id, wish):
                yield gpu_id, 1 - part.used - reserved.get(gpu_id, 0)
        for gpu_id in self.whole:
            if self._shares(gpu_id, wish):
                yield gpu_id, 1 - reserved.get(gpu_id, 0)

    def _shares(self, gpu_id: str, wish: GpuWish) -> bool:
        gpu = self._device(gpu_id)
        return can_be_shared(gpu) and wish.admits(gpu.name, gpu.memory_mib)

    def _find_part(self, wanted: float, wish: GpuWish, reserved: Kept) -> tuple[str, ...] | None:
        enough = [(left, gpu_id) for gpu_id, left in self._parts_left(wish, reserved) if left >= wanted]
        if not enough:
            return None
        # The tightest first; `min` takes the first of equals, which is one that is shared already.
        return (min(enough, key=lambda part: (part[1] not in self.parts, part[0]))[1],)


def _kind(gpu: GpuDevice) -> tuple[str, int | None]:
    return (gpu.name, gpu.memory_mib)
