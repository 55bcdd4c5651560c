"""Quota shares: commands that declare them, who may submit under which, and what the scheduler sees of them.

Each handler either changes everything it should or raises Rejected having changed nothing. Limits that are lowered
below what a share holds stop nobody at once: the share is above its limits then, and gives back when others want what
is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windfall.capacity.environments import JobQueue, Switch
from windfall.capacity.policies import (
    COMPUTE_UNITS,
    UNLIMITED_BORROWING,
    CapacityLimit,
    QuotaShare,
    SharingStrategy,
)
from windfall.control.commands.policies import CreateQuotaShare, DeleteQuotaShare, UpdateQuotaShare
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import JobId, QueueName
from windfall.scheduling.quota_gate import in_units
from windfall.scheduling.snapshot import QuotaView

SHARES_MAX = 20
LIMITS_MAX = 5
#: More than any capacity that anybody has.
AMOUNT_MAX = 2**31 - 1
#: In percent. AWS states no bound; this one keeps the arithmetic exact.
BORROW_MAX = 1_000_000


def on_create_quota_share(state: State, command: CreateQuotaShare, round_: Round) -> QuotaShare:
    """Give a queue with a quota policy another share."""
    share = command.share
    queue = state.queues.get(share.queue)
    if queue is None:
        raise NotFound(f"Job queue {share.queue} does not exist")
    if not has_quotas(state, queue):
        raise Invalid(
            f"Job queue {queue.name} has no quota share policy: create a queue whose schedulingPolicyArn names a"
            " scheduling policy with a quotaSharePolicy"
        )
    if share.key in state.quota_shares:
        raise Conflict(f"Quota share {share.name} of job queue {queue.name} already exists")
    if len(shares_of(state, queue.name)) >= SHARES_MAX:
        raise Conflict(
            f"Job queue {queue.name} has {SHARES_MAX} quota shares, which is the most; delete one first"
        )
    _check(queue, share)
    return _keep(state, replace(share, created_at=round_.now), round_)


def on_update_quota_share(state: State, command: UpdateQuotaShare, round_: Round) -> QuotaShare:
    """Change a share; jobs that hold more than it leaves them go on until others want theirs."""
    old = _named(state, command.key)
    new = replace(
        old,
        limits=old.limits if command.limits is None else command.limits,
        sharing=old.sharing if command.sharing is None else command.sharing,
        borrow_percent=old.borrow_percent if command.borrow_percent is None else command.borrow_percent,
        preempts_within=old.preempts_within if command.preempts_within is None else command.preempts_within,
        switch=old.switch if command.switch is None else command.switch,
    )
    _check(state.queues[old.queue], new)
    return _keep(state, new, round_)


def on_delete_quota_share(state: State, command: DeleteQuotaShare, round_: Round) -> list[JobId]:
    """Remove a DISABLED share; the reply is the jobs that it still had, which the caller must terminate."""
    share = _named(state, command.key)
    if share.switch is not Switch.DISABLED:
        raise Conflict(
            f"Cannot delete quota share {share.name}, state must be DISABLED: disable it with update-quota-share first"
        )
    left = [
        job.id
        for job in state.jobs.values()
        if job.parent is None and (job.submission.queue, job.submission.share) == (share.queue, share.name)
    ]
    _forget(state, share, round_)
    return left


def forget_quota_shares(state: State, queue: QueueName, round_: Round) -> None:
    """Drop the shares of a queue that is gone."""
    for share in shares_of(state, queue):
        _forget(state, share, round_)


def check_quota_share(state: State, queue: JobQueue, share: str | None) -> None:
    """Refuse a submission to a queue with a quota policy that names no share which takes jobs."""
    if not has_quotas(state, queue):
        return
    if share is None:
        raise Invalid(
            f"Job queue {queue.name} is divided into quota shares: name one of them in shareIdentifier"
            f" ({_names(shares_of(state, queue.name))})"
        )
    quota_share = state.quota_shares.get(f"{queue.name}/{share}")
    if quota_share is None:
        raise NotFound(
            f"Job queue {queue.name} has no quota share {share[:128]} ({_names(shares_of(state, queue.name))})"
        )
    if quota_share.switch is Switch.DISABLED:
        raise Invalid(
            f"Quota share {share} is DISABLED and takes no new jobs; enable it with update-quota-share"
        )


def has_quotas(state: State, queue: JobQueue) -> bool:
    """Whether a queue is divided into quota shares."""
    policy = None if queue.policy is None else state.policies.get(queue.policy)
    return policy is not None and policy.is_quota


def shares_of(state: State, queue: QueueName) -> list[QuotaShare]:
    """The quota shares of a queue, the oldest first."""
    return [share for share in state.quota_shares.values() if share.queue == queue]


def quota_views(state: State) -> dict[QueueName, QuotaView]:
    """What the quota shares of queues of ordinary jobs hold, by queue."""
    queues = {
        queue.name
        for queue in state.queues.values()
        if queue.policy is not None and queue.service_environment is None and has_quotas(state, queue)
    }
    if not queues:
        return {}
    used: dict[QueueName, dict[str, dict[str, float]]] = {name: {} for name in queues}
    leaving: dict[QueueName, dict[str, dict[str, float]]] = {name: {} for name in queues}
    for job in state.attempts.values():
        queue, share = job.submission.queue, job.submission.share
        if queue not in queues or share is None or job.attempt is None:
            continue
        counted = (used,) if job.attempt.stop_cause is None else (used, leaving)
        for unit, amount in in_units(job.needs).items():
            for each in counted:
                amounts = each[queue].setdefault(share, {})
                amounts[unit] = amounts.get(unit, 0.0) + amount
    return {
        name: QuotaView(tuple(shares_of(state, name)), used[name], leaving[name]) for name in sorted(queues)
    }


def _check(queue: JobQueue, share: QuotaShare) -> None:
    limits = share.limits
    if not 1 <= len(limits) <= LIMITS_MAX:
        raise Invalid(f"A quota share has 1 to {LIMITS_MAX} capacityLimits, got {len(limits)}")
    if len({limit.unit for limit in limits}) < len(limits):
        raise Invalid("Each capacityUnit can be limited once in the capacityLimits of a quota share")
    for limit in limits:
        _check_limit(queue, limit)
    if share.sharing is not SharingStrategy.LEND_AND_BORROW and share.borrow_percent != UNLIMITED_BORROWING:
        raise Invalid(f"borrowLimit is for the strategy LEND_AND_BORROW; leave it out with {share.sharing}")
    if not UNLIMITED_BORROWING <= share.borrow_percent <= BORROW_MAX:
        raise Invalid(
            f"borrowLimit must be a percentage from 0 to {BORROW_MAX:,}, or -1 for no limit; it is"
            f" {share.borrow_percent}"
        )


def _check_limit(queue: JobQueue, limit: CapacityLimit) -> None:
    if not 0 <= limit.amount <= AMOUNT_MAX:
        raise Invalid(f"maxCapacity must be between 0 and {AMOUNT_MAX}, got {limit.amount}")
    if queue.service_environment is None and limit.unit not in COMPUTE_UNITS:
        raise Invalid(
            f"capacityUnit of a quota share of queue {queue.name} must be one of {', '.join(COMPUTE_UNITS)}"
            f" (MEMORY counts MiB); it is {limit.unit[:128]!r}"
        )


def _named(state: State, key: str) -> QuotaShare:
    share = state.quota_shares.get(key)
    if share is None:
        queue, _, name = key.rpartition("/")
        raise NotFound(f"Job queue {queue} has no quota share {name}")
    return share


def _keep(state: State, share: QuotaShare, round_: Round) -> QuotaShare:
    state.quota_shares[share.key] = round_.changes.declared[QuotaShare, share.key] = share
    state.unsettled = state.services_unsettled = True
    return share


def _forget(state: State, share: QuotaShare, round_: Round) -> None:
    del state.quota_shares[share.key]
    round_.changes.declared[QuotaShare, share.key] = None
    state.unsettled = state.services_unsettled = True


def _names(shares: Iterable[QuotaShare]) -> str:
    names = ", ".join(share.name for share in shares)
    return f"it has {names}" if names else "it has none; create one with create-quota-share"
