"""Whether a job may start at its turn, regardless of free capacity: tokens, quotas, reserved shares.

Each gate enforces one kind of limit and counts what it has admitted while a plan is made. Consumable resources: a job
starts when all tokens that it names are free, all at once or not at all. Jobs behind one that lacks a token may pass
it. Once it has waited too long, tokens are kept for it: otherwise a job that needs three licences could wait for ever
behind jobs that need one. Nothing is kept for a job that lacks room and no token, because room may never come, unless
others are vacating a place for it. Must not know places, nor which job holds what, except to report it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Protocol

from windfall.jobs.ids import JobId, QueueName
from windfall.scheduling.fair_share import FairShareView, needs_of
from windfall.scheduling.quota_gate import GroupKey, InQueue, QuotaGate, group_key
from windfall.scheduling.reasons import Reason
from windfall.scheduling.share_reasons import ComputeReserved
from windfall.scheduling.snapshot import SchedulingClass, Shape, Snapshot, Tokens, Waiting
from windfall.scheduling.wording import counted, number

_NONE = Tokens(0, 0)
#: How many holders are named; the others are counted.
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class TokensTaken:
    """A consumable resource has fewer tokens free than the job needs."""

    code: ClassVar[str] = "CONSUMABLE_RESOURCE_TAKEN"
    resource: str
    wanted: int
    free: int
    total: int
    #: Which jobs hold how many.
    holders: tuple[tuple[JobId, int], ...] = ()
    #: How many of the free ones are kept for other jobs that have waited longer, or have a place already.
    kept: int = 0
    replenishable: bool = True

    def text(self) -> str:
        asks = f"wants {number(self.wanted)} of {self.resource}, {number(self.free)} of {number(self.total)} free"
        if self.kept:
            asks += f" ({number(self.kept)} of them kept for jobs that come first)"
        if self.holders:
            named = [f"{job_id} ({number(count)})" for job_id, count in self.holders[:NAMED_MAX]]
            more = len(self.holders) - NAMED_MAX
            others = f" and {counted(more, 'other job', 'other jobs')}" if more > 0 else ""
            asks += f"; held by {', '.join(named)}{others}"
        if self.wanted > self.total:
            return f"{asks}; it never starts: raise the total with update-consumable-resource"
        if not self.replenishable:
            return f"{asks}; what is used up does not come back: add some with update-consumable-resource"
        return asks


class TokenGate:
    """Counts the tokens that are left while a plan is made."""

    __slots__ = ("_free", "_kept", "_long_ago", "_pledged", "_tokens", "name")

    def __init__(self, snapshot: Snapshot) -> None:
        self.name = "consumable resources"
        self._tokens = snapshot.tokens
        self._free = {name: tokens.free for name, tokens in snapshot.tokens.items()}
        self._kept: dict[str, int] = {}
        #: Kept for jobs that others vacate a place for; jobs of the same group may take them.
        self._pledged: Counter[GroupKey] = Counter()
        #: A job that became RUNNABLE before this has waited too long.
        self._long_ago = snapshot.now - snapshot.rules.reserve_after_ms

    def admits(self, asking: AtGate, wanted: int) -> int:
        """How many of `wanted` jobs the tokens are enough for."""
        tokens = asking.scheduling_class.tokens
        if not tokens:
            return wanted
        enough_for = min([wanted, *(self._left(name, asking) // count for name, count in tokens)])
        if not enough_for and asking.head.runnable_at < self._long_ago:
            self._keep_for(asking)
        return enough_for

    def started(self, asking: AtGate, count: int) -> None:
        """Take the tokens of `count` jobs."""
        for name, wanted in asking.scheduling_class.tokens:
            self._free[name] = self._free.get(name, 0) - wanted * count

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep the tokens of `count` jobs from others; negative undoes it."""
        if asking.scheduling_class.tokens:
            self._pledged[group_key(asking)] += count

    def reasons(self, asking: AtGate) -> list[Reason]:
        """One reason for each resource that has too few tokens left."""
        return [
            self._taken(name, wanted, asking)
            for name, wanted in asking.scheduling_class.tokens
            if self._left(name, asking) < wanted
        ]

    def _left(self, name: str, asking: InQueue) -> int:
        """What it may take: what no other job has a better claim to, and what is pledged to it.

        A job that has waited long does not keep others from what is pledged to them: it may be waiting for
        just that, and both would wait for ever. If there are fewer tokens by now than pledges, the first jobs
        get them.
        """
        free, reserved = self._free.get(name, 0), self._kept.get(name, 0)
        before = mine = after = 0
        for key, count in self._pledged.items():
            pledged = count * dict(key[2].tokens).get(name, 0)
            if key == group_key(asking):
                mine = pledged
            elif mine:
                after += pledged
            else:
                before += pledged
        own = max(0, min(mine, free - before))
        return own + max(0, free - before - mine - after - reserved)

    def _keep_for(self, asking: AtGate) -> None:
        wanted = asking.scheduling_class.tokens
        if any(count > self._tokens.get(name, _NONE).total for name, count in wanted):
            return  # It can never start, so no other job waits for it.
        for name, count in wanted:
            self._kept[name] = self._kept.get(name, 0) + count

    def _taken(self, name: str, wanted: int, asking: InQueue) -> TokensTaken:
        tokens, free = self._tokens.get(name, _NONE), self._free.get(name, 0)
        return TokensTaken(
            name,
            wanted,
            free,
            tokens.total,
            tuple(sorted(tokens.holders.items(), key=lambda pair: (-pair[1], pair[0]))),
            free - self._left(name, asking),
            tokens.replenishable,
        )


