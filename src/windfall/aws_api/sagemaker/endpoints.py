"""Endpoints: created, updated, resized, described and deleted.

Decides how a configuration becomes a generation of variants, how a DeploymentConfig becomes the rules of a rollout, and
what Describe shows. Must not know how replicas are started, nor how traffic is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import placement
from windfall.aws_api.sagemaker.changing import tags_of
from windfall.aws_api.sagemaker.context import TrainingContext, check_may_steer_hosted
from windfall.aws_api.sagemaker.hosting_names import check_hosted_name, exists
from windfall.aws_api.sagemaker.hosting_rules import Request, check_refused
from windfall.aws_api.sagemaker.model_declarations import arn_of, find, listed, read_request, require
from windfall.aws_api.sagemaker.rejections import invalid
from windfall.aws_api.sagemaker.serving_contract import variants_of
from windfall.control.commands.hosting import CreateEndpoint, DeleteHosted, ResizeVariants, UpdateEndpoint
from windfall.hosting.endpoint import (
    EndpointState,
    Generation,
    HostedConfig,
    HostedEndpoint,
    HostedModel,
    ReplicaState,
    Rollout,
    RolloutKind,
    Variant,
)
from windfall.hosting.sizing import traffic

#: What an update may take where nobody says.
_MAX_S = 4 * 3600


async def create_endpoint(context: TrainingContext, call: Call) -> dict[str, Any]:
    """CreateEndpoint."""
    params = call.params
    check_refused("CreateEndpoint", params)
    name = check_hosted_name("endpoint", params["EndpointName"])
    arn, tags = arn_of(context, call, HostedEndpoint, name), tags_of(params.get("Tags", ()))
    serving = await _generation(context, call, name, tags)
    rollout_of(params.get("DeploymentConfig"), serving)
    endpoint = HostedEndpoint(
        name=name,
        region=call.region,
        arn=arn,
        serving=serving,
        tags=tags,
        submitter=call.caller.submitter,
        deployment_document=_document(params),
    )
    async with context.changing:
        if await find(context, HostedEndpoint, name) is not None:
            raise exists("endpoint", arn)
        await context.execute(CreateEndpoint(endpoint, _environment(context)))
    return {"EndpointArn": arn}


async def update_endpoint(context: TrainingContext, call: Call) -> dict[str, Any]:
    """UpdateEndpoint."""
    params = call.params
    check_refused("UpdateEndpoint", params)
    endpoint = await require(context, call, HostedEndpoint, params["EndpointName"])
    check_may_steer_hosted(endpoint, call)
    target = await _generation(context, call, endpoint.name, endpoint.tags)
    policy, document = params.get("DeploymentConfig"), _document(params)
    if policy is None and params.get("RetainDeploymentConfig") and endpoint.deployment_document:
        document = endpoint.deployment_document
        policy = read_request(document)
    await context.execute(
        UpdateEndpoint(
            endpoint.name,
            target,
            rollout_of(policy, target),
            _environment(context),
            document,
            bool(params.get("RetainAllVariantProperties")),
        )
    )
    return {"EndpointArn": arn_of(context, call, HostedEndpoint, endpoint.name)}


async def update_weights_and_capacities(context: TrainingContext, call: Call) -> dict[str, Any]:
    """UpdateEndpointWeightsAndCapacities."""
    check_refused("UpdateEndpointWeightsAndCapacities", call.params)
    endpoint = await require(context, call, HostedEndpoint, call.params["EndpointName"])
    sizes: dict[str, tuple[float | None, int | None]] = {}
    for wanted in call.params["DesiredWeightsAndCapacities"]:
        count = wanted.get("DesiredInstanceCount")
        if count == 0:
            raise invalid("DesiredInstanceCount must be at least 1; delete the endpoint to free its capacity")
        sizes[wanted["VariantName"]] = (wanted.get("DesiredWeight"), count)
    await context.execute(ResizeVariants(endpoint.name, sizes))
    return {"EndpointArn": arn_of(context, call, HostedEndpoint, endpoint.name)}


async def delete_endpoint(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DeleteEndpoint; requests that replicas have are answered first."""
    endpoint = await require(context, call, HostedEndpoint, call.params["EndpointName"])
    await context.execute(DeleteHosted("endpoint", endpoint.name))
    return {}


async def list_endpoints(context: TrainingContext, call: Call) -> dict[str, Any]:
    """ListEndpoints."""

    def summary(endpoint: HostedEndpoint) -> dict[str, Any]:
        return {
            "EndpointName": endpoint.name,
            "EndpointArn": arn_of(context, call, HostedEndpoint, endpoint.name),
            "CreationTime": endpoint.created_at / 1000,
            "LastModifiedTime": endpoint.modified_at / 1000,
            "EndpointStatus": endpoint.state,
        }

    endpoints = await context.read(lambda store: store.declared(HostedEndpoint))
    return listed(call.params, endpoints, "Endpoints", summary)


