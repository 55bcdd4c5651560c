"""Commands about scheduling policies and quota shares."""

from __future__ import annotations

from dataclasses import dataclass

from windfall.capacity.environments import Switch
from windfall.capacity.policies import CapacityLimit, FairShare, QuotaShare, SchedulingPolicy, SharingStrategy


@dataclass(frozen=True, slots=True)
class CreateSchedulingPolicy:
    policy: SchedulingPolicy


@dataclass(frozen=True, slots=True)
class UpdateSchedulingPolicy:
    """Replace what a policy says; of which kind it is cannot be changed."""

    name: str
    fair_share: FairShare | None
    document: str


@dataclass(frozen=True, slots=True)
class DeleteSchedulingPolicy:
    name: str


@dataclass(frozen=True, slots=True)
class CreateQuotaShare:
    share: QuotaShare


@dataclass(frozen=True, slots=True)
class UpdateQuotaShare:
    """Change what is not None."""

    #: `<queue>/<name>`
    key: str
    limits: tuple[CapacityLimit, ...] | None = None
    sharing: SharingStrategy | None = None
    borrow_percent: int | None = None
    preempts_within: bool | None = None
    switch: Switch | None = None


@dataclass(frozen=True, slots=True)
class DeleteQuotaShare:
    key: str


PolicyCommand = (
    CreateSchedulingPolicy
    | UpdateSchedulingPolicy
    | DeleteSchedulingPolicy
    | CreateQuotaShare
    | UpdateQuotaShare
    | DeleteQuotaShare
)
