"""Consumable resources: declaring them, and who holds their tokens from STARTING to the end of the job.

A job gets all its tokens with its first place and keeps them over retries and interruptions. Those of a multi-node job
are held once, by the gang as a whole. Who holds what is derived from the live jobs; the numbers in the resource's own
record are for readers. Must not know who waits: the scheduler's gate does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from windfall.capacity.consumables import PER_JOB_MAX, QUANTITY_MAX, RESOURCES_MAX, ConsumableResource
from windfall.control.commands.consumables import (
    CreateConsumableResource,
    DeleteConsumableResource,
    QuantityOperation,
    UpdateConsumableResource,
)
from windfall.control.round import Round
from windfall.control.state import CLIENT_TOKEN_MS, State
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.job import Job
from windfall.scheduling.snapshot import QueueView, Tokens

#: How many job ids a refusal names.
_NAMED_MAX = 3

TokenAmounts = tuple[tuple[str, int], ...]


def on_create_consumable_resource(
    state: State, command: CreateConsumableResource, round_: Round
) -> ConsumableResource:
    """Declare a consumable resource."""
    resource = command.resource
    if resource.name in state.consumables:
        raise Conflict("Object already exists")
    if len(state.consumables) >= RESOURCES_MAX:
        raise Conflict(
            f"Maximum number of consumable resources ({RESOURCES_MAX:,}) reached; delete one first"
        )
    _check_total(resource.total)
    _write(state, replace(resource, created_at=resource.created_at or round_.now), round_)
    return state.consumables[resource.name]


def on_update_consumable_resource(
    state: State, command: UpdateConsumableResource, round_: Round
) -> ConsumableResource:
    """Set, raise or lower the total; tokens that jobs hold stay theirs, however low it gets."""
    old = _resource(state, command.name)
    late = {key: at for key, at in old.updates.items() if round_.now - at < CLIENT_TOKEN_MS}
    # The same token with another payload is another request, as on AWS.
    request = None
    if command.client_token is not None:
        request = f"{command.operation} {command.quantity} {command.client_token}"
        if request in late:
            return old
        late[request] = round_.now
    if command.quantity < 0:
        raise Invalid(f"quantity must not be negative, got {command.quantity}; use REMOVE to lower the total")
    total = {
        QuantityOperation.SET: command.quantity,
        QuantityOperation.ADD: old.total + command.quantity,
        QuantityOperation.REMOVE: old.total - command.quantity,
    }[command.operation]
    if total < 0:
        raise Invalid(
            f"{old.name} has a total of {old.total}, so {command.quantity} cannot be removed from it"
        )
    _check_total(total)
    _write(state, replace(old, total=total, updates=late), round_)
    state.unsettled = True
    return state.consumables[old.name]


def on_delete_consumable_resource(state: State, command: DeleteConsumableResource, round_: Round) -> None:
    """Remove a resource that no live job names, so that none is left to wait for what does not exist."""
    resource = _resource(state, command.name)
    users = [job.id for job in state.jobs.values() if job.parent is None and _names(job, resource.name)]
    if users:
        named = ", ".join(users[:_NAMED_MAX])
        more = f" and {len(users) - _NAMED_MAX:,} more" if len(users) > _NAMED_MAX else ""
        raise Conflict(
            f"Cannot delete, {len(users):,} jobs that have not ended need {resource.name} ({named}{more});"
            " terminate them or wait for their end"
        )
    del state.consumables[resource.name]
    state.token_holders.pop(resource.name, None)
    round_.changes.declared[ConsumableResource, resource.name] = None


def wanted_tokens(state: State, wanted: TokenAmounts) -> TokenAmounts:
    """What a submission asks for, each resource once, or a refusal."""
    if not wanted:
        return ()
    names = [name for name, _ in wanted]
    if len(names) > PER_JOB_MAX:
        raise Invalid(
            f"A job can name at most {PER_JOB_MAX} consumable resources, this one names {len(names)}"
        )
    for name, count in wanted:
        if names.count(name) > 1:
            raise Invalid(f"Consumable resource {name} is named twice; give its quantity once")
        if count < 1:
            raise Invalid(f"quantity of consumable resource {name} must be at least 1, got {count}")
        if name not in state.consumables:
            raise NotFound(f"Consumable resource {name} does not exist; create it first")
    return wanted


def hold_tokens(state: State, job: Job, round_: Round) -> None:
    """Give a job that got a place its tokens, unless it has them from an earlier attempt."""
    if not job.submission.consumables:
        return
    holder = job
    if job.submission.nodes is not None and job.parent is not None:
        holder = state.jobs[job.parent]
    if holder.holds_consumables:
        return
    holder.holds_consumables = True
    round_.changes.jobs[holder.id] = holder
    for name, count in holder.submission.consumables:
        state.token_holders.setdefault(name, {})[holder.id] = count
        resource = state.consumables[name]
        _write(state, replace(resource, in_use=resource.in_use + count), round_)


def give_back_tokens(state: State, job: Job, round_: Round) -> None:
    """Take the tokens of a job that has ended; those that do not come back are used up."""
    if not job.holds_consumables:
        return
    job.holds_consumables = False
    for name, count in job.submission.consumables:
        del state.token_holders[name][job.id]
        resource = state.consumables[name]
        used_up = 0 if resource.replenishable else count
        left = replace(resource, in_use=resource.in_use - count, consumed=resource.consumed + used_up)
        _write(state, left, round_)
    state.unsettled = True


def rebuild_holders(state: State, jobs: Iterable[Job]) -> None:
    """Work out again who holds what, and believe that rather than the numbers that were kept for readers."""
    for job in jobs:
        if job.holds_consumables:
            for name, count in job.submission.consumables:
                state.token_holders.setdefault(name, {})[job.id] = count
    for name, resource in state.consumables.items():
        in_use = sum(state.token_holders.get(name, {}).values())
        if in_use != resource.in_use:
            state.consumables[name] = replace(resource, in_use=in_use)


def tokens_named(state: State, queues: Iterable[QueueView]) -> Mapping[str, Tokens]:
    """The consumable resources that waiting jobs name, as the scheduler sees them."""
    if not state.consumables:
        return {}
    names = {
        name for view in queues for group in view.groups for name, _ in group.scheduling_class.tokens
    }.intersection(state.consumables)
    by_name = {}
    for name in names:
        it = state.consumables[name]
        holders = state.token_holders.get(name, {})
        by_name[name] = Tokens(it.free, max(0, it.total - it.consumed), holders, it.replenishable)
    return by_name


def _names(job: Job, resource: str) -> bool:
    return any(name == resource for name, _ in job.submission.consumables)


def _resource(state: State, name: str) -> ConsumableResource:
    if name not in state.consumables:
        raise NotFound(f"{name} does not exist")
    return state.consumables[name]


def _check_total(total: int) -> None:
    if not 0 <= total <= QUANTITY_MAX:
        raise Invalid(f"totalQuantity must be between 0 and {QUANTITY_MAX:,}, got {total:,}")


def _write(state: State, resource: ConsumableResource, round_: Round) -> None:
    state.consumables[resource.name] = resource
    round_.changes.declared[ConsumableResource, resource.name] = resource
