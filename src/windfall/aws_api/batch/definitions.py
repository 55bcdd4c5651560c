"""Job definitions: registering, describing and deregistering revisions.

Decides what the definition of a container may say, however it is written, and which part of it the core goes by; the
whole registration is kept and returned. Must not know which revisions exist: the core numbers them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windfall.aws_api.batch.arns import Arns, check_name, definition_reference
from windfall.aws_api.batch.consumable_resources import required_tokens
from windfall.aws_api.batch.container_options import container_options
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.documents import read_document, without, write_document
from windfall.aws_api.batch.ecs_properties import name_of, others_of, registered_detail, task_container
from windfall.aws_api.batch.job_fields import (
    amounts,
    environment_variables,
    retry_detail,
    retry_strategy,
    scheduling_priority,
    timeout_s,
)
from windfall.aws_api.batch.lint.registration_log import log_findings
from windfall.aws_api.batch.nodes import MULTINODE, main_container, node_plan
from windfall.aws_api.batch.paging import PAGE_MAX, page
from windfall.aws_api.batch.rejections import client_exception, refuse_unsupported, shown, unsupported
from windfall.aws_api.batch.run_definitions import is_plain, is_reserved
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.errors import AccessDeniedError
from windfall.aws_api.protocol.service import Call, Caller, Role
from windfall.control.events import DeregisterJobDefinition, RegisterJobDefinition
from windfall.control.ports import Store
from windfall.jobs.definitions import DEFAULT_LOG_GROUP, ContainerSpec, JobDefinition, NodePlan
from windfall.jobs.errors import Invalid
from windfall.jobs.fargate import check_size
from windfall.jobs.ids import DefinitionKey
from windfall.jobs.resources import NOTHING, Resources
from windfall.jobs.retry import ONCE

DEFINITION_SIZE_MAX = 24 * 1024
#: Lists that AWS returns whether they were sent or not.
LISTS_ALWAYS_THERE = (
    "command",
    "volumes",
    "environment",
    "mountPoints",
    "ulimits",
    "resourceRequirements",
    "secrets",
)

_IMAGE_MAX = 255
_LOG_GROUP = re.compile(r"[.\-_/#A-Za-z0-9]{1,512}")
_LOG_PREFIX = re.compile(r"[^:*]{1,256}")
_FARGATE_ONLY = ("networkConfiguration", "fargatePlatformConfiguration", "platformVersion")


async def register_job_definition(context: BatchContext, call: Call) -> dict[str, Any]:
    """RegisterJobDefinition."""
    params = call.params
    if call.size >= DEFINITION_SIZE_MAX:
        raise client_exception(
            f"Job definition size must be less than 24 KiB, got {-(-call.size // 1024)} KiB"
        )
    refuse_unsupported(call.operation, params)
    _check_name_is_free(params, call.caller)
    plan = _nodes(params)
    container = _container(params, _properties(params)) if plan is None else main_container(plan)
    for each in [container] if plan is None else [node_range.container for node_range in plan.ranges]:
        _check_rights(each, call.caller)
    definition = JobDefinition(
        name=check_name(params["jobDefinitionName"], "jobDefinitionName"),
        revision=0,
        container=container,
        parameters=params.get("parameters", {}),
        retry=retry_strategy(params.get("retryStrategy")) or ONCE,
        timeout_s=timeout_s(params.get("timeout")),
        propagate_tags=params.get("propagateTags", False),
        tags=check_tags(params.get("tags", {})),
        registered_at=context.clock_ms(),
        priority=scheduling_priority(params.get("schedulingPriority"), "schedulingPriority") or 0,
        consumables=required_tokens(params.get("consumableResourceProperties")),
        document=write_document(without(params, "jobDefinitionName", "tags")),
        nodes=plan,
    )
    registered: JobDefinition = await context.execute(RegisterJobDefinition(definition))
    log_findings(registered, await context.read(lambda store: store.environments()))
    return {
        "jobDefinitionName": registered.name,
        "jobDefinitionArn": context.arns(call).definition(registered.key),
        "revision": registered.revision,
    }


async def describe_job_definitions(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeJobDefinitions: all revisions, those of one name, or those listed; by name and revision."""
    params = call.params
    status = params.get("status")
    definitions = await context.read(lambda store: _definitions_asked(store, params))
    if status is not None:
        definitions = [definition for definition in definitions if _status(definition) == status]
    chosen, token = page(definitions, lambda definition: (definition.name, definition.revision), params)
    arns = context.arns(call)
    return {"jobDefinitions": [_detail(definition, arns) for definition in chosen], "nextToken": token}


