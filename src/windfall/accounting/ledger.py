"""A job's ledger: its wall clock, from its creation to its end or to now, divided among its attempts and what they did.

The parts add up to the wall clock exactly, whatever its time stamps say. Must not know where jobs are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

from windfall.accounting.attempt_times import divided, kept_until
from windfall.accounting.prices import HourPrice, Rates, held_of, price_of
from windfall.accounting.times import Times, in_category
from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job
from windfall.jobs.resources import NOTHING, Resources

HOUR_MS = 3_600_000
NO_PRICE = HourPrice(None, None)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One attempt in the ledger, with the waiting before it; or, without an attempt, the waiting since the last one."""

    times: Times
    attempt: Attempt | None = None
    price: HourPrice = NO_PRICE
    #: What its place is: the job's resources, of a shared GPU its part.
    held: Resources = NOTHING

    @property
    def paid_usd(self) -> float | None:
        """What its place cost; None when the price is not known, 0 without a place."""
        return _cost(self.times.held_ms, self.price.paid_usd)

    @property
    def on_demand_usd(self) -> float | None:
        """What the same hours cost on demand."""
        return _cost(self.times.held_ms, self.price.on_demand_usd)

    def usd_for(self, category: str) -> float | None:
        """What was paid for one of the categories that are held."""
        return _cost(in_category(self.times, category), self.price.paid_usd)


@dataclass(frozen=True, slots=True)
class Ledger:
    """All entries of a job, in order."""

    job: Job
    entries: tuple[LedgerEntry, ...]

    @property
    def times(self) -> Times:
        """The sum of its entries: the wall clock."""
        return reduce(add, (entry.times for entry in self.entries), Times())


def ledger_of(job: Job, rates: Rates, now: int) -> Ledger:
    """The ledger of a job as it stands at `now`; for a finished one, `now` changes nothing."""
    until = max(job.created_at, now if job.stopped_at is None else job.stopped_at)
    since = job.created_at
    entries: list[LedgerEntry] = []
    for attempt, safe_until in zip(job.attempts, kept_until(job.attempts), strict=True):
        times = divided(attempt, since, until, safe_until)
        resources = held_of(attempt, job.resources)
        entries.append(LedgerEntry(times, attempt, price_of(attempt, job.resources, rates), resources))
        since += times.wall_ms
    if since < until:
        entries.append(LedgerEntry(Times(waiting_ms=until - since)))
    return Ledger(job, tuple(entries))


def spent_usd(job: Job, rates: Rates, now: int) -> float:
    """What a job has cost so far; attempts without a known price count nothing."""
    return sum(entry.paid_usd or 0.0 for entry in ledger_of(job, rates, now).entries)


def _cost(span_ms: int, usd_hour: float | None) -> float | None:
    if not span_ms:
        return 0.0
    return None if usd_hour is None else span_ms * usd_hour / HOUR_MS
