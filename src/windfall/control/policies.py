"""Scheduling policies: commands that declare them, and what a queue may do with one.

Each handler either changes everything it should or raises Rejected having changed nothing.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.capacity.policies import FairShare, SchedulingPolicy
from windfall.control.commands.policies import (
    CreateSchedulingPolicy,
    DeleteSchedulingPolicy,
    UpdateSchedulingPolicy,
)
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import QueueName
from windfall.scheduling.fair_share import ACTIVE_MAX

POLICIES_MAX = 500


def on_create_scheduling_policy(
    state: State, command: CreateSchedulingPolicy, round_: Round
) -> SchedulingPolicy:
    """Declare a policy."""
    policy = command.policy
    if policy.name in state.policies:
        raise Conflict(f"Scheduling policy {policy.name} already exists")
    if len(state.policies) >= POLICIES_MAX:
        raise Conflict(f"Maximum number of scheduling policies ({POLICIES_MAX}) reached; delete one first")
    _check_weights(policy.fair_share)
    return _keep(state, policy, round_)


def on_update_scheduling_policy(
    state: State, command: UpdateSchedulingPolicy, round_: Round
) -> SchedulingPolicy:
    """Replace what a policy says; queues that have it go by the new words from the next round on."""
    old = policy_named(state, command.name)
    if (old.fair_share is None) != (command.fair_share is None):
        kind = "quotaSharePolicy" if old.is_quota else "fairsharePolicy"
        raise Invalid(f"Scheduling policy {old.name} has a {kind}, and of which kind it is cannot be changed")
    _check_weights(command.fair_share)
    state.unsettled = state.services_unsettled = True
    return _keep(state, replace(old, fair_share=command.fair_share, document=command.document), round_)


def on_delete_scheduling_policy(state: State, command: DeleteSchedulingPolicy, round_: Round) -> None:
    """Remove a policy that no queue has."""
    policy = policy_named(state, command.name)
    users = sorted(queue.name for queue in state.queues.values() if queue.policy == policy.name)
    if users:
        raise Conflict(
            f"Cannot delete scheduling policy {policy.name}: job queue {users[0]} uses it; give the queue another one,"
            " or delete it first"
        )
    del state.policies[policy.name]
    round_.changes.declared[SchedulingPolicy, policy.name] = None


def _keep(state: State, policy: SchedulingPolicy, round_: Round) -> SchedulingPolicy:
    state.policies[policy.name] = round_.changes.declared[SchedulingPolicy, policy.name] = policy
    return policy


def policy_named(state: State, name: str) -> SchedulingPolicy:
    """A policy that somebody refers to; raises where there is none."""
    policy = state.policies.get(name)
    if policy is None:
        raise NotFound(f"Scheduling policy {name} does not exist")
    return policy


def check_queue_policy(state: State, queue: QueueName, old: str | None, new: str | None) -> None:
    """Refuse a policy that a queue cannot have; `old` is what it has so far, None for a FIFO queue."""
    if new is None or new == old:
        return
    policy = policy_named(state, new)
    if old is None:
        raise Invalid(
            f"Job queue {queue} is first come, first served and can never have a scheduling policy; create another"
            " queue with it"
        )
    if policy.is_quota != policy_named(state, old).is_quota:
        raise Invalid(
            f"Scheduling policy {new} is not of the same kind as {old}, which job queue {queue} has; a queue keeps its"
            " kind"
        )


def _check_weights(policy: FairShare | None) -> None:
    """Refuse weights of which more than one could be meant."""
    if policy is None:
        return
    if len(policy.weights) > ACTIVE_MAX:
        raise Invalid(f"shareDistribution can have at most {ACTIVE_MAX} entries, got {len(policy.weights)}")
    # In order, whatever begins with a prefix stands right behind it.
    names = [entry.identifier for entry in policy.weights]
    prefix: str | None = None
    before: str | None = None
    for name in sorted(names, key=lambda share: (share.removesuffix("*"), not share.endswith("*"))):
        if name == before or (prefix is not None and name.startswith(prefix)):
            other = before if name == before else f"{prefix}*"
            raise Invalid(f"The share identifiers {other} and {name} overlap: a share must not match both")
        before = name
        if name.endswith("*"):
            prefix = name[:-1]