async def deregister_job_definition(context: BatchContext, call: Call) -> dict[str, Any]:
    """DeregisterJobDefinition: one revision becomes INACTIVE."""
    name, _, revision = definition_reference(call.params["jobDefinition"]).partition(":")
    if not revision:
        raise client_exception(f"Job definition {name} must be given with its revision, as {name}:1")
    if call.caller.role < Role.ADMIN and await is_shared(context, f"{name}:{revision}"):
        raise AccessDeniedError(
            f"All tenants share job definition {name}:{revision}, and deregistering it needs an admin key; the key"
            f" {call.caller.access_key_id} has the role {call.caller.role.name.lower()}."
        )
    await context.execute(DeregisterJobDefinition(name, int(revision)))
    return {}


async def is_shared(context: BatchContext, key: str) -> bool:
    """Whether this revision serves all tenants, so that administrators alone change it."""
    definition = await context.read(lambda store: store.definition(DefinitionKey(key)))
    return definition is not None and definition.shared


def _definitions_asked(store: Store, params: Mapping[str, Any]) -> list[JobDefinition]:
    listed = params.get("jobDefinitions")
    if not listed:
        return store.definitions(
            params.get("jobDefinitionName"), active_only=params.get("status") == "ACTIVE"
        )
    if len(listed) > PAGE_MAX:
        raise client_exception(f"Maximum number of job definitions supported is {PAGE_MAX}")
    definitions: dict[DefinitionKey, JobDefinition] = {}
    for reference in listed:
        key = definition_reference(reference)
        if ":" in key:
            definition = store.definition(DefinitionKey(key))
            revisions = [] if definition is None else [definition]
        else:
            revisions = store.definitions(key)
        definitions.update((definition.key, definition) for definition in revisions)
    return list(definitions.values())


def _nodes(params: Mapping[str, Any]) -> NodePlan | None:
    """The nodes of a multi-node definition; None for any other."""
    sent, is_multinode = params.get("nodeProperties"), params["type"] == MULTINODE
    if not sent and not is_multinode:
        return None
    if not (sent and is_multinode):
        raise client_exception(
            f"nodeProperties and the type {MULTINODE} go together; the other one is missing"
        )
    for member in ("containerProperties", "ecsProperties"):
        if params.get(member):
            raise client_exception(
                f"{member} are not for the type {MULTINODE}; give each range of nodeProperties its own"
            )
    if "FARGATE" in (params.get("platformCapabilities") or ()):
        raise client_exception("Multi-node parallel jobs are not supported on Fargate; use EC2")
    return node_plan(sent, lambda each: _container(params, each))


