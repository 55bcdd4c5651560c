"""Compute environments: four operations, and what their requests mean for the core.

The core knows kind, size, switch, instance types and how one is chosen; the rest of the request is kept as it
was sent and comes back with it. Must not know whether an environment exists or is in use: the core says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windfall.aws_api.batch.arns import ENVIRONMENT, Arns, check_name, environment_name
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.documents import read_document, without, write_document
from windfall.aws_api.batch.paging import page
from windfall.aws_api.batch.rejections import client_exception, refuse_unsupported, unsupported
from windfall.aws_api.batch.tags import ENGINE, check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.environments import RECLAIMABLE, ComputeEnvironment, Provisioning, Switch
from windfall.control.events import (
    CreateComputeEnvironment,
    DeleteComputeEnvironment,
    UpdateComputeEnvironment,
)
from windfall.control.ports import Store
from windfall.jobs.ids import EnvironmentName

#: What an UNMANAGED environment may use when it does not say: all that its machines have.
UNBOUNDED_VCPUS = 1_000_000
#: The engine on which instance types and the tags of a market mean something.

_FARGATE = frozenset({"FARGATE", "FARGATE_SPOT"})
_NOT_FOR_FARGATE = (
    "minvCpus",
    "desiredvCpus",
    "instanceTypes",
    "imageId",
    "ec2KeyPair",
    "instanceRole",
    "placementGroup",
    "bidPercentage",
    "spotIamFleetRole",
    "launchTemplate",
    "ec2Configuration",
    "allocationStrategy",
    "tags",
)
_JOBS_HAVE_MINUTES = 30
#: What an update can take out of computeResources, beside the launch template.
_REMOVABLE = ("ec2KeyPair", "imageId", "placementGroup", "bidPercentage")
#: The most that is paid where nothing is said: the on-demand price.
_WHOLE_PRICE_PERCENT = 100
_UPDATABLE = ("serviceRole", "updatePolicy", "context", "ecsSettings", "unmanagedvCpus")


async def create_compute_environment(context: BatchContext, call: Call) -> dict[str, Any]:
    """CreateComputeEnvironment."""
    params = call.params
    refuse_unsupported(call.operation, params)
    name = EnvironmentName(check_name(params["computeEnvironmentName"], "computeEnvironmentName"))
    tags = check_tags(params.get("tags", {}))
    provisioning, min_vcpus, max_vcpus = _capacity(params)
    resources = params.get("computeResources") or {}
    environment = ComputeEnvironment(
        name=name,
        provisioning=provisioning,
        min_vcpus=min_vcpus,
        max_vcpus=max_vcpus,
        switch=Switch(params.get("state", Switch.ENABLED)),
        engine=tags.get(ENGINE) or None,
        uuid=context.new_id(),
        created_at=context.clock_ms(),
        tags=tags,
        document=write_document(without(params, "computeEnvironmentName", "state", "tags")),
        instance_types=tuple(resources.get("instanceTypes", ())),
        allocation=resources.get("allocationStrategy"),
        bid_percent=resources.get("bidPercentage"),
    )
    await context.execute(CreateComputeEnvironment(environment))
    return _names(context.arns(call), name)


async def update_compute_environment(context: BatchContext, call: Call) -> dict[str, Any]:
    """UpdateComputeEnvironment."""
    params = call.params
    refuse_unsupported(call.operation, params)
    name = environment_name(params["computeEnvironment"])
    if len(params) == 1:
        raise client_exception(
            "One of [state | compute-resources | service-role | unmanaged-vcpus] is required."
        )
    async with context.changing:
        current = await context.read(lambda store: environment_named(store, name))
        # Of one that does not exist there is nothing to merge with; the core refuses it by name.
        command = UpdateComputeEnvironment(name) if current is None else _update(current, params)
        await context.execute(command)
    return _names(context.arns(call), name)


async def describe_compute_environments(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeComputeEnvironments: all, or those named; unknown ones are left out."""
    environments = await context.read(lambda store: store.environments())
    if references := call.params.get("computeEnvironments"):
        names = {environment_name(reference) for reference in references}
        environments = [environment for environment in environments if environment.name in names]
    chosen, token = page(environments, lambda environment: (environment.name,), call.params)
    arns = context.arns(call)
    return {"computeEnvironments": [_detail(environment, arns) for environment in chosen], "nextToken": token}


