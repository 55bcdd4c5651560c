"""What the scheduler of service jobs sees, and what it returns: one service environment at one moment, as values.

Amounts are counted in units: an instance type, or NUM_INSTANCES for all types together. These values are
never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.capacity.policies import INSTANCES, QuotaShare
from windfall.jobs.aws_texts import CROSS_SHARE_PREEMPTION, IN_SHARE_PREEMPTION
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import UNKNOWN_TYPE
from windfall.scheduling.fair_share import FairShareView

Amounts = Mapping[str, float]


class ServicePreemption(StrEnum):
    """Why a job is asked to leave, in AWS's words where they are known."""

    CROSS_SHARE = CROSS_SHARE_PREEMPTION
    IN_SHARE = IN_SHARE_PREEMPTION


@dataclass(frozen=True, slots=True)
class WaitingService:
    """A RUNNABLE service job."""

    id: JobId
    #: First come, first served within a priority.
    order: int
    needs: Amounts
    priority: int = 0
    #: Of a fair-share queue, or of a quota queue.
    share: str = ""
    #: Whether others were asked to leave for it: what they free is kept for it alone.
    promised: bool = False


@dataclass(frozen=True, slots=True)
class HoldingService:
    """A service job whose training job has its instances, or is about to."""

    id: JobId
    needs: Amounts
    priority: int = 0
    share: str = ""
    #: The cost of taking its instances away: GPU (or instance) seconds of work in no checkpoint, and of a
    #: restart.
    loss: float = 0.0
    #: Whether it has been asked to leave, for any reason.
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class ServiceQueueView:
    """One queue in front of the environment."""

    name: QueueName
    waiting: Sequence[WaitingService]
    holding: Sequence[HoldingService] = ()
    priority: int = 0
    #: A queue has at most one of these; without, it is first come, first served. In instances instead of
    #: vCPUs.
    fair_share: FairShareView | None = None
    quota_shares: Sequence[QuotaShare] | None = None


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A service environment that takes new jobs, and the queues in front of it."""

    limits: Amounts
    queues: Sequence[ServiceQueueView]


@dataclass(frozen=True, slots=True)
class Preempt:
    """Ask a job to leave because another one will then start."""

    victim: JobId
    for_job: JobId
    cause: ServicePreemption


@dataclass(slots=True)
class ServicePlan:
    """What to do now, and why some jobs can never start as things are."""

    dispatch: list[JobId] = field(default_factory=list)
    preempt: list[Preempt] = field(default_factory=list)
    never: dict[JobId, str] = field(default_factory=dict)


def needs_of(instances: Mapping[str, int]) -> dict[str, float]:
    """An instance count in every unit that a limit may name."""
    by_type = {kind: float(count) for kind, count in instances.items() if kind != UNKNOWN_TYPE}
    return {**by_type, INSTANCES: float(sum(instances.values()))}


def counted(needs: Amounts, limits: Amounts) -> dict[str, float]:
    """The part of a job's needs that an environment (or share) with these limits counts."""
    if INSTANCES in limits:
        return {INSTANCES: needs.get(INSTANCES, 0.0)}
    return {unit: amount for unit, amount in needs.items() if unit != INSTANCES}
