"""What an environment could still launch, and what it is launching already.

Counts instances by their vCPUs against maxvCpus, and packs waiting jobs into instances that do not exist yet.
Decides nothing: scale.py does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from windfall.capacity.machines import InstanceState, Offer
from windfall.jobs.ids import EnvironmentName, MachineId
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.snapshot import EnvironmentView, MachineView, Snapshot


@dataclass(slots=True)
class Bin:
    """Equal empty instances to come, and what the jobs counted on so far leave of each."""

    left: Resources
    instances: int


def times(wanted: Resources, amount: Resources) -> int | None:
    """How often a need fits into an amount; None means without end, because it needs nothing."""
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


def pack(bins: list[Bin], wanted: Resources, jobs: int) -> int:
    """Count jobs into the bins; answers how many found no room. Bins that differ afterwards are split."""
    for index in range(len(bins)):
        if not jobs:
            break
        one = bins[index]
        each = times(wanted, one.left)
        if each is None:
            return 0
        if each == 0 or one.instances == 0:
            continue
        full = min(jobs // each, one.instances)
        if full:
            bins.append(Bin(_minus(one.left, wanted, each), full))
        one.instances -= full
        jobs -= full * each
        if one.instances and jobs:
            bins.append(Bin(_minus(one.left, wanted, jobs), 1))
            one.instances -= 1
            jobs = 0
    return jobs


def _minus(amount: Resources, wanted: Resources, count: int) -> Resources:
    return Resources(
        amount.vcpus - wanted.vcpus * count,
        amount.memory_mib - wanted.memory_mib * count,
        amount.gpus - wanted.gpus * count,
    )


@dataclass(slots=True)
class Pool:
    """One environment's capacity in instances: what there is, what is coming, what could be had."""

    view: EnvironmentView
    machines: Mapping[MachineId, MachineView]
    #: Of all instances, those that are going away included: they still take capacity.
    vcpus: float = 0
    #: Of the instances that are READY or LAUNCHING.
    lasting_vcpus: float = 0
    coming: list[Bin] = field(default_factory=list)
    #: How many of each offer were taken by this plan.
    taken: Counter[int] = field(default_factory=Counter)

    @property
    def can_launch(self) -> bool:
        """Whether its engine launches for it."""
        return self.view.trouble is None

    def holds(self, offer: Offer, wanted: Resources) -> bool:
        """Whether one instance of an offer would be large enough for a job."""
        machine = self.machines.get(offer.machine) if offer.machine is not None else None
        return wanted.fits_in(offer.resources) and (machine is None or wanted.fits_in(machine.total))

    def launchable(self, index: int, most: int) -> int:
        """How many more instances of an offer may be launched, at most so many."""
        offer, environment = self.view.offers[index], self.view.environment
        if not self.can_launch:
            return 0
        if offer.available is not None:
            most = min(most, offer.available - self.taken[index])
        if offer.resources.vcpus > 0:
            most = min(most, int((environment.max_vcpus - self.vcpus) // offer.resources.vcpus))
        return max(0, most)

    def launch(self, index: int, count: int) -> None:
        """Note that instances of an offer are launched; they come empty."""
        resources = self.view.offers[index].resources
        self.taken[index] += count
        self.vcpus += resources.vcpus * count
        self.lasting_vcpus += resources.vcpus * count
        self.coming.append(Bin(resources, count))

    def on_its_way(self, wanted: Resources) -> bool:
        """Whether an instance that would take the job is being launched or could be launched now."""
        if any(one.instances and wanted.fits_in(one.left) for one in self.coming):
            return True
        offers = enumerate(self.view.offers)
        return any(self.holds(offer, wanted) and self.launchable(index, 1) for index, offer in offers)


class Pools(dict[EnvironmentName, Pool]):
    """The pool of each environment in a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(
            (name, Pool(view, snapshot.machines)) for name, view in snapshot.environments.items()
        )
        coming: Counter[tuple[EnvironmentName, Resources]] = Counter()
        for instance in snapshot.instances:
            pool = self.get(instance.environment)
            if pool is None:
                continue
            pool.vcpus += instance.total.vcpus
            if instance.state is not InstanceState.TERMINATING:
                pool.lasting_vcpus += instance.total.vcpus
            if instance.state is InstanceState.LAUNCHING:
                left = instance.total if instance.used == NOTHING else instance.total - instance.used
                coming[instance.environment, left] += 1
        for (name, left), count in coming.items():
            self[name].coming.append(Bin(left, count))