#: Sums of parts of GPUs are exact only up to this.
_ROUNDING = 1e-9


class ReservationGate:
    """Keeps active shares from using what is reserved for others."""

    name = "compute reservation"

    def __init__(self, views: Mapping[QueueName, FairShareView]) -> None:
        self._views = views
        self._left = {queue: view.usable - view.held for queue, view in views.items()}
        #: Held by jobs that others vacate a place for.
        self._pledged: Counter[GroupKey] = Counter()

    @classmethod
    def of(cls, snapshot: Snapshot) -> ReservationGate | None:
        """The gate for a snapshot, if any queue reserves something."""
        by_queue = {view.queue.name: view.fair_share for view in snapshot.queues}
        views = {
            name: view
            for name, view in by_queue.items()
            if view is not None and view.kept.fraction_of(view.total)
        }
        return cls(views) if views else None

    def admits(self, asking: AtGate, wanted: int) -> int:
        """As many as fit into what the active shares may still use."""
        left = self._left.get(asking.queue)
        if left is None:
            return wanted
        needs = needs_of(asking.shape, asking.scheduling_class)
        for key, count in self._pledged.items():
            if key[0] == asking.queue and key != group_key(asking):
                left = left - needs_of(key[1], key[2]).times(count)
        return int(min(wanted, _fitting(left.vcpus, needs.vcpus), _fitting(left.gpus, needs.gpus)))

    def started(self, asking: AtGate, count: int) -> None:
        """Count what they hold from now on."""
        left = self._left.get(asking.queue)
        if left is not None:
            self._left[asking.queue] = left - needs_of(asking.shape, asking.scheduling_class).times(count)

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep what `count` jobs will hold from others of their queue."""
        if asking.queue in self._left:
            self._pledged[group_key(asking)] += count

    def reasons(self, asking: AtGate) -> list[Reason]:
        """What is reserved and what it leaves, if that is less than one more of them needs."""
        if self.admits(asking, 1):
            return []
        view = self._views[asking.queue]
        used = view.usable - self._left[asking.queue]
        return [
            ComputeReserved(
                asking.queue,
                view.reservation_percent,
                len(view.shares),
                view.kept,
                view.total,
                used,
                needs_of(asking.shape, asking.scheduling_class),
            )
        ]


def _fitting(left: float, each: float) -> float:
    return inf if each <= 0 else (left + _ROUNDING) // each


class AtGate(InQueue, Protocol):
    """Jobs that ask a gate for admission."""

    @property
    def head(self) -> Waiting:
        """The first of them."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A job checked on its own, outside the pass, as explain does."""

    queue: QueueName
    shape: Shape
    scheduling_class: SchedulingClass
    head: Waiting


class Gate(Protocol):
    """One kind of limit."""

    #: Its name in reports of barred jobs.
    name: str

    def admits(self, asking: AtGate, wanted: int) -> int:
        """How many of `wanted` jobs may start now."""

    def started(self, asking: AtGate, count: int) -> None:
        """Count `count` jobs that got a place."""

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep from others what `count` jobs will hold once their places are vacated; negative undoes it."""

    def reasons(self, asking: AtGate) -> list[Reason]:
        """Why one more of these jobs may not start now, with the numbers; empty if it may."""


class Admission:
    """All gates; a job has to pass every one."""

    __slots__ = ("gates", "quota")

    def __init__(self, gates: Sequence[Gate]) -> None:
        self.gates = gates
        #: The gate of queues with quota shares. Preempting other jobs can open it.
        self.quota = next((gate for gate in gates if isinstance(gate, QuotaGate)), None)

    @classmethod
    def to(cls, snapshot: Snapshot) -> Admission:
        """The gates that a snapshot needs."""
        return cls(_gates(snapshot))

    def admits(self, asking: AtGate, wanted: int) -> tuple[int, str | None]:
        """How many of `wanted` jobs may start, and which gate bars the next one."""
        barred_by = None
        for gate in self.gates:
            let_in = gate.admits(asking, wanted)
            if let_in < wanted:
                wanted, barred_by = max(0, let_in), gate.name
        return wanted, barred_by

    def started(self, asking: AtGate, count: int) -> None:
        """Count `count` jobs that got a place."""
        for gate in self.gates:
            gate.started(asking, count)

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep from others what `count` jobs will hold; negative undoes it."""
        for gate in self.gates if count else ():
            gate.pledge(asking, count)

    def reasons(self, asking: AtGate) -> list[Reason]:
        """Why one more of these jobs may not start now, by every gate that bars it; empty if it may."""
        return [reason for gate in self.gates for reason in gate.reasons(asking)]

    def only_quota_bars(self, asking: AtGate) -> bool:
        """Whether a quota is the only limit that bars these jobs."""
        return all(gate is self.quota or not gate.reasons(asking) for gate in self.gates)


def _gates(snapshot: Snapshot) -> list[Gate]:
    """Only the gates with something to limit, so that ordinary queues pay nothing."""
    gates: list[Gate] = []
    if snapshot.tokens:
        gates.append(TokenGate(snapshot))
    if (reservation := ReservationGate.of(snapshot)) is not None:
        gates.append(reservation)
    if snapshot.quotas:
        gates.append(QuotaGate(snapshot))
    return gates
