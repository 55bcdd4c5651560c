"""In which order waiting jobs get their turn. Knows nothing of places.

More urgent queues go first. Queues of equal priority are served as one line, first come first, so that none
of them can starve another by its name; the name only breaks ties.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace, merge
from itertools import groupby, islice, takewhile
from operator import attrgetter

from windfall.jobs.ids import JobId, QueueName
from windfall.scheduling.snapshot import QueueView, Shape, Standing, Waiting, WaitingGroup


class Line:
    """The waiting jobs of one group that have not had their turn, in order."""

    __slots__ = ("_entries", "claimed", "group", "head", "left_of_head", "number", "order", "placed", "view")

    def __init__(self, view: QueueView, group: WaitingGroup, number: int) -> None:
        self.view, self.group, self.number = view, group, number
        self._entries: Iterator[Waiting] = iter(group.entries)
        self.placed = 0
        #: How many, behind those that were placed, have a place that others are leaving.
        self.claimed = 0
        self.head: Waiting
        self.left_of_head = 0
        self.order = 0

    @property
    def queue(self) -> QueueName:
        """The queue that its jobs wait in."""
        return self.view.queue.name

    @property
    def shape(self) -> Shape:
        """What its jobs need."""
        return self.group.shape

    @property
    def standing(self) -> Standing:
        """What else decides about them."""
        return self.group.standing

    def advance(self) -> bool:
        """Go on to the next entry; False at the end."""
        for entry in self._entries:
            if entry.count > 0:
                self.head, self.left_of_head, self.order = entry, entry.count, entry.order
                return True
        return False

    def unplaced(self, before: int | None) -> int:
        """How many jobs of the line have no place: all of it, or those whose order is below `before`.

        The second uses the line up, and takes as long as the line is.
        """
        if before is None:
            return self.group.count - self.placed - self.claimed
        behind = takewhile(lambda entry: entry.order < before, self._entries)
        return self.left_of_head + sum(max(entry.count, 0) for entry in behind)

    def __lt__(self, other: Line) -> bool:
        return (self.order, self.number) < (other.order, other.number)


def by_priority(queues: Iterable[QueueView]) -> Iterator[list[QueueView]]:
    """The queues in levels of equal priority, the most urgent level first, by name within a level."""
    ordered = sorted(queues, key=lambda view: (-view.queue.priority, view.queue.name))
    for _, level in groupby(ordered, key=lambda view: view.queue.priority):
        yield list(level)


class Turns:
    """The lines of one level, merged by the order of their heads; a tick looks at heads only."""

    __slots__ = ("_heap",)

    #: How many jobs of a line may start before it is looked at again whose turn it is.
    stride = 1_000_000

    def __init__(self, level: Sequence[QueueView]) -> None:
        pairs = [(view, group) for view in level for group in view.groups]
        lines = [Line(view, group, number) for number, (view, group) in enumerate(pairs)]
        self._heap = [line for line in lines if line.advance()]
        heapify(self._heap)

    def first(self) -> Line | None:
        """The line whose head has its turn."""
        return self._heap[0] if self._heap else None

    def head_done(self) -> None:
        """All jobs of the first line's head have had their turn and got a place."""
        line = self._heap[0]
        if line.advance():
            heapreplace(self._heap, line)
        else:
            heappop(self._heap)

    def go_on(self) -> None:
        """Some of the first line's head got a place; it may be another line's turn now."""

    def drop(self) -> None:
        """Nobody else in the first line can get a place either: leave the whole line."""
        heappop(self._heap)


def dispatch_order(view: QueueView, limit: int) -> list[tuple[JobId, Waiting]]:
    """The first waiting entries of a queue in the order in which they get their turn, at most `limit`."""
    merged = merge(*(group.entries for group in view.groups), key=attrgetter("order"))
    waiting = ((entry.job_id, entry) for entry in merged if entry.count > 0)
    return list(islice(waiting, max(limit, 0)))


def jobs_ahead(view: QueueView, waiting: Waiting) -> int:
    """How many jobs of the queue, children counted one by one, have their turn before this one."""
    ahead = 0
    for group in view.groups:
        for entry in group.entries:
            if entry.order >= waiting.order:
                break
            ahead += max(entry.count, 0)
    return ahead
