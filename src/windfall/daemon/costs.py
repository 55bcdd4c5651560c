"""What jobs cost, for `windfall cost`: reads jobs from the store page by page and answers sums as plain JSON.

Decides which jobs a request covers and how the rows are named; accounting does the arithmetic. Pages are read one
by one, so a long answer does not block other readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from windfall.accounting.billing import billable_seconds, savings_percent, training_seconds
from windfall.accounting.ledger import Ledger, LedgerEntry, ledger_of
from windfall.accounting.prices import Rates
from windfall.accounting.summing import Sum
from windfall.accounting.times import CATEGORIES, HELD, Times, in_category
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import JobFilter, Store
from windfall.daemon.gateway import StoreReader
from windfall.daemon.owners import OwnerOf, Owners, owner_of
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.states import TERMINAL, JobState

TAG = "tag:"
KINDS = ("queue", "user", "tenant", "day", "job")
LIVE = tuple(state for state in JobState if state not in TERMINAL)

Answer = dict[str, Any]


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


class CostQueries:
    """The handler of `Cost`."""

    def __init__(
        self,
        reader: StoreReader,
        rates: Rates,
        clock_ms: Callable[[], int],
        bounds: Bounds = ORDINARY,
        owners: Owners | None = None,
    ) -> None:
        self._reader = reader
        self._rates = rates
        self._clock_ms = clock_ms
        self._bounds = bounds
        self._owners = owners

    async def cost(self, call: Call) -> Answer:
        """One job's ledger (`jobId`), or sums `by` queue, user and so on over jobs that are live or newer."""
        now = self._clock_ms()
        if call.params.get("jobId") is not None:
            return await self._one(JobId(_text(call, "jobId")), now)
        by = _by(call)
        since = call.params.get("sinceAt", 0)
        if not isinstance(since, int) or isinstance(since, bool):
            raise ApiError("Invalid", "sinceAt must be a time in whole milliseconds since the epoch.")
        bill = _Bill(by, self._rates, now, self._bounds)
        if by == "user" and self._owners is not None:
            bill.owner_of = await self._owners.named(call.caller)
        filters = [JobFilter(created_after=since - 1), JobFilter(states=LIVE, created_before=since)]
        for wanted in filters:
            await self._gather(bill, wanted)
        return bill.answer() | {"by": by, "sinceAt": since, "now": now}

    async def _gather(self, bill: _Bill, wanted: JobFilter) -> None:
        after: str | None = None
        while True:
            page = await self._reader.read(partial(bill.take, wanted, after))
            if page is None or bill.full:
                return
            after = page

    async def _one(self, job_id: JobId, now: int) -> Answer:
        jobs = await self._reader.read(lambda store: store.jobs([job_id]))
        if not jobs:
            raise ApiError(
                "NotFound", f"There is no job {job_id} that has run; `windfall jobs --all` lists them.", 404
            )
        job: Job = jobs[0]
        about = {"jobId": job.id, "jobName": job.submission.name, "state": job.state}
        if job.is_array or job.is_gang:
            bill = _Bill("job", self._rates, now, self._bounds, own_rows=True)
            if job.is_gang:
                bill.add(job)
            await self._gather(bill, JobFilter(parent=job.id))
            return about | bill.answer() | {"by": "job", "sinceAt": 0, "now": now}
        return about | _ledger(ledger_of(job, self._rates, now), self._rates, now)


