"""A job's ledger: its wall clock, from its creation to its end or to now, divided among its attempts and what they did.

Time stamps come from several clocks and some are missing: each is first put between its neighbours, so that the parts
are never negative and always add up to the wall clock exactly, in whole milliseconds. Sums of many ledgers claim no
more than is known: what has no price is counted apart, and savings compare only what has both prices. Must not know
where jobs are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import reduce
from operator import add

from windfall.accounting.prices import HourPrice, Rates, held_of, price_of
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.resources import NOTHING, Resources


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds by what they were for; none is negative. All but `waiting_ms` were spent on an instance."""

    #: No place yet, or none any more.
    waiting_ms: int = 0
    #: From the place to the process, or to the first step where the job tells it: fetching, restoring, loading.
    start_up_ms: int = 0
    #: Work that is in the result, or in a checkpoint that is in safety.
    useful_ms: int = 0
    #: Work stood still to save, and what was flushed after the process had gone.
    checkpoint_ms: int = 0
    #: Work that was done and is in no checkpoint: it has to be done again.
    lost_ms: int = 0
    #: A place was held, and none of the above happened on it.
    idle_ms: int = 0

    def __add__(self, other: Times) -> Times:
        return Times(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Times)))

    @property
    def held_ms(self) -> int:
        """Time on an instance: what is paid for."""
        return self.start_up_ms + self.useful_ms + self.checkpoint_ms + self.lost_ms + self.idle_ms

    @property
    def wall_ms(self) -> int:
        """All of it."""
        return self.waiting_ms + self.held_ms


#: The names of the categories, in the order in which they are told.
CATEGORIES = ("useful", "checkpoint", "lost", "start_up", "idle", "waiting")
#: Those that are paid for.
HELD = CATEGORIES[:-1]


def in_category(times: Times, category: str) -> int:
    """The milliseconds of one of CATEGORIES."""
    spent: int = getattr(times, f"{category}_ms")
    return spent


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


#: Nothing of an attempt's work is kept; earlier than any time.
NEVER = -(1 << 62)


def divided(attempt: Attempt, since: int, until: int, kept_until: int | None) -> Times:
    """What the time from `since`, when the job was last without a place, to the attempt's end went into.

    `until` is the end of the job's story so far. Work up to `kept_until` is in a checkpoint or in the result; None
    means that all of it is, or is not lost yet.
    """
    placed = _between(since, attempt.placed_at, until)
    stopped = _between(placed, until if attempt.stopped_at is None else attempt.stopped_at, until)
    began = _between(placed, stopped if attempt.started_at is None else attempt.started_at, stopped)
    exited = _between(began, stopped if attempt.exited_at is None else attempt.exited_at, stopped)
    first_step_at = None if attempt.progress is None else attempt.progress.first_step_at
    worked = _between(began, began if first_step_at is None else first_step_at, exited)
    kept_at = exited if kept_until is None else _between(worked, kept_until, exited)

    saving = leaving = 0
    if kept_at < exited and _stood_still_after(attempt, kept_until):
        # The last thing it did was to save: what came after was the saving itself, and leaving.
        saving = _between(kept_at, _committed(attempt), exited) - kept_at
        leaving = exited - kept_at - saving
    useful = kept_at - worked
    lost = exited - kept_at - saving - leaving
    # Saves that held up the loop came before the state that is kept, as far as they fit there.
    stall = _stall_ms(attempt, exited - worked)
    stall_before = min(stall, useful)
    stall_after = min(stall - stall_before, lost)
    flush = _between(exited, _in_safety(attempt, stopped), stopped) - exited
    return Times(
        waiting_ms=placed - since,
        start_up_ms=worked - placed,
        useful_ms=useful - stall_before,
        checkpoint_ms=saving + stall_before + stall_after + flush,
        lost_ms=lost - stall_after,
        idle_ms=leaving + stopped - exited - flush,
    )


def kept_until(attempts: list[Attempt]) -> list[int | None]:
    """For each attempt, up to when its work is not lost: None for all of it.

    What a later attempt began with decides, also over the heads of those between: work that is in no checkpoint which
    was restored is lost where it was done. Without a later one, it is the newest checkpoint that is in safety.
    """
    times: list[int | None] = []
    restored: int | None = None
    for attempt in reversed(attempts):
        if attempt.succeeded or attempt.stopped_at is None:
            times.append(None)
        elif restored is not None:
            times.append(restored)
        else:
            times.append(_newest_state(attempt))
        if attempt.started_at is not None:
            state = NEVER if attempt.restored is None else attempt.restored.state_at
            restored = state if restored is None else min(restored, state)
    return times[::-1]


def _newest_state(attempt: Attempt) -> int:
    mark = attempt.checkpoint or attempt.restored
    return NEVER if mark is None else mark.state_at


def _stood_still_after(attempt: Attempt, state_at: int | None) -> bool:
    """Whether the job took no step after the state that is kept, which must be this attempt's own newest one."""
    mark, progress = attempt.checkpoint, attempt.progress
    if mark is None or progress is None or mark.step is None or progress.step is None:
        return False
    return mark.state_at == state_at and progress.step <= mark.step


def _committed(attempt: Attempt) -> int:
    return NEVER if attempt.checkpoint is None else attempt.checkpoint.at


def _in_safety(attempt: Attempt, stopped: int) -> int:
    """When what the process left was saved: at the end for one that succeeded, else at its last commit."""
    return stopped if attempt.succeeded else _committed(attempt)


def _stall_ms(attempt: Attempt, room_ms: int) -> int:
    """How long saving held up the loop. The job wrote that number, so it may be anything."""
    stall_s = 0.0 if attempt.progress is None else attempt.progress.stall_s
    if not stall_s > 0:
        return 0
    return int(min(stall_s * 1000, room_ms))


def _between(low: int, value: int, high: int) -> int:
    """The value, moved into its bounds; `low` is never above `high`."""
    return min(max(low, value), high)


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
