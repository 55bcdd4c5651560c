"""What jobs cost, for `windfall cost`: one job's ledger, or a bill with a row for each queue, user, day and so on.

Decides how rows are named and ordered; accounting does the arithmetic. Must not know where jobs come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from windfall.accounting.ledger import CATEGORIES, HELD, LedgerEntry, Sum, Times, in_category, ledger_of
from windfall.accounting.prices import Rates, billable_seconds, savings_percent, training_seconds
from windfall.jobs.job import Job
from windfall.jobs.submitters import Submitter
from windfall.jobs.tenants import qualified
from windfall.schedules.due_times import local_time
from windfall.schedules.zones import utc_only
from windfall.views.spelling import Answer, camel, picked

TAG = "tag:"
KINDS = ("queue", "user", "tenant", "day", "job")

#: The name of the owner of something, as a caller sees it; None where it is not known.
OwnerOf = Callable[[Submitter], str | None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one answer covers."""

    #: Jobs that are read at a time.
    page: int = 500
    #: Jobs and children that are counted; the answer says when there were more.
    jobs: int = 100_000
    #: Rows of the answer; the cheapest ones beyond are merged into one.
    rows: int = 1_000


ORDINARY = Bounds()


def owner_of(submitter: Submitter, names: Mapping[str, str], *, with_tenant: bool) -> str | None:
    """The name of a submitter: that of its key, else the account that its jobs run as, else the key's id.

    Callers that see all tenants get `<tenant>/<name>`.
    """
    name = names.get(submitter.key_id) or submitter.user or submitter.key_id
    if not name:
        return None
    return qualified(submitter.tenant, name) if with_tenant else name


class Bill:
    """Rows in the making."""

    def __init__(
        self, by: str, rates: Rates, now: int, bounds: Bounds = ORDINARY, *, own_rows: bool = False
    ) -> None:
        """`own_rows` says whether a child of an array has a row of its own."""
        self._by = by
        self.bounds = bounds
        self._rates = rates
        self._now = now
        self._own_rows = own_rows
        self.owner_of: OwnerOf = partial(owner_of, names={}, with_tenant=False)
        self._rows: dict[str | None, Sum] = {}
        self._names: dict[str | None, str] = {}
        self._total = Sum()
        self._seen = 0

    @property
    def full(self) -> bool:
        """Whether as many jobs were counted as one answer covers."""
        return self._seen >= self.bounds.jobs

    def add(self, job: Job) -> None:
        """Add one job to the sums."""
        self._seen += 1
        begun_at = job.created_at
        for entry in ledger_of(job, self._rates, self._now).entries:
            key = self._key(job, begun_at + entry.times.waiting_ms)
            self._rows.setdefault(key, Sum()).add(job.id, entry)
            self._total.add(job.id, entry)
            if self._by == "job":
                self._names[key] = job.submission.name
            begun_at += entry.times.wall_ms

    def _key(self, job: Job, placed_at: int) -> str | None:
        if self._by == "queue":
            return job.submission.queue
        if self._by == "day":
            return f"{local_time(placed_at, utc_only('UTC')):%Y-%m-%d}"
        if self._by == "job":
            return job.id if self._own_rows or job.parent is None else job.parent
        if self._by == "user":
            return self.owner_of(job.submission.submitter)
        if self._by == "tenant":
            return job.submission.submitter.tenant
        return job.submission.tags.get(self._by.removeprefix(TAG))

    def answer(self) -> Answer:
        """The rows and their total."""
        rows = sorted(self._rows.items(), key=self._rank)
        shown, others = rows[: self.bounds.rows], [row_sum for _, row_sum in rows[self.bounds.rows :]]
        shown_rows = [{"key": key, "name": self._names.get(key)} | _sum(row_sum) for key, row_sum in shown]
        if others:
            shown_rows.append({"key": None, "name": f"{len(others):,} others"} | _sum(_joined(others)))
        return {"rows": shown_rows, "total": _sum(self._total), "truncated": self.full}

    def _rank(self, row: tuple[str | None, Sum]) -> tuple[Any, ...]:
        """Days in order, everything else by cost, the highest first."""
        key, row_sum = row
        return (key,) if self._by == "day" else (-row_sum.paid_usd, -row_sum.times.held_ms, key or "")


def ledger(job: Job, rates: Rates, now: int) -> Answer:
    """One job's attempts and what each cost."""
    entries = ledger_of(job, rates, now).entries
    total = Sum()
    for entry in entries:
        total.add(job.id, entry)
    training = training_seconds(job.attempts, now)
    billable = billable_seconds(job.attempts, now, rates.spot_factor)
    return {
        "now": now,
        **picked(job, "created_at stopped_at"),
        "budgetUsd": job.submission.budget_usd,
        "attempts": [_attempt(entry) for entry in entries],
        "total": _sum(total),
        "trainingSeconds": training,
        "billableSeconds": billable,
        "savingsPercent": savings_percent(training, billable),
    }


def _joined(sums: Sequence[Sum]) -> Sum:
    joined = Sum()
    for other in sums:
        joined.include(other)
    return joined


def _attempt(entry: LedgerEntry) -> Answer:
    attempt = entry.attempt
    if attempt is None:
        return {"number": None, "ms": _ms(entry.times)}
    return {
        "ms": _ms(entry.times),
        **picked(attempt, "number instance instance_type market placed_at stopped_at stop_cause exit_code"),
        "usdHour": entry.price.paid_usd,
        "onDemandUsdHour": entry.price.on_demand_usd,
        **picked(entry, "paid_usd on_demand_usd"),
    }


def _sum(total: Sum) -> Answer:
    return {
        "jobs": len(total.jobs),
        "ms": _ms(total.times),
        "usd": {camel(category): total.usd_by_category[category] for category in HELD},
        **picked(total, "attempts paid_usd on_demand_usd saved_percent unpriced_ms"),
        "gpuMs": round(total.gpu_ms),
        "vcpuMs": round(total.vcpu_ms),
    }


def _ms(times: Times) -> dict[str, int]:
    return {camel(category): in_category(times, category) for category in CATEGORIES}
