"""What one environment can launch on its simulated market: types of the catalog, at a price, while there are any.

Decides which types an environment means and how many more of each are available. Must not know which instances exist:
it is told how many.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from windfall.agent import messages
from windfall.capacity import catalog
from windfall.capacity.catalog import InstanceType
from windfall.capacity.environments import WITHOUT_GPUS, ComputeEnvironment
from windfall.capacity.machines import Offer
from windfall.capacity.market_tags import parse_market_tags
from windfall.engines.simulated.hardware import devices_of
from windfall.engines.simulated.market import SpotMarket, market_of
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.engines.simulated.traces import read_trace
from windfall.jobs.attempts import Market
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import EnvironmentName, InstanceId

log = logging.getLogger(__name__)

#: For environments that name no type: some of every size, cheapest first.
DEFAULT_TYPES = (
    "m5.large",
    "m5.xlarge",
    "m5.2xlarge",
    "m5.4xlarge",
    "g4dn.xlarge",
    "g5.xlarge",
    "g5.12xlarge",
    "p3.2xlarge",
)


@dataclass(frozen=True, slots=True)
class Stock:
    """How many instances an environment has now."""

    #: Of each type, those that nobody is taking away.
    lasting: Counter[str] = field(default_factory=Counter)
    #: All of them.
    total: int = 0


@dataclass(slots=True)
class Offering:
    """One environment's types and market."""

    environment: ComputeEnvironment
    types: tuple[InstanceType, ...]
    market: SpotMarket
    #: What was offered last, for which stock and host, and from when until when it holds.
    _seen: tuple[Stock, messages.Inventory | None, int, float, tuple[Offer, ...]] | None = None

    def offers(self, stock: Stock, inventory: messages.Inventory | None, now: int) -> tuple[Offer, ...]:
        """What could be launched now, in the order in which the environment names its types."""
        if self._seen is not None:
            seen_stock, host, since, until, offers = self._seen
            # The fleet hands out the same stock until it changes.
            if seen_stock is stock and host is inventory and since <= now < until:
                return offers
        offers = tuple(self._offer(type_, stock, inventory, now) for type_ in self.types)
        steps = (self.market.next_step_at(type_.name, now) for type_ in self.types)
        until = min((at for at in steps if at is not None), default=math.inf)
        self._seen = (stock, inventory, now, until, offers)
        return offers

    def available(self, type_: str, stock: Stock, now: int) -> int | None:
        """How many more instances of a type could be launched; None without a bound."""
        bounds = []
        if self.market.tags.capacity is not None:
            bounds.append(self.market.tags.capacity - stock.total)
        there = self.market.capacity(type_, now)
        if there is not None:
            bounds.append(there - stock.lasting[type_])
        return max(0, min(bounds)) if bounds else None

    def _offer(
        self, type_: InstanceType, stock: Stock, inventory: messages.Inventory | None, now: int
    ) -> Offer:
        usd_hour = type_.usd_hour(Market.SPOT if self.market.spot else Market.ON_DEMAND)
        if self.market.spot:
            traced = self.market.price(type_.name, now)
            usd_hour = usd_hour if traced is None else traced
        return Offer(
            type_.name,
            type_.resources,
            available=self.available(type_.name, stock, now),
            usd_hour=usd_hour,
            on_demand_usd_hour=type_.on_demand_usd_hour,
            safety=self.market.safety(type_.name, now),
            gpus=devices_of(InstanceId(type_.name), type_.name, int(type_.resources.gpus), inventory),
        )


def open_offering(environment: ComputeEnvironment, settings: SimulatedSettings) -> Offering:
    """Read an environment's types, tags and trace; raises Rejected with what to change."""
    tags = parse_market_tags(environment.tags, environment.provisioning)
    types = catalog.expand(environment.instance_types or DEFAULT_TYPES)
    if environment.provisioning in WITHOUT_GPUS:
        types = [type_ for type_ in types if not type_.gpus]
    trace = None if tags.trace is None else read_trace(tags.trace)
    return Offering(environment, tuple(types), market_of(environment, tags, settings, trace))


class Offerings:
    """The offerings of all environments, opened when an environment is first seen and again when it has changed."""

    def __init__(self, settings: SimulatedSettings) -> None:
        self._settings = settings
        self._open: dict[EnvironmentName, Offering] = {}
        #: Environments whose tags or trace cannot be used (any more), with the reason: each is reported once.
        self._broken: dict[EnvironmentName, tuple[ComputeEnvironment, str]] = {}

    def __iter__(self) -> Iterator[Offering]:
        return iter(self._open.values())

    def find(self, name: EnvironmentName) -> Offering | None:
        """The offering of an environment that was seen before."""
        return self._open.get(name)

    def trouble(self, name: EnvironmentName) -> str:
        """Why an environment has no offering."""
        return (
            self._broken[name][1] if name in self._broken else "the market of this environment is not known"
        )

    def see(self, environment: ComputeEnvironment) -> Offering | None:
        """The offering of an environment as it is now; None when it cannot be used."""
        offering = self._open.get(environment.name)
        if offering is not None and offering.environment is environment:
            return offering
        broken = self._broken.get(environment.name)
        if broken is not None and broken[0] is environment:
            return None
        try:
            opened = open_offering(environment, self._settings)
        except Rejected as rejected:
            log.warning("%s gets no instances: %s", environment.name, rejected)
            self._broken[environment.name] = (environment, str(rejected))
            self._open.pop(environment.name, None)
            return None
        self._broken.pop(environment.name, None)
        self._open[environment.name] = opened
        return opened
