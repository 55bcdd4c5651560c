"""Scheduling policies and shares: who gets how much of a queue's capacity. Values only.

A queue without a policy is first come, first served. A fair-share policy weighs what shares have used; a quota policy
gives shares limits that they may lend. How either decides is scheduling's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.capacity.environments import Switch
from windfall.jobs.ids import QueueName


@dataclass(frozen=True, slots=True)
class ShareWeight:
    """How much a share's use counts: the less, the more of the capacity it gets."""

    #: A share's identifier, or with a trailing `*` all that begin so.
    identifier: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class FairShare:
    """AWS Batch's fairsharePolicy."""

    #: How long past use counts; 0 means AWS's own minimum.
    decay_s: int = 0
    #: In percent: what is kept for shares that are not active yet.
    reservation_percent: int = 0
    weights: tuple[ShareWeight, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """A policy that queues refer to; of which kind it is never changes."""

    name: str
    #: None for a quota policy.
    fair_share: FairShare | None = None
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    #: The request as it was sent, for the wire alone.
    document: str = "{}"

    @property
    def is_quota(self) -> bool:
        """Whether queues with it are divided into quota shares."""
        return self.fair_share is None


class SharingStrategy(StrEnum):
    """What becomes of the part of a quota that its share does not use."""

    RESERVE = "RESERVE"
    LEND = "LEND"
    LEND_AND_BORROW = "LEND_AND_BORROW"


#: Units of the limits of a queue of ordinary jobs, named as their resource requirements are; MEMORY counts MiB.
COMPUTE_UNITS = ("VCPU", "GPU", "MEMORY")
#: The unit of a service environment that counts all instances alike.
INSTANCES = "NUM_INSTANCES"
UNLIMITED_BORROWING = -1


@dataclass(frozen=True, slots=True)
class CapacityLimit:
    """An amount of one unit."""

    unit: str
    amount: int


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """A part of a queue's capacity with a limit of its own."""

    name: str
    queue: QueueName
    limits: tuple[CapacityLimit, ...]
    sharing: SharingStrategy = SharingStrategy.RESERVE
    #: In percent of its own limits.
    borrow_percent: int = UNLIMITED_BORROWING
    #: Whether a job of it may take the place of a less urgent one of it.
    preempts_within: bool = False
    switch: Switch = Switch.ENABLED
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells it from shares of the same name in other queues."""
        return f"{self.queue}/{self.name}"


@dataclass(frozen=True, slots=True)
class ShareUse:
    """What a share of a fair-share queue has used lately, as it is kept over restarts."""

    queue: QueueName
    share: str
    #: Averages over the policy's window, as of `at`.
    vcpus: float
    gpus: float
    at: int
    #: When it last had a job.
    active_at: int

    @property
    def key(self) -> str:
        """What tells it from shares of the same name in other queues."""
        return f"{self.queue}/{self.share}"
