"""Service environments: four operations.

Decides how a request reads. The core decides which limits are valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import Arns, check_name, service_environment_name
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.paging import page
from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.environments import ServiceEnvironment, Switch
from windfall.capacity.policies import INSTANCES
from windfall.control.commands.service_jobs import (
    CreateServiceEnvironment,
    DeleteServiceEnvironment,
    UpdateServiceEnvironment,
)
from windfall.control.ports import Store

TRAINING_TYPE = "SAGEMAKER_TRAINING"


async def create_service_environment(context: BatchContext, call: Call) -> dict[str, Any]:
    """CreateServiceEnvironment."""
    params = call.params
    environment = ServiceEnvironment(
        name=check_name(params["serviceEnvironmentName"], "serviceEnvironmentName"),
        limits=_limits(params["capacityLimits"]),
        switch=Switch(params.get("state", Switch.ENABLED)),
        created_at=context.clock_ms(),
        tags=check_tags(params.get("tags", {})),
    )
    await context.execute(CreateServiceEnvironment(environment))
    return _named(environment.name, context.arns(call))


async def update_service_environment(context: BatchContext, call: Call) -> dict[str, Any]:
    """UpdateServiceEnvironment."""
    params = call.params
    name, state = service_environment_name(params["serviceEnvironment"]), params.get("state")
    limits = _limits(params["capacityLimits"]) if "capacityLimits" in params else None
    await context.execute(UpdateServiceEnvironment(name, None if state is None else Switch(state), limits))
    return _named(name, context.arns(call))


async def describe_service_environments(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeServiceEnvironments: all, or those named; unknown ones are left out."""
    environments = await context.read(lambda store: store.declared(ServiceEnvironment))
    if references := call.params.get("serviceEnvironments"):
        names = {service_environment_name(reference) for reference in references}
        environments = [environment for environment in environments if environment.name in names]
    chosen, token = page(environments, lambda environment: (environment.name,), call.params)
    arns = context.arns(call)
    return {"serviceEnvironments": [_detail(it, arns) for it in chosen], "nextToken": token}


async def delete_service_environment(context: BatchContext, call: Call) -> dict[str, Any]:
    """DeleteServiceEnvironment."""
    await context.execute(
        DeleteServiceEnvironment(service_environment_name(call.params["serviceEnvironment"]))
    )
    return {}


def service_environment_tags(store: Store, name: str) -> Mapping[str, str] | None:
    """The tags of one; None when there is none of this name."""
    return next((it.tags for it in store.declared(ServiceEnvironment) if it.name == name), None)


def _limits(sent: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    for limit in sent:
        for member in ("maxCapacity", "capacityUnit"):
            if limit.get(member) is None:
                raise client_exception(f"Each of capacityLimits must have a {member}")
        unit = limit["capacityUnit"]
        # No training job counts in another unit, so none would ever start.
        if unit and unit != INSTANCES and not unit.startswith("ml."):
            raise client_exception(
                f"capacityUnit must be {INSTANCES} or an instance type such as ml.g5.xlarge; it is {shown(unit)!r}"
            )
    return tuple((limit["capacityUnit"], limit["maxCapacity"]) for limit in sent)


def _named(name: str, arns: Arns) -> dict[str, Any]:
    return {"serviceEnvironmentName": name, "serviceEnvironmentArn": arns.service_environment(name)}


def _detail(environment: ServiceEnvironment, arns: Arns) -> dict[str, Any]:
    return {
        **_named(environment.name, arns),
        "serviceEnvironmentType": TRAINING_TYPE,
        "state": environment.switch.value,
        "status": "VALID",
        "capacityLimits": [
            {"maxCapacity": amount, "capacityUnit": unit} for unit, amount in environment.limits
        ],
        "tags": dict(environment.tags),
    }
