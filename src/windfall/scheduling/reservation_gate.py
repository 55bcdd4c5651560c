"""What a fair-share policy reserves for shares that are not active yet (computeReservation), as a gate.

Must not know places, nor how shares are ordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from windfall.jobs.ids import QueueName
from windfall.scheduling.fair_share import FairShareView, needs_of
from windfall.scheduling.quota_gate import GroupKey, InQueue, group_key
from windfall.scheduling.reasons import Reason
from windfall.scheduling.share_reasons import ComputeReserved
from windfall.scheduling.snapshot import Snapshot

if TYPE_CHECKING:  # admission.py makes the gates, this one among them
    from windfall.scheduling.admission import AtGate

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
