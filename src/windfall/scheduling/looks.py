"""How many multi-node jobs look in one tick for others who could leave: all, unless that takes longer than a tick may.

A look goes over all instances and all that runs there. Where many different gangs wait that nobody can help, each of
them would look in every tick and find nothing. So as many look as the effort allows: half of them are those whose turn
comes first, and the others take turns by the clock. Must not know what a look finds.
"""

from __future__ import annotations

from dataclasses import dataclass

from windfall.scheduling.snapshot import Snapshot

#: So many instances and attempts are looked at in one tick, for all gangs together.
MOST_LOOKED_AT = 10_000
#: At least so many gangs look, on however large a fleet.
LEAST_LOOKS = 2
#: How long a turn is: a tick comes at least so often while somebody waits.
TURN_MS = 1_000


@dataclass(slots=True)
class Looks:
    """Whose turn it is to look, asked in the order of the pass."""

    #: How many may look in this tick, and how many lines of gangs wait.
    most: int
    waiting: int
    now: int
    _asked: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> Looks:
        """What this moment allows."""
        waiting = sum(group.standing.gang is not None for view in snapshot.queues for group in view.groups)
        if waiting <= LEAST_LOOKS:
            return cls(LEAST_LOOKS, waiting, snapshot.now)
        each = sum(1 + len(instance.releases) for instance in snapshot.instances)
        return cls(max(LEAST_LOOKS, MOST_LOOKED_AT // max(1, each)), waiting, snapshot.now)

    def next(self) -> bool:
        """Whether the next one in the order looks now."""
        place, self._asked = self._asked, self._asked + 1
        first = self.most // 2
        if self.waiting <= self.most or place < first:
            return True
        turns = -(-(self.waiting - first) // (self.most - first))
        return (place - first) % turns == self.now // TURN_MS % turns
