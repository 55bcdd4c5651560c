"""When the calendar has something to do next, and which runs belong to which ticks.

Derived from schedules and open ticks; decides nothing. Heap entries that are outdated are dropped when they come up.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from windfall.jobs.ids import JobId

#: One due time of one schedule.
TickKey = tuple[str, int]

#: Stands in the heap for the schedule itself: its next due time is to be decided.
_SCHEDULE = -1
#: Outdated entries are dropped when there are this many more of them than others.
_SPARE = 1_000


@dataclass(slots=True)
class CalendarIndex:
    """The calendar's due times in order."""

    #: (time, schedule, due time of the tick that is to be done then).
    heap: list[tuple[int, str, int]] = field(default_factory=list)
    #: The next due time of every schedule that has one.
    planned: dict[str, int] = field(default_factory=dict)
    #: When ticks that wait for their time are to be done; those whose target is being asked are not among them.
    waiting: dict[TickKey, int] = field(default_factory=dict)
    #: Due times of the open ticks of each schedule.
    open: dict[str, set[int]] = field(default_factory=dict)
    #: The ticks of runs that have not ended.
    runs: dict[JobId, TickKey] = field(default_factory=dict)
    #: How many ticks of a schedule were decided since its history was last cut.
    uncut: dict[str, int] = field(default_factory=dict)

    def plan(self, schedule: str, due_at: int | None) -> None:
        """Handle a schedule at its next due time; None, never again."""
        if due_at is None:
            self.planned.pop(schedule, None)
        else:
            self.planned[schedule] = due_at
            self._push((due_at, schedule, _SCHEDULE))

    def wait(self, tick: TickKey, at: int) -> None:
        """Handle a tick at this time."""
        self.waiting[tick] = at
        self._push((at, *tick))

    def next_at(self) -> int | None:
        """When something is to be done, if anything is."""
        while self.heap and not self._is_current(self.heap[0]):
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def take(self, now: int) -> tuple[str, int | None] | None:
        """A schedule that is due, or a tick of it (with its due time) that is to be done; None when nothing is."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, schedule, due_at = heapq.heappop(self.heap)
        if due_at == _SCHEDULE:
            del self.planned[schedule]
            return schedule, None
        del self.waiting[schedule, due_at]
        return schedule, due_at

    def forget(self, schedule: str) -> None:
        """A schedule is gone."""
        self.planned.pop(schedule, None)
        self.uncut.pop(schedule, None)

    def _push(self, entry: tuple[int, str, int]) -> None:
        heapq.heappush(self.heap, entry)
        if len(self.heap) > 2 * (len(self.planned) + len(self.waiting)) + _SPARE:
            self.heap = [entry for entry in self.heap if self._is_current(entry)]
            heapq.heapify(self.heap)

    def _is_current(self, entry: tuple[int, str, int]) -> bool:
        at, schedule, due_at = entry
        if due_at == _SCHEDULE:
            return self.planned.get(schedule) == at
        return self.waiting.get((schedule, due_at)) == at