class _Bill:
    """Rows in the making."""

    def __init__(self, by: str, rates: Rates, now: int, bounds: Bounds, *, own_rows: bool = False) -> None:
        self._by = by
        self._bounds = bounds
        self._rates = rates
        self._now = now
        #: Whether a child of an array has a row of its own.
        self._own_rows = own_rows
        self.owner_of: OwnerOf = partial(owner_of, names={}, with_tenant=False)
        self._rows: dict[str | None, Sum] = {}
        self._names: dict[str | None, str] = {}
        self._total = Sum()
        self._seen = 0

    @property
    def full(self) -> bool:
        return self._seen >= self._bounds.jobs

    def take(self, wanted: JobFilter, after: str | None, store: Store) -> str | None:
        """Add a page of jobs, arrays with all their children; returns where the next page begins."""
        page = store.list_jobs(wanted, self._bounds.page, after)
        for job in page.jobs:
            for part in self._unfolded(store, job):
                self.add(part)
        return page.next_after

    def _unfolded(self, store: Store, job: Job) -> Iterator[Job]:
        """The job with its other nodes, or the children of an array: the array itself uses nothing."""
        if not job.is_array:
            yield job
        if not job.is_array and not job.is_gang:
            return
        after: str | None = None
        while not self.full:
            page = store.list_jobs(JobFilter(parent=job.id), self._bounds.page, after)
            yield from page.jobs
            after = page.next_after
            if after is None:
                return

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
            return datetime.fromtimestamp(placed_at / 1000, UTC).strftime("%Y-%m-%d")
        if self._by == "job":
            return job.id if self._own_rows or job.parent is None else job.parent
        if self._by == "user":
            return self.owner_of(job.submission.submitter)
        if self._by == "tenant":
            return job.submission.submitter.tenant
        return job.submission.tags.get(self._by.removeprefix(TAG))

    def answer(self) -> Answer:
        rows = sorted(self._rows.items(), key=self._rank)
        shown, others = rows[: self._bounds.rows], [row_sum for _, row_sum in rows[self._bounds.rows :]]
        shown_rows = [{"key": key, "name": self._names.get(key)} | _sum(row_sum) for key, row_sum in shown]
        if others:
            shown_rows.append({"key": None, "name": f"{len(others):,} others"} | _sum(_joined(others)))
        return {"rows": shown_rows, "total": _sum(self._total), "truncated": self.full}

    def _rank(self, row: tuple[str | None, Sum]) -> tuple[Any, ...]:
        """Days in order, everything else by cost, the highest first."""
        key, row_sum = row
        return (key,) if self._by == "day" else (-row_sum.paid_usd, -row_sum.times.held_ms, key or "")


def _joined(sums: Sequence[Sum]) -> Sum:
    joined = Sum()
    for other in sums:
        joined.include(other)
    return joined


def _ledger(ledger: Ledger, rates: Rates, now: int) -> Answer:
    job = ledger.job
    total = Sum()
    for entry in ledger.entries:
        total.add(job.id, entry)
    training = training_seconds(job.attempts, now)
    billable = billable_seconds(job.attempts, now, rates.spot_factor)
    return {
        "now": now,
        "createdAt": job.created_at,
        "stoppedAt": job.stopped_at,
        "budgetUsd": job.submission.budget_usd,
        "attempts": [_attempt(entry) for entry in ledger.entries],
        "total": _sum(total),
        "trainingSeconds": training,
        "billableSeconds": billable,
        "savingsPercent": savings_percent(training, billable),
    }


def _attempt(entry: LedgerEntry) -> Answer:
    attempt = entry.attempt
    answer: Answer = {"number": None, "ms": _ms(entry.times)}
    if attempt is None:
        return answer
    return answer | {
        "number": attempt.number,
        "instance": attempt.instance,
        "instanceType": attempt.instance_type,
        "market": attempt.market,
        "placedAt": attempt.placed_at,
        "stoppedAt": attempt.stopped_at,
        "stopCause": attempt.stop_cause,
        "exitCode": attempt.exit_code,
        "usdHour": entry.price.paid_usd,
        "onDemandUsdHour": entry.price.on_demand_usd,
        "paidUsd": entry.paid_usd,
        "onDemandUsd": entry.on_demand_usd,
    }


def _sum(total: Sum) -> Answer:
    return {
        "jobs": len(total.jobs),
        "attempts": total.attempts,
        "ms": _ms(total.times),
        "usd": {_camel(category): total.usd_by_category[category] for category in HELD},
        "paidUsd": total.paid_usd,
        "onDemandUsd": total.on_demand_usd,
        "savedPercent": total.saved_percent,
        "unpricedMs": total.unpriced_ms,
        "gpuMs": round(total.gpu_ms),
        "vcpuMs": round(total.vcpu_ms),
    }


def _ms(times: Times) -> dict[str, int]:
    return {_camel(category): in_category(times, category) for category in CATEGORIES}


def _camel(category: str) -> str:
    return "startUp" if category == "start_up" else category


def _by(call: Call) -> str:
    by = call.params.get("by", "queue")
    if by in KINDS or (isinstance(by, str) and by.startswith(TAG) and len(by) > len(TAG)):
        return str(by)
    raise ApiError("Invalid", f"by must be {', '.join(KINDS)} or {TAG}NAME, not {by!r}.")


def _text(call: Call, name: str) -> str:
    value = call.params[name]
    if not isinstance(value, str) or not value:
        raise ApiError("Invalid", f"{name} is required (a non-empty string).")
    return value