async def delete_compute_environment(context: BatchContext, call: Call) -> dict[str, Any]:
    """DeleteComputeEnvironment."""
    await context.execute(DeleteComputeEnvironment(environment_name(call.params["computeEnvironment"])))
    return {}


def environment_named(store: Store, name: str) -> ComputeEnvironment | None:
    """One environment of the store's."""
    return next((environment for environment in store.environments() if environment.name == name), None)


def _names(arns: Arns, name: EnvironmentName) -> dict[str, Any]:
    return {"computeEnvironmentName": name, "computeEnvironmentArn": arns.of(ENVIRONMENT, name)}


def _capacity(params: Mapping[str, Any]) -> tuple[Provisioning, int, int]:
    """The kind of environment that a creation asks for, and its least and most vCPUs."""
    resources = params.get("computeResources")
    if params["type"] == "UNMANAGED":
        if resources:
            raise client_exception("computeResources cannot be provided for an UNMANAGED compute environment")
        return Provisioning.UNMANAGED, 0, _unmanaged_vcpus(params)
    if not resources:
        raise client_exception("computeResources must be provided for a MANAGED compute environment")
    if "unmanagedvCpus" in params:
        raise client_exception("unmanagedvCpus is only supported for an UNMANAGED compute environment")
    _check_resources(resources)
    _check_desired(resources, resources.get("desiredvCpus"))
    return Provisioning(resources["type"]), resources.get("minvCpus", 0), resources["maxvCpus"]


def _unmanaged_vcpus(params: Mapping[str, Any]) -> int:
    vcpus = int(params.get("unmanagedvCpus", UNBOUNDED_VCPUS))
    if vcpus < 0:
        raise client_exception("unmanagedvCpus must not be negative")
    return vcpus


def _check_resources(resources: Mapping[str, Any]) -> None:
    """Refuse what the members of computeResources say against each other."""
    for member in ("managedInstancesProvider", "capacityTags"):
        if resources.get(member):
            raise unsupported(f"computeResources.{member} (Amazon ECS Managed Instances)")
    if resources["type"] == "ECS_MANAGED_INSTANCES":
        raise unsupported("computeResources.type ECS_MANAGED_INSTANCES")
    if resources["type"] in _FARGATE:
        for member in _NOT_FOR_FARGATE:
            if resources.get(member):
                raise client_exception(f"{member} not applicable for Fargate.")
    strategy = resources.get("allocationStrategy") or ""
    if strategy.startswith("SPOT_") and resources["type"] not in RECLAIMABLE:
        raise client_exception(
            f"allocationStrategy {strategy} is for compute resources of type SPOT, not {resources['type']};"
            " use BEST_FIT_PROGRESSIVE"
        )
    if resources.get("bidPercentage", 1) < 1:
        raise client_exception("bidPercentage must be at least 1")
    least, most = resources.get("minvCpus", 0), resources["maxvCpus"]
    if least < 0 or most < 1:
        raise client_exception("minvCpus must not be negative and maxvCpus must be at least 1")
    if least > most:
        raise client_exception(f"minvCpus ({least}) must not be more than maxvCpus ({most})")


def _check_desired(resources: Mapping[str, Any], desired: int | None) -> None:
    least, most = resources.get("minvCpus", 0), resources["maxvCpus"]
    if desired is not None and not least <= desired <= most:
        raise client_exception(
            f"desiredvCpus ({desired}) must be between minvCpus ({least}) and maxvCpus ({most})"
        )


