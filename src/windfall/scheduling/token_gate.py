"""Consumable resources as a gate: a job starts when all tokens that it names are free, all at once or not at all.

Jobs behind one that lacks a token may pass it. Once it has waited too long, tokens are kept for it: otherwise
a job that needs three licences could wait for ever behind jobs that need one. Nothing is kept for a job that
lacks room and no token, because room may never come, unless others are vacating a place for it. Must not know
places, nor which job holds what, except to report it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from windfall.jobs.ids import JobId
from windfall.scheduling.quota_gate import GroupKey, InQueue, group_key
from windfall.scheduling.reasons import Reason
from windfall.scheduling.snapshot import Snapshot, Tokens
from windfall.scheduling.wording import counted, number

if TYPE_CHECKING:  # admission.py makes the gates, this one among them
    from windfall.scheduling.admission import AtGate

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
            tuple(sorted(tokens.holders.items(), key=lambda held: (-held[1], held[0]))),
            free - self._left(name, asking),
            tokens.replenishable,
        )
