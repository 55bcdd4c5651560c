"""What an environment could still launch, and what it is launching already.

Counts instances by their vCPUs against maxvCpus, and packs waiting jobs into instances that do not exist yet.
Decides nothing: scale.py does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from windfall.capacity.gpu_sets import MOST_SHARERS, suited
from windfall.capacity.machines import NOTHING_LACKS, GpuDevice, InstanceState, Offer
from windfall.jobs.ids import EnvironmentName, MachineId
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.allocate import BEST_FIT, allowed, in_order
from windfall.scheduling.snapshot import EnvironmentView, MachineView, Shape, Snapshot


@dataclass(slots=True)
class Bin:
    """Equal empty instances to come, and what the jobs packed so far leave of each."""

    left: Resources
    instances: int
    #: None for a share of a machine, which has no type of its own.
    type: str | None = None
    #: The devices that each has.
    gpus: tuple[GpuDevice, ...] = ()
    #: What the machine of each does not reach.
    lacks: frozenset[str] = NOTHING_LACKS

    def takes(self, shape: Shape) -> bool:
        """Whether such a job may run there, by instance type, GPUs and what it must reach."""
        return shape.admits(self.type, self.lacks) and has_gpus(self.gpus, shape)


def has_gpus(gpus: tuple[GpuDevice, ...], shape: Shape) -> bool:
    """Whether an instance with these devices, all free, has those that a job requests."""
    return shape.gpu_wish is None or suited(gpus, shape.gpu_wish) >= shape.resources.gpus


def times(shape: Shape, amount: Resources) -> int | None:
    """How many times a need fits into an amount; None means any number, because it needs nothing."""
    wanted = shape.resources
    if shape.is_part:
        # Each device takes a whole number of parts; the rest of one is of no use to the next.
        wanted, amount = replace(wanted, gpus=1), replace(amount, gpus=int(amount.gpus) * _on_one(shape))
    counts = [
        int(have // need)
        for need, have in (
            (wanted.vcpus, amount.vcpus),
            (wanted.memory_mib, amount.memory_mib),
            (wanted.gpus, amount.gpus),
        )
        if need > 0
    ]
    return min(counts) if counts else None


def pack(bins: list[Bin], shape: Shape, jobs: int) -> int:
    """Pack jobs into the bins; returns how many did not fit. Bins that differ afterwards are split."""
    for index in range(len(bins)):
        if not jobs:
            break
        bin_ = bins[index]
        if not bin_.takes(shape):
            continue
        each = times(shape, bin_.left)
        if each is None:
            return 0
        if each == 0 or bin_.instances == 0:
            continue
        full = min(jobs // each, bin_.instances)
        if full:
            bins.append(replace(bin_, left=_minus(bin_.left, shape, each), instances=full))
        bin_.instances -= full
        jobs -= full * each
        if bin_.instances and jobs:
            bins.append(replace(bin_, left=_minus(bin_.left, shape, jobs), instances=1))
            bin_.instances -= 1
            jobs = 0
    return jobs


def _minus(amount: Resources, shape: Shape, count: int) -> Resources:
    wanted = shape.resources
    gpus = wanted.gpus * count
    if shape.is_part:
        gpus = -(-count // _on_one(shape))
    return Resources(
        amount.vcpus - wanted.vcpus * count, amount.memory_mib - wanted.memory_mib * count, amount.gpus - gpus
    )


def _on_one(shape: Shape) -> int:
    """How many jobs of a shape that requests a part of a GPU share one device."""
    return min(MOST_SHARERS, int(1 // shape.resources.gpus))


@dataclass(slots=True)
class Pool:
    """One environment's capacity in instances: existing, launching, and available."""

    view: EnvironmentView
    machines: Mapping[MachineId, MachineView]
    #: vCPUs of all instances, including terminating ones: they still take capacity.
    vcpus: float = 0
    #: vCPUs of the instances that are READY or LAUNCHING.
    lasting_vcpus: float = 0
    coming: list[Bin] = field(default_factory=list)
    #: How many of each offer this plan has taken.
    taken: Counter[int] = field(default_factory=Counter)
    _allowed: tuple[int, ...] | None = None

    @property
    def can_launch(self) -> bool:
        """Whether its engine launches for it."""
        return self.view.trouble is None

    @property
    def order(self) -> tuple[int, ...]:
        """The offers that it may take, in the order of its allocation strategy, regardless of what waits."""
        return in_order(self.view.environment, self.view.offers, self.allowed, None)

    @property
    def allowed(self) -> tuple[int, ...]:
        """The offers that it may take, in the order they were named."""
        if self._allowed is None:
            self._allowed = allowed(self.view.environment, self.view.offers)
        return self._allowed

    def choices(self, shape: Shape, jobs: int = 1) -> Sequence[int]:
        """The offers for this many such jobs, in the order to try them; BEST_FIT has only one."""
        environment, offers = self.view.environment, self.view.offers
        fitting = [index for index in self.allowed if self.holds(offers[index], shape)]

        def filled(offer: Offer) -> int:
            each = times(shape, offer.resources)
            return -(-jobs // each) if each else 1

        ordered = in_order(environment, offers, fitting, filled)
        return ordered[:1] if environment.allocation == BEST_FIT else ordered

    def holds(self, offer: Offer, shape: Shape) -> bool:
        """Whether one instance of an offer is enough for a job."""
        wanted = shape.resources
        if not wanted.fits_in(offer.resources) or not shape.admits(own_type(offer), offer.lacks):
            return False
        machine = self.machines.get(offer.machine) if offer.machine is not None else None
        if machine is not None and not wanted.fits_in(machine.total):
            return False
        return shape.gpu_wish is None or has_gpus(self.gpus_of(offer), shape)

    def gpus_of(self, offer: Offer) -> tuple[GpuDevice, ...]:
        """The devices that an instance of an offer would have: those of its machine, or those its engine reports."""
        machine = self.machines.get(offer.machine) if offer.machine is not None else None
        return offer.gpus if machine is None else machine.devices.devices

    def launchable(self, index: int, most: int) -> int:
        """How many more instances of an offer may be launched, at most `wanted`."""
        offer, environment = self.view.offers[index], self.view.environment
        if not self.can_launch or offer.type in self.view.shortages:
            return 0
        if offer.available is not None:
            most = min(most, offer.available - self.taken[index])
        if offer.resources.vcpus > 0:
            most = min(most, int((environment.max_vcpus - self.vcpus) // offer.resources.vcpus))
        return max(0, most)

    def launch(self, index: int, count: int) -> None:
        """Count launched instances of an offer; they start empty."""
        offer = self.view.offers[index]
        resources = offer.resources
        self.taken[index] += count
        self.vcpus += resources.vcpus * count
        self.lasting_vcpus += resources.vcpus * count
        self.coming.append(Bin(resources, count, own_type(offer), self.gpus_of(offer), offer.lacks))

    def coming_for(self, shape: Shape) -> int:
        """How many instances are launching that would take the job."""
        wanted = shape.resources
        return sum(bin_.instances for bin_ in self.coming if wanted.fits_in(bin_.left) and bin_.takes(shape))

    def on_its_way(self, shape: Shape) -> bool:
        """Whether an instance that would take the job is launching or could be launched now."""
        return bool(self.coming_for(shape)) or any(self.launchable(index, 1) for index in self.choices(shape))


def own_type(offer: Offer) -> str | None:
    """The type that its instances will have, for jobs that require one; a share of a machine has none."""
    return offer.type if offer.machine is None else None


class Pools(dict[EnvironmentName, Pool]):
    """The pool of each environment in a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(
            (name, Pool(view, snapshot.machines)) for name, view in snapshot.environments.items()
        )
        coming: Counter[tuple[EnvironmentName, Resources, str | None, frozenset[str]]] = Counter()
        for instance in snapshot.instances:
            pool = self.get(instance.environment)
            if pool is None:
                continue
            pool.vcpus += instance.total.vcpus
            if instance.state is not InstanceState.TERMINATING:
                pool.lasting_vcpus += instance.total.vcpus
            if instance.state is InstanceState.LAUNCHING:
                left = instance.total if instance.used == NOTHING else instance.total - instance.used
                coming[instance.environment, left, instance.own_type, instance.lacks] += 1
        for (name, left, type_, lacks), count in coming.items():
            pool = self[name]
            offers = (offer for offer in pool.view.offers if own_type(offer) == type_)
            gpus = next((pool.gpus_of(offer) for offer in offers), ())
            pool.coming.append(Bin(left, count, type_, gpus, lacks))
