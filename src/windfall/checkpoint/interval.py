"""Decides how long to wait between two saves. Pure: seconds in, seconds out.

Three bounds, and the longest wins: the share of time that saving may cost (budget), the time that writing takes
(a save is not begun before the last one is on disk), and the optimum by Young and Daly, where the time lost to
saving equals the time expected to be lost to an interruption without notice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from windfall.checkpoint.errors import WrongUse

SHORTEST_S = 10.0
LONGEST_S = 600.0
#: Mean time between interruptions where nobody says otherwise.
DEFAULT_MTBI_S = 7200.0
#: What a second of background writing costs the loop until that has been measured.
ASSUMED_INTERFERENCE = 0.02
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Every:
    """When to save: after a number of steps, of seconds, or as measured."""

    steps: int | None = None
    seconds: float | None = None

    @property
    def auto(self) -> bool:
        """Whether the interval follows from what saving costs."""
        return self.steps is None and self.seconds is None


def parse_every(value: int | float | str) -> Every:
    """Reads `every`: a number of steps, a duration such as "30s" or "5m", or "auto"."""
    if value == "auto":
        return Every()
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return Every(steps=value)
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)\s*", value)
        if match and float(match[1]) > 0:
            return Every(seconds=float(match[1]) * _UNITS[match[2]])
    raise WrongUse(f'every={value!r}: give a number of steps, a duration such as "30s" or "5m", or "auto"')


@dataclass(frozen=True, slots=True)
class SaveCosts:
    """What saves have cost so far."""

    #: Seconds that the loop stood still for one save.
    stall_s: float
    #: Seconds of writing after it.
    write_s: float
    #: Share by which steps were slower while writing; None while not measured.
    interference: float | None = None

    @property
    def loop_s(self) -> float:
        """Seconds of training that one save costs."""
        share = ASSUMED_INTERFERENCE if self.interference is None else max(self.interference, 0.0)
        return self.stall_s + share * self.write_s


def best_interval_s(costs: SaveCosts | None, mtbi_s: float, budget: float) -> float:
    """Seconds from one save to the next; the shortest while nothing has been measured."""
    if costs is None:
        return SHORTEST_S
    by_budget = costs.loop_s / budget
    by_writing = 1.25 * costs.write_s
    by_hazard = math.sqrt(2.0 * costs.loop_s * mtbi_s)
    return min(max(by_budget, by_writing, by_hazard, SHORTEST_S), LONGEST_S)


class CostMeter:
    """Running means of what is measured: recent saves count more, one slow disk flush does not decide."""

    def __init__(self) -> None:
        self._stall_s: float | None = None
        self._write_s = 0.0
        #: Steps and seconds seen while nothing was written, and while something was.
        self._pace = {False: [0, 0.0], True: [0, 0.0]}

    def saved(self, stall_s: float, write_s: float) -> None:
        """Counts one save."""
        if self._stall_s is None:
            self._stall_s, self._write_s = stall_s, write_s
        else:
            self._stall_s += (stall_s - self._stall_s) * 0.3
            self._write_s += (write_s - self._write_s) * 0.3

    def ran(self, steps: int, seconds: float, *, writing: bool) -> None:
        """Counts a stretch of training."""
        pace = self._pace[writing]
        pace[0] += steps
        pace[1] += seconds

    def costs(self) -> SaveCosts | None:
        """What one save costs; None before the first."""
        if self._stall_s is None:
            return None
        return SaveCosts(self._stall_s, self._write_s, self._interference())

    def _interference(self) -> float | None:
        (alone, alone_s), (beside, beside_s) = self._pace[False], self._pace[True]
        if alone < 20 or beside < 20 or alone_s <= 0 or beside_s <= 0:
            return None
        return 1.0 - (beside / beside_s) / (alone / alone_s)
