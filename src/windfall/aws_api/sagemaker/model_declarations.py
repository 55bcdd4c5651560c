"""Models and endpoint configurations: created, described and deleted; and how anything hosted is found and listed.

A declaration is the request, kept as text. Decides what Describe and List show of one. Must not know how an endpoint is
made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from windfall.aws_api.batch.paging import position_in, token_of
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker.changing import invalid_token, tags_of
from windfall.aws_api.sagemaker.context import TrainingContext
from windfall.aws_api.sagemaker.hosting_names import (
    check_hosted_name,
    exists,
    hosted_arn,
    no_such,
)
from windfall.aws_api.sagemaker.hosting_rules import check_config, check_model
from windfall.aws_api.sagemaker.placement import place_for
from windfall.control.commands.hosting import (
    CreateEndpointConfig,
    CreateModel,
    DeleteHosted,
    HostedKind,
)
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel

Hosted = TypeVar("Hosted", HostedModel, HostedConfig, HostedEndpoint)
KINDS: Mapping[type, HostedKind] = {
    HostedModel: "model",
    HostedConfig: "endpoint-config",
    HostedEndpoint: "endpoint",
}
PAGE_MAX = 100


async def create_model(context: TrainingContext, call: Call) -> dict[str, Any]:
    """CreateModel."""
    check_model(call.params)
    name = check_hosted_name("model", call.params["ModelName"])
    arn = arn_of(context, call, HostedModel, name)
    model = HostedModel(
        name=name,
        region=call.region,
        document=_written(call.params),
        tags=tags_of(call.params.get("Tags", ())),
        submitter=call.caller.submitter,
    )
    async with context.changing:
        if await find(context, HostedModel, name) is not None:
            raise exists("model", arn)
        await context.execute(CreateModel(model))
    return {"ModelArn": arn}


async def create_endpoint_config(context: TrainingContext, call: Call) -> dict[str, Any]:
    """CreateEndpointConfig; its models must be there, and its types must be known."""
    check_config(call.params)
    name = check_hosted_name("endpoint-config", call.params["EndpointConfigName"])
    arn = arn_of(context, call, HostedConfig, name)
    for variant in call.params["ProductionVariants"]:
        await require(context, call, HostedModel, variant["ModelName"])
        place_for(variant["InstanceType"], ())
    config = HostedConfig(
        name=name,
        region=call.region,
        document=_written(call.params),
        tags=tags_of(call.params.get("Tags", ())),
        submitter=call.caller.submitter,
    )
    async with context.changing:
        if await find(context, HostedConfig, name) is not None:
            raise exists("endpoint-config", arn)
        await context.execute(CreateEndpointConfig(config))
    return {"EndpointConfigArn": arn}


async def describe_model(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DescribeModel."""
    model = await require(context, call, HostedModel, call.params["ModelName"])
    return {
        "EnableNetworkIsolation": False,
        **read_request(model.document),
        "ModelName": model.name,
        "ModelArn": arn_of(context, call, HostedModel, model.name),
        "CreationTime": model.created_at / 1000,
    }


