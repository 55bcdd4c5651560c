"""How many multi-node jobs may search for attempts to preempt in one pass: all, unless that takes too long.

A search goes over all instances and all that runs there. If many different gangs wait that no preemption can
help, each of them would search in every pass and find nothing. So only as many search as the effort allows:
half of them are those whose turn comes first, and the others take turns by the clock. Must not know what a
search finds.
"""

from __future__ import annotations

from dataclasses import dataclass

from windfall.scheduling.snapshot import Snapshot

#: How many instances and attempts are examined in one pass, for all gangs together.
MOST_EXAMINED = 10_000
#: At least this many gangs search, however large the fleet.
LEAST_SEARCHES = 2
#: How long a turn is: while a job waits, passes come at least this often.
TURN_MS = 1_000


@dataclass(slots=True)
class SearchBudget:
    """Which gangs may search, asked in the order of the pass."""

    #: How many may search in this pass, and how many lines of gangs wait.
    most: int
    waiting: int
    now: int
    _asked: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> SearchBudget:
        """The budget for this snapshot."""
        waiting = sum(
            group.scheduling_class.gang is not None for view in snapshot.queues for group in view.groups
        )
        if waiting <= LEAST_SEARCHES:
            return cls(LEAST_SEARCHES, waiting, snapshot.now)
        each = sum(1 + len(instance.releases) for instance in snapshot.instances)
        return cls(max(LEAST_SEARCHES, MOST_EXAMINED // max(1, each)), waiting, snapshot.now)

    def allows_next(self) -> bool:
        """Whether the next gang in the order may search now."""
        place, self._asked = self._asked, self._asked + 1
        first = self.most // 2
        if self.waiting <= self.most or place < first:
            return True
        turns = -(-(self.waiting - first) // (self.most - first))
        return (place - first) % turns == self.now // TURN_MS % turns
