"""One kind of instance as AWS sells it: what a job can hold on it, and what an hour of it costs.

Decides what a price per GPU is and what to assume for spot when no figure is known. Must not know where the figures
come from, nor what runs on an instance.
"""

from __future__ import annotations

from dataclasses import dataclass

from windfall.jobs.attempts import Market
from windfall.jobs.resources import Resources

#: What a spot instance costs of its on-demand price where nobody has a figure.
SPOT_FACTOR = 0.3


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars an hour, and the day, month or year (ISO 8601) that the figure is of."""

    usd_hour: float
    as_of: str


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A type of the catalog. None is "not known", never zero."""

    name: str
    vcpus: int
    memory_mib: int
    gpus: int = 0
    gpu_model: str | None = None
    #: Of one GPU.
    gpu_memory_mib: int | None = None
    #: Accelerators that no job can ask for as a GPU, such as `16 Trainium`.
    chips: str | None = None
    network_gbps: float | None = None
    #: Whether the network is "up to" that much.
    network_bursts: bool = False
    #: 0 for types that have volumes alone.
    local_disk_gb: int | None = None
    on_demand: Price | None = None
    #: A typical one.
    spot: Price | None = None
    #: Whether AWS has ended it or is ending it.
    retired: bool = False

    @property
    def family(self) -> str:
        """What AWS Batch calls a family: the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def resources(self) -> Resources:
        """What jobs can hold on one instance, the whole machine."""
        return Resources(self.vcpus, self.memory_mib, self.gpus)

    @property
    def on_demand_usd_hour(self) -> float | None:
        """Dollars an hour on demand, if known."""
        return None if self.on_demand is None else self.on_demand.usd_hour

    @property
    def spot_usd_hour(self) -> float | None:
        """Dollars an hour on the spot market as a figure; see `usd_hour` for one that is always there."""
        return None if self.spot is None else self.spot.usd_hour

    def usd_hour(self, market: Market, spot_factor: float = SPOT_FACTOR) -> float | None:
        """Dollars an hour in a market; without a spot figure, that share of the on-demand price is assumed."""
        if market == Market.ON_DEMAND:
            return self.on_demand_usd_hour
        if self.spot is not None:
            return self.spot.usd_hour
        return None if self.on_demand is None else self.on_demand.usd_hour * spot_factor

    def usd_gpu_hour(self, market: Market) -> float | None:
        """Dollars for an hour of one of its GPUs, from figures alone; None without GPUs or without a figure."""
        price = self.on_demand if market == Market.ON_DEMAND else self.spot
        return price.usd_hour / self.gpus if price is not None and self.gpus else None
