"""What an hour of an attempt's place costs: as it was priced when it was placed, else by the owner's own rates.

A price that nobody knows stays None; nothing is made up. Also the three numbers of SageMaker's managed spot training:
AWS bills it at the discount, so billable seconds are on-instance seconds times the share of the on-demand price that
was paid, and waiting for capacity counts in neither. Must not know how the time was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from windfall.jobs.attempts import Attempt, Market
from windfall.jobs.gpus import held_part
from windfall.jobs.resources import Resources


@dataclass(frozen=True, slots=True)
class Rates:
    """What your own machines cost, in US dollars; 0 means that you did not say."""

    usd_gpu_hour: float = 0.0
    #: For jobs without GPUs.
    usd_vcpu_hour: float = 0.0
    #: The share of a price that reclaimable capacity costs where it has no price of its own.
    spot_factor: float = 0.3

    def usd_hour(self, resources: Resources) -> float | None:
        """What this much costs an hour on demand, by these rates; None when they do not say."""
        if resources.gpus:
            return resources.gpus * self.usd_gpu_hour or None
        return resources.vcpus * self.usd_vcpu_hour or None


@dataclass(frozen=True, slots=True)
class HourPrice:
    """US dollars an hour: what is paid, and what the same place costs on demand. None is unknown."""

    paid_usd: float | None
    on_demand_usd: float | None


def price_of(attempt: Attempt, resources: Resources, rates: Rates) -> HourPrice:
    """The price of the place that an attempt holds; `resources` is what its job asked for."""
    spot = attempt.market == Market.SPOT
    on_demand = attempt.on_demand_usd_hour
    if on_demand is None and not spot:
        on_demand = attempt.usd_hour
    if on_demand is None and attempt.usd_hour is None:
        on_demand = rates.usd_hour(held_of(attempt, resources))
    paid = attempt.usd_hour
    if paid is None and on_demand is not None:
        paid = on_demand * rates.spot_factor if spot else on_demand
    return HourPrice(paid, on_demand)


def held_of(attempt: Attempt, resources: Resources) -> Resources:
    """What it holds of what was asked for: of a shared GPU its part."""
    return resources if attempt.gpu_share is None else replace(resources, gpus=held_part(attempt.gpu_share))


def price_factor(attempt: Attempt, spot_factor: float) -> float:
    """The share of the on-demand price that an attempt costs: 1 on demand, never more on the spot market."""
    if attempt.market != Market.SPOT:
        return 1.0
    if attempt.usd_hour is None or not attempt.on_demand_usd_hour:
        return spot_factor
    return min(1.0, attempt.usd_hour / attempt.on_demand_usd_hour)


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