def _update(current: ComputeEnvironment, params: Mapping[str, Any]) -> UpdateComputeEnvironment:
    """The command that changes an environment as asked, the kept request merged with the update."""
    document = read_document(current.document)
    document.update((member, params[member]) for member in _UPDATABLE if member in params)
    min_vcpus = max_vcpus = allocation = bid_percent = None
    types: tuple[str, ...] | None = None
    provisioning: Provisioning | None = None
    changes = params.get("computeResources")
    if current.provisioning is Provisioning.UNMANAGED:
        if changes:
            raise client_exception("computeResources cannot be provided for an UNMANAGED compute environment")
        if "unmanagedvCpus" in params:
            max_vcpus = _unmanaged_vcpus(params)
    elif "unmanagedvCpus" in params:
        raise client_exception("unmanagedvCpus is only supported for an UNMANAGED compute environment")
    elif changes:
        merged = _kept({**_resources_of(current, document), **without(changes, "updateToLatestImageVersion")})
        _check_resources(merged)
        _check_desired(merged, changes.get("desiredvCpus"))
        document["computeResources"] = merged
        min_vcpus, max_vcpus = changes.get("minvCpus"), changes.get("maxvCpus")
        if "instanceTypes" in changes:
            types = tuple(changes["instanceTypes"])
        allocation = changes.get("allocationStrategy")
        if "bidPercentage" in changes:
            bid_percent = changes["bidPercentage"] or _WHOLE_PRICE_PERCENT
        if "type" in changes:
            provisioning = Provisioning(changes["type"])
    state = params.get("state")
    return UpdateComputeEnvironment(
        name=current.name,
        switch=None if state is None else Switch(state),
        min_vcpus=min_vcpus,
        max_vcpus=max_vcpus,
        document=write_document(document),
        instance_types=types,
        allocation=allocation,
        bid_percent=bid_percent,
        provisioning=provisioning,
        jobs_have_s=_jobs_have_s(document.get("updatePolicy", {})),
    )


def _kept(resources: dict[str, Any]) -> dict[str, Any]:
    """What is left of merged resources: an update takes these away by sending them empty, or a bid of 0."""
    template = resources.get("launchTemplate") or {}
    gone = {member for member in _REMOVABLE if not resources.get(member)}
    if not (template.get("launchTemplateId") or template.get("launchTemplateName")):
        gone.add("launchTemplate")
    return without(resources, *gone)


def _jobs_have_s(policy: Mapping[str, Any]) -> float:
    """How long jobs may go on where instances are replaced: AWS's half an hour, or no longer than a notice."""
    minutes = policy.get("jobExecutionTimeoutMinutes", _JOBS_HAVE_MINUTES)
    return 0.0 if policy.get("terminateJobsOnUpdate") else minutes * 60.0


def _detail(environment: ComputeEnvironment, arns: Arns) -> dict[str, Any]:
    """A ComputeEnvironmentDetail: what was sent, and what AWS adds to it."""
    detail = read_document(environment.document)
    unmanaged = environment.provisioning is Provisioning.UNMANAGED
    if not unmanaged:
        detail["computeResources"] = _resources_detail(_resources_of(environment, detail))
    return {
        **detail,
        "type": "UNMANAGED" if unmanaged else "MANAGED",
        **_names(arns, environment.name),
        "state": environment.switch.value,
        "status": "VALID",
        "statusReason": "ComputeEnvironment Healthy",
        "ecsClusterArn": arns.cluster(environment.name),
        "containerOrchestrationType": "ECS",
        "uuid": environment.uuid,
        "tags": dict(environment.tags),
    }


def _resources_of(environment: ComputeEnvironment, document: Mapping[str, Any]) -> dict[str, Any]:
    """computeResources as they were sent, with the numbers and the kind that the core goes by."""
    resources = dict(document.get("computeResources", {}))
    resources["type"] = environment.provisioning.value
    resources["maxvCpus"] = environment.max_vcpus
    if environment.min_vcpus or "minvCpus" in resources:
        resources["minvCpus"] = environment.min_vcpus
    return resources


def _resources_detail(resources: dict[str, Any]) -> dict[str, Any]:
    if resources["type"] in _FARGATE:
        return resources
    least = resources.get("minvCpus", 0)
    desired = resources.get("desiredvCpus", least)
    return {**resources, "minvCpus": least, "desiredvCpus": min(max(desired, least), resources["maxvCpus"])}
