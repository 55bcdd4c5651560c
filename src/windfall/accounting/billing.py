"""The three numbers of SageMaker's managed spot training: training seconds, billable seconds and the savings.

AWS bills spot training at the discount, so billable seconds are on-instance seconds times the share of the on-demand
price that was paid. Waiting for capacity counts in neither. Must not know about ledgers.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.accounting.prices import price_factor
from windfall.jobs.attempts import Attempt


def training_seconds(attempts: Sequence[Attempt], now: int) -> int | None:
    """Seconds on instances over all attempts, at least 1; None for a job that never had a place."""
    if not attempts:
        return None
    return max(1, round(sum(_held_s(attempt, now) for attempt in attempts)))


def billable_seconds(attempts: Sequence[Attempt], now: int, spot_factor: float = 0.3) -> int | None:
    """The same, each attempt times what it cost of its on-demand price; `spot_factor` where that is not known."""
    if not attempts:
        return None
    billed = sum(_held_s(attempt, now) * price_factor(attempt, spot_factor) for attempt in attempts)
    return max(1, round(billed))


def savings_percent(training_s: int | None, billable_s: int | None) -> float | None:
    """AWS's formula, `(1 - billable / training) * 100`; None for a job that never had a place."""
    if not training_s or billable_s is None:
        return None
    return (1 - billable_s / training_s) * 100


def _held_s(attempt: Attempt, now: int) -> float:
    return max(0, (now if attempt.stopped_at is None else attempt.stopped_at) - attempt.placed_at) / 1000
