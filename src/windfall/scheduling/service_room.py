"""What is left of a service environment's capacity while a plan is made.

Counts what jobs hold, what leaving jobs will give back, and what is kept for jobs that wait for their turn.
Must not know dispatch order.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from windfall.scheduling.service_views import Amounts, ServiceView, counted

_EQUAL = 1e-9


class ServiceRoom:
    """The free capacity of one environment."""

    __slots__ = ("_free", "_limits")

    def __init__(self, view: ServiceView) -> None:
        self._limits = dict(view.limits)
        self._free = dict(view.limits)
        for queue in view.queues:
            for job in queue.holding:
                self.take(job.needs)

    def could_hold(self, needs: Amounts) -> bool:
        """Whether an empty environment has room for it."""
        return all(
            amount <= self._limits.get(unit, 0.0) + _EQUAL
            for unit, amount in counted(needs, self._limits).items()
        )

    def fits(self, needs: Amounts, without: Iterable[Amounts] = ()) -> bool:
        """Whether there is room for it once these have given back what they hold."""
        freed: dict[str, float] = {}
        for gone in without:
            for unit, amount in counted(gone, self._limits).items():
                freed[unit] = freed.get(unit, 0.0) + amount
        return all(
            amount <= self._free.get(unit, -inf) + freed.get(unit, 0.0) + _EQUAL
            for unit, amount in counted(needs, self._limits).items()
            if amount
        )

    @property
    def exhausted(self) -> bool:
        """Whether all of every unit is used or kept."""
        return all(amount <= 0 for amount in self._free.values())

    def take(self, needs: Amounts) -> None:
        """Count a job as started; what is not free yet is kept for it, and no other job gets it."""
        for unit, amount in counted(needs, self._limits).items():
            self._free[unit] = self._free.get(unit, 0.0) - amount
