"""The policies that are compared: Windfall's own, and the published ones in their authors' reading.

Wu et al., "Can't Be Late" (NSDI 2024): Greedy, Uniform Progress, and its variant for loose deadlines (appendix).
All run within the same shield, so that none can miss.
"""

from __future__ import annotations

from bench.spot.simulator import UNIT_S, Situation
from windfall.deadlines.policy import JobMode, decide
from windfall.deadlines.policy import Situation as Known
from windfall.deadlines.solving import PolicyTable, SpotAction


class Windfall:
    """The policy of the product, with a table that was solved before."""

    def __init__(self, table: PolicyTable) -> None:
        self._table = table

    def __call__(self, situation: Situation) -> SpotAction:
        """One look-up."""
        seen = Known(situation.left * UNIT_S, situation.slack * UNIT_S, situation.mode, situation.state)
        return decide(self._table, seen).action


class Greedy:
    """Spot when it is there, else wait; at the last moment on demand, until the end."""

    def __call__(self, situation: Situation) -> SpotAction:
        """Never pay before the shield demands it."""
        if situation.mode is JobMode.ON_DEMAND:
            return SpotAction.ON_DEMAND
        return SpotAction.SPOT if situation.up else SpotAction.WAIT


class UniformProgress:
    """Keep at least as far as steady progress from the beginning to the deadline would be."""

    def __init__(self) -> None:
        self._began: tuple[int, int, int] | None = None

    def __call__(self, situation: Situation) -> SpotAction:
        """On demand when behind; back to spot when it is there and the lead is worth two changeovers."""
        task = situation.task
        if self._began is None:
            self._began = (situation.elapsed, situation.left, task.deadline - situation.elapsed)
        since, work, time = self._began
        done, elapsed = work - situation.left, situation.elapsed - since
        if situation.mode is JobMode.SPOT:
            return SpotAction.SPOT
        if situation.mode is JobMode.ON_DEMAND:
            ahead = done >= (elapsed + 2 * task.changeover) * work / time
            return SpotAction.SPOT if situation.up and ahead else SpotAction.ON_DEMAND
        if situation.up:
            return SpotAction.SPOT
        return SpotAction.ON_DEMAND if done < elapsed * work / time else SpotAction.WAIT


class LooseUniformProgress:
    """Greedy while less than seven tenths of the time left are needed, then Uniform Progress."""

    def __init__(self) -> None:
        self._greedy, self._uniform, self._tight = Greedy(), UniformProgress(), False

    def __call__(self, situation: Situation) -> SpotAction:
        """Change once, for good."""
        self._tight = self._tight or situation.left >= 0.7 * (situation.task.deadline - situation.elapsed)
        return (self._uniform if self._tight else self._greedy)(situation)
