"""Who has to leave so that a job can start: the least loss, and nobody who could stay.

Decides among those who may be asked; must not know who may, nor how a loss was worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from windfall.jobs.gpus import GpuWish
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.devices import Devices, Kept
from windfall.scheduling.snapshot import Release, Shape


class Costly(Protocol):
    """Whoever may be asked: an attempt, or several that leave together."""

    @property
    def loss(self) -> float:
        """What it costs to ask."""


One = TypeVar("One", bound=Costly)
Asked_contra = TypeVar("Asked_contra", bound=Costly, contravariant=True)


class Lack(Protocol[Asked_contra]):
    """What a job lacks, of whatever."""

    def met_by(self, leaving: Sequence[Asked_contra]) -> bool:
        """Whether it lacks nothing when these have left; more leaving hardly ever makes it worse."""

    def helped_by(self, one: Asked_contra) -> float:
        """The largest share of something missing that one gives back, at most all of it."""


@dataclass(frozen=True, slots=True)
class NeededDevices:
    """The GPUs that a job needs on a machine where it matters which."""

    shape: Shape
    #: What is free when nobody is asked to leave.
    free: Devices
    #: What of that is kept for others.
    kept: Kept

    def after(self, leaving: Iterable[Release]) -> tuple[str, ...] | None:
        """The devices that it gets when these have left; None when they are not enough."""
        devices = self.free.copy()
        for release in leaving:
            devices.give_back(release.resources.gpus, release.gpu_ids)
        return devices.find(self.shape, self.kept)

    def missing(self) -> float:
        """How much it lacks."""
        return max(0, self.shape.resources.gpus - self.free.usable(self.shape, self.kept))

    def given_by(self, release: Release) -> float:
        """How much of the right kind one gives back."""
        known, wish = self.free.known, self.shape.gpu_wish or GpuWish()
        each = min(1, release.resources.gpus)
        right = [
            one
            for one in release.gpu_ids
            if one not in known.fenced
            and (gpu := known.by_id.get(one)) is not None
            and wish.admits(gpu.name, gpu.memory_mib)
        ]
        return each * len(right)


@dataclass(frozen=True, slots=True)
class Need:
    """What a job lacks on a machine."""

    #: What is below 0 is there.
    missing: Resources
    #: Where numbers of GPUs do not say all.
    devices: NeededDevices | None = None

    def met_by(self, leaving: Sequence[Release]) -> bool:
        """Whether it lacks nothing when these have left."""
        if not self.missing.fits_in(freed_by(leaving)):
            return False
        return self.devices is None or self.devices.after(leaving) is not None

    def helped_by(self, one: Release) -> float:
        """The largest share of something missing that one gives back, at most all of it."""
        return self.helped_by_all((one,))

    def helped_by_all(self, leaving: Sequence[Release]) -> float:
        """The same for several that leave together."""
        amount, missing = freed_by(leaving), self.missing
        gpus = (amount.gpus, missing.gpus)
        if self.devices is not None:
            gpus = (sum(map(self.devices.given_by, leaving)), self.devices.missing())
        pairs = (gpus, (amount.vcpus, missing.vcpus), (amount.memory_mib, missing.memory_mib))
        return max((min(1.0, have / need) for have, need in pairs if need > 0), default=0.0)


def freed_by(leaving: Iterable[Release]) -> Resources:
    """What these give back together."""
    amount = NOTHING
    for release in leaving:
        amount = amount + release.resources
    return amount


def victims(need: Lack[One], candidates: Sequence[One]) -> tuple[One, ...] | None:
    """Those whose leaving gives back at least what is missing, at little loss; None when all together do not.

    None of them could be spared. Tried are the least loss first, the least loss for what it helps first, and the one
    that is enough by itself; the cheapest of these is taken.
    """
    help_of = {id(one): need.helped_by(one) for one in candidates}
    helpful = sorted((one for one in candidates if help_of[id(one)] > 0), key=lambda one: one.loss)
    by_help = sorted(helpful, key=lambda one: one.loss / help_of[id(one)])
    choices = [
        spared(chosen, need.met_by)
        for chosen in (first_enough(helpful, need.met_by), first_enough(by_help, need.met_by))
        if chosen is not None
    ]
    alone = next((one for one in helpful if need.met_by((one,))), None)
    if alone is not None:
        choices.append((alone,))
    return min(choices, key=cost_of, default=None)


def cost_of(chosen: Sequence[Costly]) -> tuple[float, int]:
    """By what sets of those who leave are compared."""
    return (sum(one.loss for one in chosen), len(chosen))


def first_enough(ordered: Sequence[One], met_by: Callable[[Sequence[One]], bool]) -> tuple[One, ...] | None:
    """The first so many who are enough; None when all are not."""
    if not met_by(ordered):
        return None
    # More leaving hardly ever makes it worse, so the shortest beginning that is enough can be found by halving.
    few, enough = 0, len(ordered)
    while few < enough:
        middle = (few + enough) // 2
        if met_by(ordered[:middle]):
            enough = middle
        else:
            few = middle + 1
    return tuple(ordered[:enough])


def spared(chosen: tuple[One, ...], met_by: Callable[[Sequence[One]], bool]) -> tuple[One, ...]:
    """The same without those who need not go, the dearest spared first."""
    left = sorted(chosen, key=lambda one: -one.loss)
    for each in tuple(left):
        others = [one for one in left if one is not each]
        if met_by(others):
            left = others
    return tuple(reversed(left))
