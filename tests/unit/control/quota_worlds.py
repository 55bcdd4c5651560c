"""Worlds with a queue that is divided into quota shares."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import Submitted, TestWorld, a_busy_world, a_job, a_machine
from windfall.capacity.environments import JobQueue
from windfall.capacity.policies import (
    UNLIMITED_BORROWING,
    CapacityLimit,
    QuotaShare,
    SchedulingPolicy,
    SharingStrategy,
)
from windfall.control import events
from windfall.control.commands.policies import CreateQuotaShare, CreateSchedulingPolicy, DeleteQuotaShare
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.storage import StorageLayout


def a_share(
    name: str,
    sharing: SharingStrategy = SharingStrategy.RESERVE,
    borrow: int = UNLIMITED_BORROWING,
    *,
    within: bool = False,
    queue: str = "shared",
    **limits: int,
) -> QuotaShare:
    """A quota share; limits by unit."""
    units = tuple(CapacityLimit(unit, amount) for unit, amount in limits.items())
    return QuotaShare(name, QueueName(queue), units, sharing, borrow, within)


def a_quota_world(*shares: QuotaShare, vcpus: float = 64, gpus: int = 0, **rules: object) -> TestWorld:
    """A world whose queue `shared` has a quota policy and these shares, on the host's environment."""
    world = a_busy_world(a_machine(vcpus, gpus=gpus), **{"storage": StorageLayout("s3://bucket"), **rules})
    queue = JobQueue(QueueName("shared"), 1, (EnvironmentName("environment"),), policy="quotas")
    world.happens(
        CreateSchedulingPolicy(SchedulingPolicy("quotas")),
        events.CreateJobQueue(queue),
        *(CreateQuotaShare(share) for share in shares),
    )
    return world


def a_shared_job(job_id: str, share: str | None, priority: int | None = None) -> Submitted:
    """A submission under a quota share."""
    job = a_job(job_id, "shared")
    return Submitted(replace(job.command, share=share, priority=priority))


def delete(name: str) -> DeleteQuotaShare:
    """The command that removes a share of the queue."""
    return DeleteQuotaShare(f"shared/{name}")
