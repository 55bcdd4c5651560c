"""Log groups that somebody has made, or given a retention or tags; others are there with their first stream.

Values only. Decides which streams a group still shows. Must not know where logs lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DAY_MS = 86_400_000
#: What CloudWatch Logs takes.
RETENTION_DAYS = frozenset(
    {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
)


@dataclass(frozen=True, slots=True)
class LogGroup:
    """One group, as it was declared."""

    name: str
    created_at: int
    #: Events that are older are removed; None keeps them for as long as their jobs.
    retention_days: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    #: Whether it is there without a stream; not so once it was deleted.
    declared: bool = True
    #: When it was last deleted: what its streams held until then is gone.
    deleted_at: int | None = None

    def shows(self, created_at: int) -> bool:
        """Whether a stream that was made then is still there."""
        return self.deleted_at is None or created_at > self.deleted_at

    def cutoff(self, now: int) -> int | None:
        """The time before which events are removed."""
        return None if self.retention_days is None else now - self.retention_days * DAY_MS
