"""The order of a queue's compute environments: a later one serves what the earlier ones cannot launch for.

An idle instance of a later environment does not win over one that an earlier environment is launching or can
still launch. As many jobs as the earlier ones can launch instances for wait for them; only those beyond that
go on. Computes how many that is. Must not know dispatch order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.fit import Floor
from windfall.scheduling.gangs import copy_of, launch_into
from windfall.scheduling.launchable import Pool, Pools, pack
from windfall.scheduling.snapshot import Launch, Shape


def bring(pools: Iterable[Pool], shape: Shape, jobs: int) -> tuple[list[Launch], int]:
    """Instances for this many jobs, environment by environment, launching ones first; and how many jobs get none."""
    launched: list[Launch] = []
    for pool in pools:
        if not jobs:
            break
        more, jobs = launch_into(pool, shape, pack(pool.coming, shape, jobs))
        launched += more
    return launched, jobs


class Prospects:
    """What environments can still launch at some turn of a pass; jobs of earlier turns have taken theirs."""

    __slots__ = ("_left", "_pools")

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._left: dict[EnvironmentName, Pool] = {}

    def pool(self, name: EnvironmentName) -> Pool:
        """What is left of an environment."""
        return self._left.get(name) or self._pools[name]

    def take(self, names: Iterable[EnvironmentName], shape: Shape, jobs: int) -> None:
        """Count jobs that wait for what these environments launch."""
        if jobs > 0:
            self._left.update((name, copy_of(self.pool(name))) for name in names)
            bring((self._left[name] for name in names), shape, jobs)

    def brought(self, names: Sequence[EnvironmentName], shape: Shape, jobs: int) -> int:
        """How many of these jobs the environments could launch instances for."""
        if jobs <= 0 or not any(self.pool(name).on_its_way(shape) for name in names):
            return 0
        return jobs - bring((copy_of(self.pool(name)) for name in names), shape, jobs)[1]


def starts_now(
    floor: Floor, prospects: Prospects, names: Sequence[EnvironmentName], shape: Shape, jobs: int
) -> bool:
    """Whether the first of `jobs` equal jobs has a place that it may take, by the order of these environments."""
    for number, name in enumerate(names):
        if any(room.holds(shape, floor.now) for room in floor.rooms.get(name, ())):
            return number == 0 or prospects.brought(names[:number], shape, jobs) < jobs
    return False
