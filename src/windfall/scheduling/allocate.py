"""In which order an environment's instance types are launched: its allocation strategy.

BEST_FIT takes the cheapest type that is large enough for the job, and waits for it when none is available.
The other strategies go on to the next type when capacity is missing: BEST_FIT_PROGRESSIVE by the price of
what the jobs need, SPOT_CAPACITY_OPTIMIZED by how safe a type is from being taken away (the cheaper of two
equal ones), SPOT_PRICE_CAPACITY_OPTIMIZED by the sum of both ranks, and those that end in _ORDERED or
_PRIORITIZED by the order in which the types were named. The price of what jobs need is that of the instances
they fill: for one job the cheapest type that is large enough, for a thousand the type with the lowest price
per job. If no job waits, a type's price is that of its vCPUs. Types of unknown price or safety come last.
Must not know how many instances are available.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

from windfall.capacity.environments import RECLAIMABLE, ComputeEnvironment
from windfall.capacity.machines import Offer

_Comparable = TypeVar("_Comparable", float, tuple[float, float])

#: The one strategy that waits for its type.
BEST_FIT = "BEST_FIT"


#: How many instances of an offer the waiting jobs would fill.
Filled = Callable[[Offer], int]


def allowed(environment: ComputeEnvironment, offers: Sequence[Offer]) -> tuple[int, ...]:
    """The indices of the offers that the environment may take at all, in the order they were named."""
    return tuple(index for index, offer in enumerate(offers) if not too_expensive(environment, offer))


def in_order(
    environment: ComputeEnvironment, offers: Sequence[Offer], indices: Sequence[int], filled: Filled | None
) -> tuple[int, ...]:
    """The offers in the order to try them; `filled` says how many instances the jobs fill, None means no job waits."""
    strategy = environment.allocation
    if len(indices) < 2 or strategy is None or strategy.endswith(("_ORDERED", "_PRIORITIZED")):
        return tuple(indices)

    def price(index: int) -> tuple[float, float]:
        offer = offers[index]
        if strategy == BEST_FIT:
            return _or_last(offer.usd_hour), 0
        if filled is None:
            return _vcpu_hour(offer), 0
        return _or_last(offer.usd_hour) * filled(offer), _or_last(offer.usd_hour)

    def risk(index: int) -> float:
        return _risk(offers[index])

    by_price = sorted(indices, key=price)
    if strategy == "SPOT_CAPACITY_OPTIMIZED":
        return tuple(sorted(by_price, key=risk))
    if strategy != "SPOT_PRICE_CAPACITY_OPTIMIZED":
        return tuple(by_price)
    price_rank, risk_rank = _ranks(indices, price), _ranks(indices, risk)
    return tuple(sorted(by_price, key=lambda index: price_rank[index] + risk_rank[index]))


def too_expensive(environment: ComputeEnvironment, offer: Offer) -> bool:
    """Whether a spot offer costs more than the environment's percentage of the on-demand price."""
    return (
        environment.bid_percent is not None
        and environment.provisioning in RECLAIMABLE
        and offer.usd_hour is not None
        and offer.on_demand_usd_hour is not None
        and offer.usd_hour > offer.on_demand_usd_hour * environment.bid_percent / 100
    )


def _or_last(value: float | None) -> float:
    return inf if value is None else value


def _vcpu_hour(offer: Offer) -> float:
    return inf if offer.usd_hour is None else offer.usd_hour / max(offer.resources.vcpus, 0.25)


def _risk(offer: Offer) -> float:
    return inf if offer.safety is None else -offer.safety


def _ranks(indices: Sequence[int], value: Callable[[int], _Comparable]) -> dict[int, int]:
    """How many have a lower value; equal values have equal ranks."""
    values = {index: value(index) for index in indices}
    return {index: sum(other < values[index] for other in values.values()) for index in indices}
