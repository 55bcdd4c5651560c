"""Which attempts must leave so that a job can start: the least loss, and none that could stay.

Decides among the candidates; must not know which attempts may be asked, nor how a loss was computed.
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
    """A candidate: an attempt, or several that leave together."""

    @property
    def loss(self) -> float:
        """The cost of its leaving."""


One = TypeVar("One", bound=Costly)
Asked_contra = TypeVar("Asked_contra", bound=Costly, contravariant=True)


class Lack(Protocol[Asked_contra]):
    """What a job lacks, of any kind."""

    def met_by(self, leaving: Sequence[Asked_contra]) -> bool:
        """Whether it lacks nothing after these have left; more leaving hardly ever makes it worse."""

    def helped_by(self, candidate: Asked_contra) -> float:
        """The largest fraction of something missing that one candidate gives back, at most all of it."""


@dataclass(frozen=True, slots=True)
class NeededDevices:
    """The GPUs that a job needs on a machine where particular ones matter."""

    shape: Shape
    #: What is free if no attempt is asked to leave.
    free: Devices
    #: The part of that which is kept for others.
    kept: Kept

    def after(self, leaving: Iterable[Release]) -> tuple[str, ...] | None:
        """The devices that it gets after these have left; None if they are not enough."""
        devices = self.free.copy()
        for release in leaving:
            devices.give_back(release.resources.gpus, release.gpu_ids)
        return devices.find(self.shape, self.kept)

    def missing(self) -> float:
        """How much it lacks."""
        return max(0, self.shape.resources.gpus - self.free.usable(self.shape, self.kept))

    def given_by(self, release: Release) -> float:
        """How much of the right kind one attempt gives back."""
        devices, wish = self.free.known, self.shape.gpu_wish or GpuWish()
        each = min(1, release.resources.gpus)
        right = [
            gpu_id
            for gpu_id in release.gpu_ids
            if gpu_id not in devices.fenced
            and (gpu := devices.by_id.get(gpu_id)) is not None
            and wish.admits(gpu.name, gpu.memory_mib)
        ]
        return each * len(right)


@dataclass(frozen=True, slots=True)
class Need:
    """What a job lacks on a machine."""

    #: Negative amounts are left over.
    missing: Resources
    #: Where counts of GPUs are not enough.
    devices: NeededDevices | None = None

    def met_by(self, leaving: Sequence[Release]) -> bool:
        """Whether it lacks nothing after these have left."""
        if not self.missing.fits_in(freed_by(leaving)):
            return False
        return self.devices is None or self.devices.after(leaving) is not None

    def helped_by(self, release: Release) -> float:
        """The largest fraction of something missing that one attempt gives back, at most all of it."""
        return self.helped_by_all((release,))

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
    """Attempts whose leaving gives back at least what is missing, at little loss; None if all together do not.

    None of them could be spared. Tries the least loss first, the least loss for its gain first, and the
    single attempt that is enough; the cheapest of these is taken.
    """
    help_of = {id(candidate): need.helped_by(candidate) for candidate in candidates}
    helpful = sorted(
        (candidate for candidate in candidates if help_of[id(candidate)] > 0),
        key=lambda candidate: candidate.loss,
    )
    by_help = sorted(helpful, key=lambda candidate: candidate.loss / help_of[id(candidate)])
    choices = [
        spared(chosen, need.met_by)
        for chosen in (first_enough(helpful, need.met_by), first_enough(by_help, need.met_by))
        if chosen is not None
    ]
    alone = next((candidate for candidate in helpful if need.met_by((candidate,))), None)
    if alone is not None:
        choices.append((alone,))
    return min(choices, key=cost_of, default=None)


def cost_of(chosen: Sequence[Costly]) -> tuple[float, int]:
    """The order by which sets of leaving attempts are compared."""
    return (sum(candidate.loss for candidate in chosen), len(chosen))


def first_enough(ordered: Sequence[One], met_by: Callable[[Sequence[One]], bool]) -> tuple[One, ...] | None:
    """The shortest beginning of the list that is enough; None if all are not."""
    if not met_by(ordered):
        return None
    # More leaving hardly ever makes it worse, so bisection finds the shortest beginning that is enough.
    few, enough = 0, len(ordered)
    while few < enough:
        middle = (few + enough) // 2
        if met_by(ordered[:middle]):
            enough = middle
        else:
            few = middle + 1
    return tuple(ordered[:enough])


def spared(chosen: tuple[One, ...], met_by: Callable[[Sequence[One]], bool]) -> tuple[One, ...]:
    """The same without those that could stay, the most expensive spared first."""
    left = sorted(chosen, key=lambda candidate: -candidate.loss)
    for each in tuple(left):
        others = [candidate for candidate in left if candidate is not each]
        if met_by(others):
            left = others
    return tuple(reversed(left))
