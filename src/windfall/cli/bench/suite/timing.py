"""How often something is done and how long it took: samples of wall-clock seconds, each waited for to its end.

Decides the number of samples by a budget of time. Must not know what is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """How many samples are taken: as many as fit into the time, within a least and a most."""

    seconds: float
    least: int = 3
    most: int = 30


FULL, QUICK = TimeBudget(1.0), TimeBudget(0.3, least=2, most=5)
#: What comes to the device and back takes long for large arrays and varies little.
FULL_TRANSFER, QUICK_TRANSFER = TimeBudget(0.3, least=3, most=10), TimeBudget(0.2, least=1, most=3)


def once(do: Callable[[], Any], sync: Callable[[], None]) -> float:
    """Seconds of one call, begun with nothing outstanding."""
    sync()
    begun = time.perf_counter()
    do()
    sync()
    return time.perf_counter() - begun


def samples(do: Callable[[], Any], sync: Callable[[], None], budget: TimeBudget) -> list[float]:
    """Seconds of each of several calls, after one that is not counted."""
    spent = once(do, sync)
    taken: list[float] = []
    while len(taken) < budget.least or (spent < budget.seconds and len(taken) < budget.most):
        taken.append(once(do, sync))
        spent += taken[-1]
    return taken
