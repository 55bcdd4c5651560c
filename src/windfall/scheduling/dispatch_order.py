"""In which order waiting jobs get their turn. Knows nothing of places.

More urgent queues go first. Queues of equal priority are served as one line, first come, first served, so
that none of them can starve another by its name; the name only breaks ties. A fair-share queue takes part
with the order of the job whose turn it is (lanes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace, merge
from itertools import groupby, islice
from operator import attrgetter

from windfall.jobs.ids import JobId, QueueName
from windfall.scheduling.lanes import AT_ONCE, Lane, Line, lanes_of
from windfall.scheduling.quota_gate import QuotaGate
from windfall.scheduling.snapshot import ORDINARY, QueueView, SchedulingClass, Shape, Waiting


def by_priority(queues: Iterable[QueueView]) -> Iterator[list[QueueView]]:
    """The queues in levels of equal priority, the most urgent level first, by name within a level."""
    ordered = sorted(queues, key=lambda view: (-view.queue.priority, view.queue.name))
    for _, level in groupby(ordered, key=lambda view: view.queue.priority):
        yield list(level)


class Turns:
    """The lanes of one level, merged by the order of their heads; a pass looks at heads only."""

    __slots__ = ("_deferred", "_heap", "borrowing")

    def __init__(self, level: Sequence[QueueView]) -> None:
        self._heap: list[Lane] = []
        self._deferred: list[Lane] = []
        #: Whether the lanes that had to let all others go first have their turn now.
        self.borrowing = False
        number = 0
        for view in level:
            lines = [Line(view, group, number + place) for place, group in enumerate(view.groups)]
            number += len(lines)
            self._heap += lanes_of(view, [line for line in lines if line.advance()])
        heapify(self._heap)

    def first(self) -> Line | None:
        """The line whose head has its turn."""
        if not self._heap and self._deferred:
            self._heap, self._deferred, self.borrowing = self._deferred, [], True
            heapify(self._heap)
        return self._heap[0].first if self._heap else None

    def defer(self) -> None:
        """Put the first lane behind all others: it could only borrow (quota_gate.py)."""
        self._deferred.append(heappop(self._heap))

    @property
    def stride(self) -> int:
        """How many jobs of the first line may start before the turn is decided again."""
        return self._heap[0].stride if self._heap else AT_ONCE

    def head_done(self) -> None:
        """All jobs of the first line's head got a place."""
        self._moved(more=self._heap[0].head_done())

    def go_on(self) -> None:
        """Some jobs of the first line's head got a place; another line may have its turn now."""
        self._heap[0].go_on()
        self._moved(more=True)

    def drop(self) -> None:
        """No other job of the first line can get a place either: drop the whole line."""
        lane = self._heap[0]
        lane.first.dropped = True
        self._moved(more=lane.drop())

    def _moved(self, *, more: bool) -> None:
        if more:
            heapreplace(self._heap, self._heap[0])
        else:
            heappop(self._heap)


@dataclass(frozen=True, slots=True)
class Until:
    """A waiting job; a pass is made up to its turn."""

    priority: int
    order: int
    #: The group it waits in, if its queue does not serve jobs in their order.
    group: tuple[QueueName, Shape, SchedulingClass] | None = None

    @classmethod
    def turn_of(
        cls, view: QueueView, shape: Shape, scheduling_class: SchedulingClass, waiting: Waiting
    ) -> Until:
        """The turn of a job of this queue."""
        group = None if scheduling_class.share is None else (view.queue.name, shape, scheduling_class)
        return cls(view.queue.priority, waiting.order, group)

    def in_same_group(self, line: Line) -> bool:
        """Whether it waits in this line, in a queue that does not serve jobs in their order."""
        return self.group is not None and self.group == (line.queue, line.shape, line.scheduling_class)

    def reached(self, line: Line) -> bool:
        """Whether that job's turn has come, or has passed, when this line is first."""
        return line.order >= self.order and (self.group is None or self.in_same_group(line))

    def before(self, line: Line) -> int | None:
        """The order below which jobs of a line have their turn before it; None means all of them."""
        return self.order if self.group is None or self.in_same_group(line) else None


def dispatch_order(
    view: QueueView, limit: int, quota: QuotaGate | None = None
) -> list[tuple[JobId, Waiting]]:
    """The first waiting entries of a queue in dispatch order, at most `limit`.

    With the gate of quota shares, which counts along, jobs that would have to borrow come after all others.
    """
    if view.fair_share is None and all(group.scheduling_class.share is None for group in view.groups):
        merged = merge(*(group.entries for group in view.groups), key=attrgetter("order"))
        waiting = ((entry.job_id, entry) for entry in merged if entry.count > 0)
        return list(islice(waiting, max(limit, 0)))
    turns, order = Turns([view]), list[tuple[JobId, Waiting]]()
    while len(order) < limit and (line := turns.first()) is not None:
        if quota is not None:
            quota.borrowing = turns.borrowing
            if quota.waits_to_borrow(line):
                turns.defer()
                continue
            quota.started(line, line.left_of_head)
        order.append((line.head.job_id, line.head))
        # As if all had found a place. Giving an array all its places at once changes nothing: the next job of
        # its share has its turn when the share has been charged for all of them.
        line.placed += line.left_of_head
        turns.head_done()
    return order


def jobs_ahead(view: QueueView, waiting: Waiting, scheduling_class: SchedulingClass = ORDINARY) -> int:
    """How many jobs of the queue (or of its share) have their turn before this one; children count one by one."""
    ahead = 0
    for group in view.groups:
        if group.scheduling_class.share != scheduling_class.share:
            continue
        if (
            scheduling_class.share is not None
            and group.scheduling_class.priority != scheduling_class.priority
        ):
            ahead += group.count if group.scheduling_class.priority > scheduling_class.priority else 0
            continue
        for entry in group.entries:
            if entry.order >= waiting.order:
                break
            ahead += max(entry.count, 0)
    return ahead
