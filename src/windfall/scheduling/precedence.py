"""The order of a queue's compute environments: a later one serves what the earlier ones cannot bring.

An idle instance of a later environment does not win over one that an earlier environment has on its way or can still
launch. As many jobs as the earlier ones can bring instances for wait for them; only those beyond that go on. Decides
how many that are. Must not know whose turn it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.fit import Floor
from windfall.scheduling.gangs import copy_of, launch_into
from windfall.scheduling.launchable import Pool, Pools, pack
from windfall.scheduling.snapshot import Launch, Shape


def bring(pools: Iterable[Pool], shape: Shape, jobs: int) -> tuple[list[Launch], int]:
    """Instances for so many jobs, environment by environment: first those on their way. And how many jobs get none."""
    launched: list[Launch] = []
    for pool in pools:
        if not jobs:
            break
        more, jobs = launch_into(pool, shape, pack(pool.coming, shape, jobs))
        launched += more
    return launched, jobs


class Prospects:
    """What environments can still bring at some turn of a pass; those who waited at earlier turns have taken theirs."""

    __slots__ = ("_left", "_pools")

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._left: dict[EnvironmentName, Pool] = {}

    def pool(self, name: EnvironmentName) -> Pool:
        """What is left of an environment."""
        return self._left.get(name) or self._pools[name]

    def take(self, names: Iterable[EnvironmentName], shape: Shape, jobs: int) -> None:
        """Note that so many jobs wait for what these environments bring."""
        if jobs > 0:
            self._left.update((name, copy_of(self.pool(name))) for name in names)
            bring((self._left[name] for name in names), shape, jobs)

    def brought(self, names: Sequence[EnvironmentName], shape: Shape, jobs: int) -> int:
        """How many of so many jobs these environments could bring instances for."""
        if jobs <= 0 or not any(self.pool(name).on_its_way(shape) for name in names):
            return 0
        return jobs - bring((copy_of(self.pool(name)) for name in names), shape, jobs)[1]


def starts_now(
    floor: Floor, prospects: Prospects, names: Sequence[EnvironmentName], shape: Shape, jobs: int
) -> bool:
    """Whether the first of so many equal jobs has a place that it may take, by the order of these environments."""
    for number, name in enumerate(names):
        if any(room.holds(shape, floor.now) for room in floor.rooms.get(name, ())):
            return number == 0 or prospects.brought(names[:number], shape, jobs) < jobs
    return False
