"""In which order an environment's kinds of instance are launched: its allocation strategy.

BEST_FIT takes the cheapest type that is large enough for the job, and waits for it when none can be had. The others
go on to the next type when capacity is missing: BEST_FIT_PROGRESSIVE by the price of a vCPU, SPOT_CAPACITY_OPTIMIZED
by how safe a type is from being taken away, SPOT_PRICE_CAPACITY_OPTIMIZED by the sum of both ranks (the cheaper of two
equal ones), and those that end in _ORDERED or _PRIORITIZED by the order in which the types were named. What nobody
knows the price or the safety of comes last. Must not know what waits, or how many can be had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from windfall.capacity.environments import RECLAIMABLE, ComputeEnvironment
from windfall.capacity.machines import Offer

#: The one strategy that waits for its type.
BEST_FIT = "BEST_FIT"


def in_order(environment: ComputeEnvironment, offers: Sequence[Offer]) -> tuple[int, ...]:
    """The indices of the offers that the environment may take, the one to try first in front."""
    allowed = [index for index, offer in enumerate(offers) if not too_dear(environment, offer)]
    strategy = environment.allocation
    if len(allowed) < 2 or strategy is None or strategy.endswith(("_ORDERED", "_PRIORITIZED")):
        return tuple(allowed)
    if strategy == BEST_FIT:
        return tuple(sorted(allowed, key=lambda index: _or_last(offers[index].usd_hour)))
    if strategy == "SPOT_CAPACITY_OPTIMIZED":
        return tuple(sorted(allowed, key=lambda index: _risk(offers[index])))
    by_price = sorted(allowed, key=lambda index: _vcpu_hour(offers[index]))
    if strategy != "SPOT_PRICE_CAPACITY_OPTIMIZED":
        return tuple(by_price)
    price_rank = _ranks(allowed, lambda index: _vcpu_hour(offers[index]))
    risk_rank = _ranks(allowed, lambda index: _risk(offers[index]))
    return tuple(sorted(by_price, key=lambda index: price_rank[index] + risk_rank[index]))


def too_dear(environment: ComputeEnvironment, offer: Offer) -> bool:
    """Whether a spot offer costs more than the environment's share of the price on demand."""
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


def _ranks(indices: Sequence[int], value: Callable[[int], float]) -> dict[int, int]:
    """How many have a lower value: equal ones have equal ranks."""
    values = {index: value(index) for index in indices}
    return {index: sum(other < values[index] for other in values.values()) for index in indices}
