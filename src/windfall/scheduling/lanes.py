"""Which waiting job of one queue has the next turn. Knows nothing of places.

A line is a group of equal jobs, first come, first served. Within a share of a queue the more urgent line goes
first. Among the shares of a fair-share queue the one with the lowest score has its turn, job by job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import takewhile
from typing import Protocol

from windfall.jobs.ids import QueueName
from windfall.scheduling.fair_share import NONE, FairShareView, needs_of
from windfall.scheduling.snapshot import QueueView, SchedulingClass, Shape, Waiting, WaitingGroup

#: How many jobs of a line may start before the turn is decided again.
AT_ONCE = 1_000_000


class Line:
    """The waiting jobs of one group that have not had their turn, in order."""

    __slots__ = (
        "_entries",
        "claimed",
        "dropped",
        "group",
        "head",
        "left_of_head",
        "number",
        "order",
        "placed",
        "view",
    )

    def __init__(self, view: QueueView, group: WaitingGroup, number: int) -> None:
        self.view, self.group, self.number = view, group, number
        self._entries: Iterator[Waiting] = iter(group.entries)
        self.placed = 0
        #: How many, behind those that were placed, have a place that others are vacating.
        self.claimed = 0
        #: Whether one of its jobs found no place, so that none behind it will.
        self.dropped = False
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
    def scheduling_class(self) -> SchedulingClass:
        """What else decides about them."""
        return self.group.scheduling_class

    def advance(self) -> bool:
        """Go on to the next entry; False at the end."""
        for entry in self._entries:
            if entry.count > 0:
                self.head, self.left_of_head, self.order = entry, entry.count, entry.order
                return True
        return False

    def unplaced(self, before: int | None) -> int:
        """How many jobs of the line have no place: all of it, or those whose order is below `before`.

        The second form consumes the line, and takes time proportional to its length.
        """
        if before is None:
            return self.group.count - self.placed - self.claimed
        behind = takewhile(lambda entry: entry.order < before, self._entries)
        return self.left_of_head + sum(max(entry.count, 0) for entry in behind)

    def __lt__(self, other: Lane) -> bool:
        return (self.order, self.number) < (other.order, other.number)

    # A line by itself is also a lane.

    stride = AT_ONCE

    @property
    def first(self) -> Line:
        """Itself."""
        return self

    def head_done(self) -> bool:
        """Go on to the next entry; False at the end."""
        return self.advance()

    def go_on(self) -> None:
        """It is still its turn."""

    def drop(self) -> bool:
        """Nothing is left of a dropped line."""
        return False


class Lane(Protocol):
    """Lines that take turns: one at a time has the turn."""

    #: How many of its jobs may start before the turn is decided again.
    stride: int

    @property
    def first(self) -> Line:
        """The line whose turn it is."""

    @property
    def order(self) -> int:
        """Its position among other lanes."""

    @property
    def number(self) -> int:
        """The tie-break between lanes of equal order."""

    def head_done(self) -> bool:
        """All jobs of the first line's head got a place; False if nothing is left."""

    def go_on(self) -> None:
        """Some jobs of the first line's head got a place."""

    def drop(self) -> bool:
        """No other job of the first line can get a place; False if nothing is left."""

    def __lt__(self, other: Lane) -> bool: ...


class ShareLane:
    """The lines of one share: the more urgent first, then first come, first served."""

    __slots__ = ("_heap", "score", "share")

    stride = AT_ONCE

    def __init__(self, share: str | None, lines: Iterable[Line]) -> None:
        self.share = share
        self._heap = [(-line.scheduling_class.priority, line) for line in lines]
        heapify(self._heap)
        #: Its position among the shares of a fair-share queue.
        self.score = 0.0

    @property
    def first(self) -> Line:
        """The line whose turn it is."""
        return self._heap[0][1]

    @property
    def order(self) -> int:
        """The order of its first job."""
        return self._heap[0][1].order

    @property
    def number(self) -> int:
        """The name of its first line."""
        return self._heap[0][1].number

    def head_done(self) -> bool:
        """Go on to the next job."""
        priority, line = self._heap[0]
        if line.advance():
            heapreplace(self._heap, (priority, line))
        else:
            heappop(self._heap)
        return bool(self._heap)

    def go_on(self) -> None:
        """It is still the same job's turn."""

    def drop(self) -> bool:
        """Drop the first line."""
        heappop(self._heap)
        return bool(self._heap)

    def __lt__(self, other: Lane) -> bool:
        mine, score = (self.order, self.number), self.score
        if isinstance(other, ShareLane) and score != other.score:
            return score < other.score
        return mine < (other.order, other.number)


class FairLane:
    """All shares of a fair-share queue: one job at a time, from the share with the lowest score."""

    __slots__ = ("_charged", "_got", "_heap", "_view")

    stride = 1

    def __init__(self, view: FairShareView, shares: list[ShareLane]) -> None:
        self._view = view
        #: What each share got in this pass, and how many jobs of a line have been charged.
        self._got = dict.fromkeys((lane.share for lane in shares), NONE)
        self._charged: dict[Line, int] = {}
        for lane in shares:
            lane.score = view.score(lane.share)
        self._heap = shares
        heapify(self._heap)

    @property
    def first(self) -> Line:
        """The line whose turn it is."""
        return self._heap[0].first

    @property
    def order(self) -> int:
        """The order of the job whose turn it is."""
        return self._heap[0].order

    @property
    def number(self) -> int:
        """The name of the line whose turn it is."""
        return self._heap[0].number

    def head_done(self) -> bool:
        """Charge the share and decide the turn again."""
        lane = self._charge()
        return self._moved(lane, lane.head_done())

    def go_on(self) -> None:
        """Charge the share and decide the turn again."""
        heapreplace(self._heap, self._charge())

    def drop(self) -> bool:
        """Drop the first line; its share may have others."""
        lane = self._charge()
        return self._moved(lane, lane.drop())

    def __lt__(self, other: Lane) -> bool:
        return (self.order, self.number) < (other.order, other.number)

    def _charge(self) -> ShareLane:
        lane = self._heap[0]
        line, view = lane.first, self._view
        taken = line.placed + line.claimed
        new = taken - self._charged.get(line, 0)
        if new:
            self._charged[line] = taken
            got = self._got[lane.share] + needs_of(line.shape, line.scheduling_class).times(new)
            self._got[lane.share] = got
            lane.score = view.share(lane.share).score(view.total, got)
        return lane

    def _moved(self, lane: ShareLane, more: bool) -> bool:
        if more:
            heapreplace(self._heap, lane)
        else:
            heappop(self._heap)
        return bool(self._heap)


def lanes_of(view: QueueView, lines: list[Line]) -> list[Lane]:
    """The lanes of one queue, to be merged with those of other queues."""
    shares: dict[str, list[Line]] = {}
    lanes: list[Lane] = []
    for line in lines:
        share = line.scheduling_class.share
        if share is None and view.fair_share is None:
            lanes.append(line)
        else:
            shares.setdefault(share or "", []).append(line)
    each = [ShareLane(share, own) for share, own in shares.items()]
    if view.fair_share is not None:
        return [FairLane(view.fair_share, each)] if each else []
    return [*lanes, *each]
