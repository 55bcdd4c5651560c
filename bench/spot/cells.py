"""The cells of the comparison: one set of zones, one deadline, one changeover; and what every policy pays there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.spot.omniscient import least_cost
from bench.spot.policies import Greedy, LooseUniformProgress, UniformProgress, Windfall
from bench.spot.simulator import TICK, UNIT_S, Policy, Task, run_task
from bench.spot.traces import PoolTrack, Trace, cut, track
from windfall.deadlines.market import Counts, rates_of
from windfall.deadlines.public_prior import public_prior
from windfall.deadlines.solving import PolicyTable, PolicyTerms, solve

#: 48 hours, as in the published evaluation.
WORK = 1440
#: How many days apart tasks begin, for recordings of weeks and of one week.
STRIDE_PROBES = {True: 72, False: 36}
NAMES = ("greedy", "uniform", "loose", "windfall", "omniscient")


@dataclass(frozen=True, slots=True)
class ZoneSet:
    """Zones of one kind of capacity, and what spot costs there, as a part of the on-demand price."""

    name: str
    zones: tuple[Trace, ...]
    spot_price: float
    #: Which zones are pools together.
    pools: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison; changeovers in minutes."""

    set_name: str
    deadline: float
    changeover_min: int

    @property
    def changeover(self) -> int:
        """In units."""
        return round(self.changeover_min * 60 / UNIT_S)


@dataclass(frozen=True, slots=True)
class Bill:
    """What one task cost by each policy, as parts of its price on demand, and how many policies missed its deadline."""

    cell: Cell
    zone: str
    costs: tuple[float, ...]
    missed: int


def solved(zones: Sequence[Trace], changeover: int, spot_price: float, shield: int) -> PolicyTable:
    """The table for some zones, from the public prior and the first half of their own time."""
    own = Counts()
    own.add(track("training", [cut(zone, 0.0, 0.5) for zone in zones]).history)
    terms = PolicyTerms(changeover_s=changeover * UNIT_S, shield_s=shield * UNIT_S, spot_price=spot_price)
    return solve(rates_of(own, public_prior()), terms)


def bills(
    set_name: str, zones: Sequence[Trace], spot_price: float, changeover_min: int, deadlines: Sequence[float]
) -> list[Bill]:
    """Every task of some zones that are used together, with one changeover, in the second half of the recorded time."""
    changeover = Cell(set_name, 1.0, changeover_min).changeover
    table = solved(zones, changeover, spot_price, changeover)
    unseen = track("+".join(zone.name for zone in zones), [cut(zone, 0.5, 1.0) for zone in zones])
    made = []
    for deadline in deadlines:
        cell = Cell(set_name, deadline, changeover_min)
        task = Task(WORK, int(WORK * deadline), changeover, changeover, spot_price)
        made += [_bill(cell, unseen, start, task, table) for start in starts(unseen, task)]
    return made


def starts(unseen: PoolTrack, task: Task) -> range:
    """When tasks begin: spread over the time that leaves room for a whole one."""
    length = len(unseen.zone)
    stride = STRIDE_PROBES[length > 2000]
    return range(0, max(0, length - task.deadline // TICK - 1), stride)


def _bill(cell: Cell, unseen: PoolTrack, start: int, task: Task, table: PolicyTable) -> Bill:
    policies: tuple[Policy, ...] = (Greedy(), UniformProgress(), LooseUniformProgress(), Windfall(table))
    outcomes = [run_task(unseen, start, task, policy, lambda: task.changeover) for policy in policies]
    costs = [outcome.cost / task.work for outcome in outcomes]
    costs.append(least_cost(unseen, start, task) / task.work)
    return Bill(cell, unseen.name, tuple(costs), sum(outcome.missed for outcome in outcomes))


def varied(
    zones: Sequence[Trace], spot_price: float, mean_min: int, deadlines: Sequence[float]
) -> tuple[int, int]:
    """Tasks whose changeovers vary up to the shield's, and how many of them missed their deadline."""
    draw = random.Random(15)
    mean = round(mean_min * 60 / UNIT_S)
    shield = 2 * mean
    table = solved(zones, mean, spot_price, shield)
    unseen = track("varied", [cut(zone, 0.5, 1.0) for zone in zones])

    def length() -> int:
        return min(shield, max(1, round(mean * draw.lognormvariate(-0.08, 0.4))))

    tasks = missed = 0
    for deadline in deadlines:
        task = Task(WORK, int(WORK * deadline), mean, shield, spot_price)
        for start in starts(unseen, task):
            tasks += 1
            missed += run_task(unseen, start, task, Windfall(table), length).missed
    return tasks, missed