def _properties(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The containerProperties of a definition of one node, however they are written."""
    container: Mapping[str, Any] | None = params.get("containerProperties")
    task = params.get("ecsProperties")
    if container and task:
        raise client_exception("Give either containerProperties or ecsProperties, not both")
    if task:
        return task_container(task)
    if not container:
        raise client_exception("Container properties should not be empty for a job of type container")
    return container


def _container(params: Mapping[str, Any], container: Mapping[str, Any]) -> ContainerSpec:
    """The part of containerProperties that the core goes by, all of them checked."""
    image = container.get("image", "")
    if not 1 <= len(image) <= _IMAGE_MAX or any(letter.isspace() for letter in image):
        raise client_exception(
            f"image {shown(image)!r} must have 1 to {_IMAGE_MAX} characters and no white space"
        )
    shared_memory = container.get("linuxParameters", {}).get("sharedMemorySize")
    if shared_memory is not None and shared_memory < 1:
        raise client_exception(f"sharedMemorySize must be at least 1 MiB, got {shared_memory}")
    fargate = _runs_on_fargate(params, container)
    environment = environment_variables(container.get("environment", ()))
    log_group, log_prefix = _log_place(container.get("logConfiguration"))
    resources = _resources(container, fargate=fargate)
    return ContainerSpec(
        image=image,
        resources=resources,
        command=tuple(container.get("command", ())),
        environment=environment,
        shared_memory_mib=shared_memory,
        log_group=log_group,
        log_prefix=log_prefix,
        options=container_options(container, environment, fargate=fargate),
        name=name_of(container),
        fargate_beside=_fargate_beside(params, resources) if fargate else None,
        has_role=bool(container.get("jobRoleArn")),
    )


def _check_name_is_free(params: Mapping[str, Any], caller: Caller) -> None:
    """Refuse a definition that would run in the place of another one in every `windfall run` of the tenant."""
    name = params["jobDefinitionName"]
    if caller.role < Role.ADMIN and is_reserved(name) and not is_plain(params):
        raise AccessDeniedError(
            f"Job definition {shown(name)} is the one that `windfall run` uses, and changing it needs an admin key; the"
            f" key {caller.access_key_id} has the role {caller.role.name.lower()}. Choose another name."
        )


def _check_rights(container: ContainerSpec, caller: Caller) -> None:
    """Refuse what would give every submitter root, unless an admin registers it."""
    if container.options.reaches_host and caller.role < Role.ADMIN:
        raise AccessDeniedError(
            f"The key {caller.access_key_id} has the role {caller.role.name.lower()}, and a definition with privileged,"
            " host.sourcePath or devices gives its jobs control of the host, which needs admin. Ask an admin to"
            " register it, or leave these out (a volume without host.sourcePath is an empty one)."
        )


def _runs_on_fargate(params: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    """Whether the definition is for Fargate; raises where its fields say otherwise."""
    capabilities = params.get("platformCapabilities") or ["EC2"]
    if "MANAGED_INSTANCES" in capabilities:
        raise unsupported("platformCapabilities MANAGED_INSTANCES")
    if "FARGATE" not in capabilities:
        for member in _FARGATE_ONLY:
            if container.get(member):
                raise client_exception(f"{member} not applicable for EC2.")
        return False
    return True


def _resources(container: Mapping[str, Any], *, fargate: bool) -> Resources:
    requested = amounts(container, fargate=fargate)
    if requested.vcpus is None:
        raise client_exception("vCPU is not provided.")
    if requested.memory_mib is None:
        raise client_exception("Memory is not provided.")
    return Resources(requested.vcpus, requested.memory_mib, requested.gpus or 0)


def _fargate_beside(params: Mapping[str, Any], resources: Resources) -> Resources:
    """What the other containers of a task for Fargate take; raises where there is no such size of all of them."""
    task = params.get("ecsProperties")
    beside = (
        sum((_resources(container, fargate=True) for container in others_of(task)), NOTHING)
        if task
        else NOTHING
    )
    try:
        check_size(resources + beside)
    except Invalid as error:
        raise client_exception(str(error)) from None
    return beside


def _log_place(configuration: Mapping[str, Any] | None) -> tuple[str, str | None]:
    """The log group and stream prefix; with other drivers than awslogs they are the usual ones."""
    if not configuration or configuration["logDriver"] != "awslogs":
        return DEFAULT_LOG_GROUP, None
    options = configuration.get("options", {})
    group = options.get("awslogs-group", DEFAULT_LOG_GROUP)
    prefix = options.get("awslogs-stream-prefix")
    if _LOG_GROUP.fullmatch(group) is None:
        raise client_exception(f"awslogs-group {shown(group)!r} is not a valid log group name")
    if prefix is not None and _LOG_PREFIX.fullmatch(prefix) is None:
        raise client_exception(
            f"awslogs-stream-prefix {shown(prefix)!r} must not contain a colon or an asterisk"
        )
    return group, prefix


def _status(definition: JobDefinition) -> str:
    return "ACTIVE" if definition.active else "INACTIVE"


def _with_lists(container: Mapping[str, Any]) -> dict[str, Any]:
    return {**{member: [] for member in LISTS_ALWAYS_THERE}, **container}


def _parts(detail: dict[str, Any], definition: JobDefinition) -> list[tuple[dict[str, Any], str]]:
    """What of a registration holds a container, or a task, and the member in which a container is."""
    if definition.nodes is None:
        return [(detail, "containerProperties")]
    return [(entry, "container") for entry in detail["nodeProperties"]["nodeRangeProperties"]]


def _detail(definition: JobDefinition, arns: Arns) -> dict[str, Any]:
    """A JobDefinition: what was registered, and what AWS adds to it."""
    detail = read_document(definition.document)
    for entry, member in _parts(detail, definition):
        if entry.get("ecsProperties"):
            entry["ecsProperties"] = registered_detail(entry["ecsProperties"])
        else:
            entry[member] = _with_lists(entry.get(member, {}))
    if "retryStrategy" in detail:
        detail["retryStrategy"] = retry_detail(definition.retry)
    return {
        "type": "container",
        "parameters": dict(definition.parameters),
        **detail,
        "jobDefinitionName": definition.name,
        "jobDefinitionArn": arns.definition(definition.key),
        "revision": definition.revision,
        "status": _status(definition),
        "containerOrchestrationType": "ECS",
        "tags": dict(definition.tags),
    }