async def describe_endpoint(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DescribeEndpoint."""
    endpoint = await require(context, call, HostedEndpoint, call.params["EndpointName"])
    return description(endpoint, arn_of(context, call, HostedEndpoint, endpoint.name))


def description(endpoint: HostedEndpoint, arn: str) -> dict[str, Any]:
    """An endpoint as DescribeEndpoint shows it."""
    deployment, serving = endpoint.deployment, endpoint.serving
    parts = traffic(endpoint)
    pending = None
    if deployment is not None:
        pending = {
            "EndpointConfigName": deployment.target.config,
            "ProductionVariants": [
                _summary(endpoint, deployment.target, variant, parts)
                for variant in deployment.target.variants
            ],
            "StartTime": deployment.begun_at / 1000,
        }
    serves = endpoint.state not in (EndpointState.CREATING, EndpointState.FAILED)
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": arn,
        "EndpointConfigName": serving.config,
        "ProductionVariants": [_summary(endpoint, serving, variant, parts) for variant in serving.variants]
        if serves
        else None,
        "EndpointStatus": endpoint.state,
        "FailureReason": endpoint.failure_reason,
        "CreationTime": endpoint.created_at / 1000,
        "LastModifiedTime": endpoint.modified_at / 1000,
        "LastDeploymentConfig": read_request(endpoint.deployment_document)
        if endpoint.deployment_document
        else None,
        "PendingDeploymentSummary": pending,
    }


def _summary(
    endpoint: HostedEndpoint, generation: Generation, variant: Variant, parts: Mapping[int, float]
) -> dict[str, Any]:
    ready = [
        replica
        for replica in endpoint.replicas
        if replica.generation == generation.number
        and replica.variant == variant.name
        and replica.state is ReplicaState.READY
    ]
    image = variant.container.image
    return {
        "VariantName": variant.name,
        "DeployedImages": [
            {
                "SpecifiedImage": image,
                "ResolvedImage": image,
                "ResolutionTime": endpoint.created_at / 1000,
            }
        ],
        "CurrentWeight": variant.weight * parts.get(generation.number, 0.0),
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": len(ready),
        "DesiredInstanceCount": variant.count,
    }


def rollout_of(policy: Request | None, target: Generation) -> Rollout:
    """The rules of a DeploymentConfig; all at once where there is none."""
    if not policy:
        return Rollout()
    if "BlueGreenUpdatePolicy" in policy and "RollingUpdatePolicy" in policy:
        raise invalid("Only one of BlueGreenUpdatePolicy and RollingUpdatePolicy can be given")
    if (rolling := policy.get("RollingUpdatePolicy")) is not None:
        part = _part(rolling["MaximumBatchSize"], target)
        if part > 0.5 and max(variant.count for variant in target.variants) > 1:
            raise invalid("MaximumBatchSize must be at most half of the instances of a variant")
        return Rollout(
            kind=RolloutKind.ROLLING,
            part=part,
            wait_s=rolling["WaitIntervalInSeconds"],
            max_s=rolling.get("MaximumExecutionTimeoutInSeconds", _MAX_S),
            chosen=True,
        )
    blue_green = policy.get("BlueGreenUpdatePolicy")
    if blue_green is None:
        return Rollout()
    routing = blue_green["TrafficRoutingConfiguration"]
    kind = RolloutKind(routing["Type"])
    sizes = {RolloutKind.CANARY: "CanarySize", RolloutKind.LINEAR: "LinearStepSize"}
    part = 1.0
    if (member := sizes.get(kind)) is not None:
        if member not in routing:
            raise invalid(f"TrafficRoutingConfiguration of Type {kind} must have {member}")
        part = _part(routing[member], target)
        if part > 0.5:
            raise invalid(f"{member} must be at most half of the capacity of the endpoint")
    return Rollout(
        kind=kind,
        part=part,
        wait_s=routing["WaitIntervalInSeconds"],
        # The last step is watched too, as a part of the wait for the old replicas.
        termination_wait_s=max(
            routing["WaitIntervalInSeconds"], blue_green.get("TerminationWaitInSeconds", 0)
        ),
        max_s=blue_green.get("MaximumExecutionTimeoutInSeconds", _MAX_S),
        chosen=True,
    )


def _part(size: Request, target: Generation) -> float:
    """A CapacitySize as a part of all instances."""
    total = sum(variant.count for variant in target.variants)
    value = size["Value"] / 100 if size["Type"] == "CAPACITY_PERCENT" else size["Value"] / total
    return min(1.0, float(value))


def _document(params: Request) -> str:
    policy = params.get("DeploymentConfig")
    return "" if not policy else msgspec.json.encode(policy).decode()


def _environment(context: TrainingContext) -> Any:
    return placement.endpoint_environment(context.settings.engine, context.clock_ms())


async def _generation(
    context: TrainingContext, call: Call, endpoint: str, tags: Mapping[str, str]
) -> Generation:
    """The variants of the configuration that a request names; tags of the endpoint go before the configuration's."""
    config = await require(context, call, HostedConfig, call.params["EndpointConfigName"])
    request = read_request(config.document)
    models = {}
    for variant in request["ProductionVariants"]:
        model = await require(context, call, HostedModel, variant["ModelName"])
        models[variant["ModelName"]] = read_request(model.document)
    mappings = await context.read(lambda store: store.images())
    variants = variants_of(context, call, endpoint, request, models, mappings)
    return Generation(number=0, config=config.name, variants=variants, tags={**config.tags, **tags})