async def describe_endpoint_config(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DescribeEndpointConfig."""
    config = await require(context, call, HostedConfig, call.params["EndpointConfigName"])
    request = read_request(config.document)
    variants = [
        {"InitialInstanceCount": 1, "InitialVariantWeight": 1.0, **variant}
        for variant in request["ProductionVariants"]
    ]
    return {
        **request,
        "ProductionVariants": variants,
        "EndpointConfigName": config.name,
        "EndpointConfigArn": arn_of(context, call, HostedConfig, config.name),
        "CreationTime": config.created_at / 1000,
    }


async def delete_model(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DeleteModel; endpoints that serve it go on."""
    model = await require(context, call, HostedModel, call.params["ModelName"])
    await context.execute(DeleteHosted("model", model.name))
    return {}


async def delete_endpoint_config(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DeleteEndpointConfig; endpoints that were made of it go on."""
    config = await require(context, call, HostedConfig, call.params["EndpointConfigName"])
    await context.execute(DeleteHosted("endpoint-config", config.name))
    return {}


async def list_models(context: TrainingContext, call: Call) -> dict[str, Any]:
    """ListModels."""

    def summary(model: HostedModel) -> dict[str, Any]:
        return {
            "ModelName": model.name,
            "ModelArn": arn_of(context, call, HostedModel, model.name),
            "CreationTime": model.created_at / 1000,
        }

    models = await context.read(lambda store: store.declared(HostedModel))
    return listed(call.params, models, "Models", summary)


async def list_endpoint_configs(context: TrainingContext, call: Call) -> dict[str, Any]:
    """ListEndpointConfigs."""

    def summary(config: HostedConfig) -> dict[str, Any]:
        return {
            "EndpointConfigName": config.name,
            "EndpointConfigArn": arn_of(context, call, HostedConfig, config.name),
            "CreationTime": config.created_at / 1000,
        }

    configs = await context.read(lambda store: store.declared(HostedConfig))
    return listed(call.params, configs, "EndpointConfigs", summary)


def listed(
    params: Mapping[str, Any],
    declared: Iterable[Hosted],
    member: str,
    summary: Callable[[Hosted], dict[str, Any]],
) -> dict[str, Any]:
    """A page of declarations: filtered, newest first unless asked otherwise; the token has the last one's key."""
    descending = params.get("SortOrder", "Descending") == "Descending"
    by = params.get("SortBy", "CreationTime")

    def key(it: Hosted) -> list[Any]:
        first = {"Name": it.name, "Status": str(getattr(it, "state", ""))}.get(by, it.created_at)
        return [first, it.name]

    chosen = sorted((it for it in declared if _is_wanted(it, params)), key=key, reverse=descending)
    if token := params.get("NextToken"):
        last = _position(token, key(chosen[0]) if chosen else None)
        chosen = [it for it in chosen if (key(it) < last if descending else key(it) > last)]
    size = params.get("MaxResults", PAGE_MAX)
    more = len(chosen) > size
    position = msgspec.json.encode(key(chosen[size - 1])).decode() if more else ""
    return {member: [summary(it) for it in chosen[:size]], "NextToken": token_of(position) if more else None}


def _is_wanted(it: HostedModel | HostedConfig | HostedEndpoint, params: Mapping[str, Any]) -> bool:
    created, latest = it.created_at / 1000, float("inf")
    modified = it.modified_at / 1000 if isinstance(it, HostedEndpoint) else created
    return (
        params.get("NameContains", "").lower() in it.name.lower()
        and params.get("CreationTimeAfter", 0) < created < params.get("CreationTimeBefore", latest)
        and params.get("LastModifiedTimeAfter", 0) < modified < params.get("LastModifiedTimeBefore", latest)
        and params.get("StatusEquals") in (None, getattr(it, "state", None))
    )


def _position(token: str, example: list[Any] | None) -> list[Any]:
    """The key in a token, if it is of the kind that this list is sorted by."""
    try:
        position = msgspec.json.decode(position_in(token), type=list[Any])
    except (ApiError, msgspec.DecodeError):
        raise invalid_token() from None
    if len(position) != 2 or (example is not None and type(position[0]) is not type(example[0])):
        raise invalid_token()
    return position


async def find(context: TrainingContext, kind: type[Hosted], name: str) -> Hosted | None:
    """The declaration of this name, if the caller has one."""
    own = context.view.shown(context.view.kept(name))
    declared = await context.read(lambda store: store.declared(kind))
    return next((it for it in declared if it.name == own), None)


async def require(context: TrainingContext, call: Call, kind: type[Hosted], name: str) -> Hosted:
    """The declaration of this name."""
    declared = await find(context, kind, name)
    if declared is None:
        raise no_such(KINDS[kind], arn_of(context, call, kind, name))
    return declared


def arn_of(context: TrainingContext, call: Call, kind: type, name: str) -> str:
    """The ARN in the region that the caller addressed."""
    return hosted_arn(KINDS[kind], call.region, context.account_id, name)


def read_request(document: str) -> dict[str, Any]:
    """The request in a kept text."""
    return msgspec.json.decode(document, type=dict[str, Any])


def _written(request: Mapping[str, Any]) -> str:
    return msgspec.json.encode({name: value for name, value in request.items() if name != "Tags"}).decode()
