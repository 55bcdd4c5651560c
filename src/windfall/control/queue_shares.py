"""The shares of a queue, for readers: what each uses, has used, waits for and runs.

Reads the same values as the scheduler. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from windfall.capacity.environments import JobQueue
from windfall.capacity.policies import INSTANCES
from windfall.control.service_use import service_shares
from windfall.control.share_use import capacity_of, fair_share_view
from windfall.control.state import State
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import HOLDING
from windfall.scheduling.fair_share import NONE, Amount, FairShareView, amount_of
from windfall.scheduling.quotas import Quotas


@dataclass(frozen=True, slots=True)
class ShareStatus:
    """One share: of a fair-share queue, or a quota share."""

    name: str
    held: Amount = NONE
    #: Jobs that wait for a place and that have one, children counted one by one.
    waiting: int = 0
    running: int = 0
    #: In a fair-share queue.
    weight: float = 1.0
    average: Amount = NONE
    score: float = 0.0
    #: Of a quota share: how it shares, and by unit its own limits, what it holds, and what it holds beyond its limits.
    sharing: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    borrowed: Mapping[str, float] = field(default_factory=dict)
    #: The first job that waits in it, and since when it could start.
    front: tuple[JobId, int] | None = None


@dataclass(frozen=True, slots=True)
class QueueShares:
    """A queue's capacity and shares at one moment."""

    queue: QueueName
    policy: str | None
    total: Amount
    #: By all its jobs.
    held: Amount
    #: The most in use first.
    shares: tuple[ShareStatus, ...] = ()
    #: Whether its shares are those of a fair-share policy; then also what that says.
    is_fair: bool = False
    window_s: int = 0
    reservation_percent: int = 0
    kept: Amount = NONE
    #: What `vcpus` counts: instances in a queue of service jobs.
    unit: str = "VCPU"


@dataclass(slots=True)
class _Tally:
    """What the jobs of one share hold, and how many there are."""

    held: Amount = NONE
    #: By unit, for limits.
    units: dict[str, float] = field(default_factory=dict)
    waiting: int = 0
    running: int = 0
    #: The first that waits: priority (the higher, the lower), order, id, and since when it could start.
    front: tuple[int, int, JobId, int] | None = None

    def waits(self, count: int, priority: int, order: int, job_id: JobId, since: int) -> None:
        self.waiting += count
        entry = (-priority, order, job_id, since)
        self.front = entry if self.front is None else min(self.front, entry)

    def add(self, more: Amount, units: Mapping[str, float]) -> None:
        self.held += more
        self.running += 1
        for unit, amount in units.items():
            self.units[unit] = self.units.get(unit, 0.0) + amount


def queue_shares(state: State, name: QueueName, now: int) -> QueueShares | None:
    """The shares of a queue; None when there is no such queue."""
    queue = state.queues.get(name)
    if queue is None:
        return None
    tallies = _service_tallies(state, queue) if queue.service_environment else _tallies(state, queue)
    used = NONE
    for tally in tallies.values():
        used += tally.held
    if queue.service_environment:
        environment = state.service_environments.get(queue.service_environment)
        instances = sum(amount for _, amount in environment.limits) if environment is not None else 0
        total, unit = Amount(float(instances)), INSTANCES
        view = service_shares(state, queue, total.vcpus, now)
    else:
        total, unit = capacity_of(state, queue)[0], "VCPU"
        view = fair_share_view(state, queue, now)
    unordered = _quota_shares(state, name, tallies) if view is None else _fair_shares(view, tallies)
    shares = tuple(sorted(unordered, key=lambda share: (-share.held.fraction_of(total), share.name)))
    answer = QueueShares(name, queue.policy, total, used, shares, unit=unit)
    if view is None:
        return answer
    return QueueShares(
        name,
        queue.policy,
        total,
        used,
        shares,
        is_fair=True,
        window_s=view.window_s,
        reservation_percent=view.reservation_percent,
        kept=view.kept,
        unit=unit,
    )


def _tallies(state: State, queue: JobQueue) -> dict[str | None, _Tally]:
    tallies: dict[str | None, _Tally] = {}
    for job in state.attempts.values():
        if job.submission.queue == queue.name:
            needs = job.needs
            units = {"VCPU": needs.vcpus, "GPU": float(needs.gpus), "MEMORY": float(needs.memory_mib)}
            tallies.setdefault(job.submission.share, _Tally()).add(amount_of(needs), units)
    for group in state.backlog.groups(queue.name):
        first = next(iter(group.entries))
        tally = tallies.setdefault(group.scheduling_class.share, _Tally())
        tally.waits(
            group.count, group.scheduling_class.priority, first.order, first.job_id, first.runnable_at
        )
    return tallies


def _service_tallies(state: State, queue: JobQueue) -> dict[str | None, _Tally]:
    tallies: dict[str | None, _Tally] = {}
    for job in state.service_jobs.values():
        if job.queue != queue.name:
            continue
        tally = tallies.setdefault(job.quota_share or job.share, _Tally())
        if job.state in HOLDING:
            instances = float(sum(job.instances.values()))
            tally.add(Amount(instances), {**job.instances, INSTANCES: instances})
        else:
            tally.waits(1, job.priority, job.order, job.id, job.runnable_at or job.created_at)
    return tallies


def _fair_shares(view: FairShareView, tallies: Mapping[str | None, _Tally]) -> Iterator[ShareStatus]:
    for name, share in view.shares.items():
        tally = tallies.get(name, _Tally())
        yield ShareStatus(
            name,
            share.held,
            tally.waiting,
            tally.running,
            share.weight,
            share.average,
            view.score(name),
        )


def _quota_shares(
    state: State, queue: QueueName, tallies: Mapping[str | None, _Tally]
) -> Iterator[ShareStatus]:
    shares = [share for share in state.quota_shares.values() if share.queue == queue]
    quotas = Quotas(shares, {name: tally.units for name, tally in tallies.items() if name is not None})
    for share in shares:
        tally, limits = tallies.get(share.name, _Tally()), quotas.limits(share.name)
        yield ShareStatus(
            share.name,
            tally.held,
            tally.waiting,
            tally.running,
            sharing=share.sharing,
            limits=limits,
            used={unit: quotas.used(share.name).get(unit, 0.0) for unit in limits},
            borrowed=quotas.above(share.name),
            front=None if tally.front is None else tally.front[2:],
        )
