"""Sums entries of many ledgers into the rows of a bill.

Decides what a sum may claim: what has no price is counted apart, and savings compare only what has both prices. Must
not know what the rows are called.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.accounting.ledger import LedgerEntry
from windfall.accounting.times import HELD, Times
from windfall.jobs.ids import JobId


@dataclass(slots=True)
class Sum:
    """A row of a bill, or its total."""

    times: Times = field(default_factory=Times)
    jobs: set[JobId] = field(default_factory=set)
    attempts: int = 0
    paid_usd: float = 0.0
    on_demand_usd: float = 0.0
    #: What was paid where the price on demand is known too.
    compared_usd: float = 0.0
    #: Time on instances whose price nobody knows.
    unpriced_ms: int = 0
    #: Time on instances, times the GPUs and the vCPUs that were held.
    gpu_ms: float = 0.0
    vcpu_ms: float = 0.0
    usd_by_category: dict[str, float] = field(default_factory=lambda: dict.fromkeys(HELD, 0.0))

    def add(self, job_id: JobId, entry: LedgerEntry) -> None:
        """Take an entry in."""
        self.times += entry.times
        self.jobs.add(job_id)
        self.attempts += entry.attempt is not None
        self.gpu_ms += entry.times.held_ms * entry.held.gpus
        self.vcpu_ms += entry.times.held_ms * entry.held.vcpus
        paid, on_demand = entry.paid_usd, entry.on_demand_usd
        if paid is None:
            self.unpriced_ms += entry.times.held_ms
            return
        self.paid_usd += paid
        for category in HELD:
            self.usd_by_category[category] += entry.usd_for(category) or 0.0
        if on_demand is not None:
            self.on_demand_usd += on_demand
            self.compared_usd += paid

    def include(self, other: Sum) -> None:
        """Take another sum in."""
        self.times += other.times
        self.jobs |= other.jobs
        self.attempts += other.attempts
        self.paid_usd += other.paid_usd
        self.on_demand_usd += other.on_demand_usd
        self.compared_usd += other.compared_usd
        self.unpriced_ms += other.unpriced_ms
        self.gpu_ms += other.gpu_ms
        self.vcpu_ms += other.vcpu_ms
        for category, cost in other.usd_by_category.items():
            self.usd_by_category[category] += cost

    @property
    def saved_percent(self) -> float | None:
        """How much less was paid than the same hours cost on demand; None when there is nothing to compare."""
        if not self.on_demand_usd:
            return None
        return (1 - self.compared_usd / self.on_demand_usd) * 100
