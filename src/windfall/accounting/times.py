"""The six things that a job's time goes into, in whole milliseconds so that sums are exact."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds by what they were for; none is negative. All but `waiting_ms` were spent on an instance."""

    #: No place yet, or none any more.
    waiting_ms: int = 0
    #: From the place to the process, or to the first step where the job tells it: fetching, restoring, loading.
    start_up_ms: int = 0
    #: Work that is in the result, or in a checkpoint that is in safety.
    useful_ms: int = 0
    #: Work stood still to save, and what was flushed after the process had gone.
    checkpoint_ms: int = 0
    #: Work that was done and is in no checkpoint: it has to be done again.
    lost_ms: int = 0
    #: A place was held, and none of the above happened on it.
    idle_ms: int = 0

    def __add__(self, other: Times) -> Times:
        return Times(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Times)))

    @property
    def held_ms(self) -> int:
        """Time on an instance: what is paid for."""
        return self.start_up_ms + self.useful_ms + self.checkpoint_ms + self.lost_ms + self.idle_ms

    @property
    def wall_ms(self) -> int:
        """All of it."""
        return self.waiting_ms + self.held_ms


#: The names of the categories, in the order in which they are told.
CATEGORIES = ("useful", "checkpoint", "lost", "start_up", "idle", "waiting")
#: Those that are paid for.
HELD = CATEGORIES[:-1]


def in_category(times: Times, category: str) -> int:
    """The milliseconds of one of CATEGORIES."""
    spent: int = getattr(times, f"{category}_ms")
    return spent
