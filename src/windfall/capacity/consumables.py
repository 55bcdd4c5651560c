"""Consumable resources: tokens that jobs hold beside their place, such as licences. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: How many different ones a job may name, as on AWS.
PER_JOB_MAX = 5
#: How many there may be, as on AWS, and the most tokens that one may have (a 64-bit number on the wire).
RESOURCES_MAX = 50_000
QUANTITY_MAX = 2**53 - 1


@dataclass(frozen=True, slots=True)
class ConsumableResource:
    """A number of tokens of one name."""

    name: str
    total: int
    #: Whether tokens come back when the job that held them ends; else they are used up.
    replenishable: bool = True
    #: How many of those that do not come back are gone.
    consumed: int = 0
    #: How many are held by jobs that have not ended.
    in_use: int = 0
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    #: The client tokens of late updates and when they came, so that a repeated update changes nothing.
    updates: Mapping[str, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """How many a job can have now; a total that was lowered below what is in use leaves none."""
        return max(0, self.total - self.consumed - self.in_use)

    @property
    def shown_total(self) -> int:
        """The total as callers see it: one that was lowered below what is in use goes down as jobs end."""
        return max(self.total, self.consumed + self.in_use)
