"""The least that a task could have cost, by exact dynamic programming with the whole trace in sight."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.spot.simulator import TICK, Task
from bench.spot.traces import PoolTrack

Costs = NDArray[np.float64]
ON_DEMAND = -1


def least_cost(track: PoolTrack, start: int, task: Task) -> float:
    """Backwards over the ticks: the least cost for each amount of work left, by the place and how far it has started.

    Unlike a policy it may use any zone, not only the one that has been up longest.
    """
    pending = sorted(
        {max(0, task.changeover - TICK * ticks) for ticks in range(1, task.changeover // TICK + 2)}
    )
    places = [ON_DEMAND, *range(len(track.zones))]
    never = np.full(task.work + 1, np.inf)
    never[0] = 0.0
    idle: Costs = never
    after: dict[tuple[int, int], Costs] = {(place, wait): never for place in places for wait in pending}
    for elapsed in range((task.deadline - 1) // TICK * TICK, -1, -TICK):
        probe, room = start + elapsed // TICK, min(TICK, task.deadline - elapsed)
        up = [zone.up[probe] for zone in track.zones]
        worked = partial(_worked, after, room)
        best = idle
        for place in places:
            if place == ON_DEMAND or up[place]:
                best = np.minimum(
                    best, worked(place, task.changeover, 1.0 if place == ON_DEMAND else task.spot_price)
                )
        now = {}
        for place, wait in after:
            if place == ON_DEMAND or up[place]:
                price = 1.0 if place == ON_DEMAND else task.spot_price
                now[place, wait] = np.minimum(best, worked(place, wait, price))
            else:
                now[place, wait] = best
        idle, after = best, now
    return float(idle[task.work])


def _worked(after: dict[tuple[int, int], Costs], room: int, place: int, wait: int, price: float) -> Costs:
    """The cost of using a place for one tick that still has to start for some time, and of what follows."""
    starting = min(wait, room)
    works = room - starting
    # A tick that the deadline cuts short is the last one, and nothing follows it.
    then = after.get((place, wait - starting), after[place, 0])
    costs = np.empty_like(then)
    costs[works:] = then[: len(then) - works] + room * price
    # What is done within the tick is billed until it is done.
    costs[1 : works + 1] = (starting + np.arange(1, works + 1))[: len(costs) - 1] * price
    costs[0] = 0.0
    return costs
