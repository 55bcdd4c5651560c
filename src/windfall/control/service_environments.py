"""Service environments: how much of SageMaker training the service jobs of a queue may use at once.

Each handler either changes everything it should or raises Rejected having changed nothing. Must not know who waits.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.capacity.environments import JobQueue, ServiceEnvironment, Switch
from windfall.capacity.policies import INSTANCES
from windfall.control.commands.capacity import UpdateJobQueue
from windfall.control.commands.service_jobs import (
    CreateServiceEnvironment,
    DeleteServiceEnvironment,
    UpdateServiceEnvironment,
)
from windfall.control.quota_shares import has_quotas
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict, Invalid, NotFound

SERVICE_ENVIRONMENTS_MAX = 50
LIMITS_MAX = 5


def on_create_service_environment(
    state: State, command: CreateServiceEnvironment, round_: Round
) -> ServiceEnvironment:
    """Declare a service environment."""
    environment = command.environment
    if environment.name in state.service_environments:
        raise Conflict("Object already exists")
    if len(state.service_environments) >= SERVICE_ENVIRONMENTS_MAX:
        raise Conflict(
            f"Maximum number of service environments ({SERVICE_ENVIRONMENTS_MAX}) reached; delete one first"
        )
    _check_limits(environment.limits)
    return _put(state, environment, round_)


def on_update_service_environment(
    state: State, command: UpdateServiceEnvironment, round_: Round
) -> ServiceEnvironment:
    """Change its switch or its limits; what runs goes on, even where it is more than the limits now allow."""
    old = _environment(state, command.name)
    if command.limits is not None:
        _check_limits(command.limits)
    new = replace(
        old,
        switch=command.switch or old.switch,
        limits=old.limits if command.limits is None else command.limits,
    )
    return _put(state, new, round_)


def on_delete_service_environment(state: State, command: DeleteServiceEnvironment, round_: Round) -> None:
    """Remove one that is DISABLED and that no queue uses."""
    environment = _environment(state, command.name)
    if environment.switch is not Switch.DISABLED:
        raise Conflict("Cannot delete, state must be DISABLED")
    if any(queue.service_environment == command.name for queue in state.queues.values()):
        raise Conflict("Cannot delete, found existing JobQueue relationship")
    del state.service_environments[command.name]
    round_.changes.declared[ServiceEnvironment, command.name] = None


def check_kind_kept(queue: JobQueue, update: UpdateJobQueue) -> None:
    """Raise for an update that would make a queue of ordinary jobs one of service jobs, or the other way round."""
    if update.environments if queue.service_environment is not None else update.service_environment:
        raise Invalid(
            f"JobQueue {queue.name} keeps its kind: it has compute environments or a service environment for all its"
            " life; create another queue"
        )


def check_service_queue(state: State, queue: JobQueue) -> None:
    """Raise unless a queue leads to compute environments or to one service environment, and quotas fit to it."""
    if queue.service_environment is None:
        return
    if queue.environments:
        raise Invalid(
            "A job queue cannot have computeEnvironmentOrder and serviceEnvironmentOrder; use two queues"
        )
    if queue.service_environment not in state.service_environments:
        raise NotFound(f"{queue.service_environment} does not exist")
    beside = [
        other
        for other in state.queues.values()
        if other.name != queue.name and other.service_environment == queue.service_environment
    ]
    if beside and any(has_quotas(state, other) for other in (queue, *beside)):
        raise Invalid(
            f"Service environment {queue.service_environment} has another job queue; a queue with quota shares needs"
            " one of its own"
        )


def _environment(state: State, name: str) -> ServiceEnvironment:
    if name not in state.service_environments:
        raise NotFound(f"{name} does not exist")
    return state.service_environments[name]


def _put(state: State, environment: ServiceEnvironment, round_: Round) -> ServiceEnvironment:
    state.service_environments[environment.name] = environment
    round_.changes.declared[ServiceEnvironment, environment.name] = environment
    state.services_unsettled = True
    return environment


def _check_limits(limits: tuple[tuple[str, int], ...]) -> None:
    units = [unit for unit, _ in limits]
    if not 1 <= len(limits) <= LIMITS_MAX:
        raise Invalid(f"capacityLimits must have 1 to {LIMITS_MAX} entries, got {len(limits)}")
    if len(set(units)) < len(units):
        raise Invalid("capacityLimits must not name a capacityUnit twice")
    if INSTANCES in units and len(units) > 1:
        raise Invalid(f"capacityLimits count {INSTANCES} or instance types, not both")
    for unit, amount in limits:
        if not unit:
            raise Invalid(f"capacityUnit must be {INSTANCES} or an instance type such as ml.g5.xlarge")
        if amount < 0:
            raise Invalid(f"maxCapacity of {unit} must not be negative, got {amount}")
