"""Consumable resources: six operations, and how jobs and definitions name them.

Decides what their names, filters and quantities may look like. How many are in use is written by the core beside the
total. Must not know who may have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import Arns, check_name, consumable_resource_name
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.paging import invalid_token, page, page_size, position_in, token_of
from windfall.aws_api.batch.rejections import client_exception, does_not_exist, shown
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.consumables import PER_JOB_MAX, ConsumableResource
from windfall.control.commands.consumables import (
    CreateConsumableResource,
    DeleteConsumableResource,
    QuantityOperation,
    UpdateConsumableResource,
)
from windfall.control.ports import JobFilter, JobPage, Store
from windfall.jobs.job import Job
from windfall.jobs.states import JobState

JOBS_PAGE_MAX = 100

_REPLENISHABLE, _NON_REPLENISHABLE = "REPLENISHABLE", "NON_REPLENISHABLE"


async def create_consumable_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """CreateConsumableResource."""
    params = call.params
    name = check_name(params["consumableResourceName"], "consumableResourceName")
    kind = params.get("resourceType", _REPLENISHABLE)
    if kind not in (_REPLENISHABLE, _NON_REPLENISHABLE):
        raise client_exception(
            f"resourceType must be {_REPLENISHABLE} or {_NON_REPLENISHABLE}, got {shown(kind)}"
        )
    resource = ConsumableResource(
        name,
        params.get("totalQuantity", 0),
        replenishable=kind == _REPLENISHABLE,
        created_at=context.clock_ms(),
        tags=check_tags(params.get("tags", {})),
    )
    await context.execute(CreateConsumableResource(resource))
    return {
        "consumableResourceName": name,
        "consumableResourceArn": context.arns(call).consumable_resource(name),
    }


async def update_consumable_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """UpdateConsumableResource: set, raise or lower the total."""
    params = call.params
    text = params.get("operation", QuantityOperation.SET.value)
    if text not in tuple(QuantityOperation):
        raise client_exception(f"operation must be one of {', '.join(QuantityOperation)}, got {shown(text)}")
    if "quantity" not in params:
        raise client_exception("quantity is required: the new total, or by how much to raise or lower it")
    command = UpdateConsumableResource(
        consumable_resource_name(params["consumableResource"]),
        QuantityOperation(text),
        params["quantity"],
        params.get("clientToken"),
    )
    updated: ConsumableResource = await context.execute(command)
    return {
        "consumableResourceName": updated.name,
        "consumableResourceArn": context.arns(call).consumable_resource(updated.name),
        "totalQuantity": updated.shown_total,
    }


async def delete_consumable_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """DeleteConsumableResource."""
    await context.execute(
        DeleteConsumableResource(consumable_resource_name(call.params["consumableResource"]))
    )
    return {}


async def describe_consumable_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeConsumableResource: with what is in use and what is left."""
    name = consumable_resource_name(call.params["consumableResource"])
    resource = await context.read(lambda store: consumable_named(store, name))
    if resource is None:
        raise does_not_exist(call.params["consumableResource"])
    return {
        **_summary(resource, context.arns(call)),
        "availableQuantity": resource.free,
        "createdAt": resource.created_at,
        "tags": dict(resource.tags),
    }


async def list_consumable_resources(context: BatchContext, call: Call) -> dict[str, Any]:
    """ListConsumableResources: all, or those whose name fits."""
    names = _filters(call.params, ("CONSUMABLE_RESOURCE_NAME",)).get("CONSUMABLE_RESOURCE_NAME")
    resources = await context.read(lambda store: store.declared(ConsumableResource))
    if names is not None:
        resources = [
            resource for resource in resources if any(_fits(resource.name, wanted) for wanted in names)
        ]
    chosen, token = page(resources, lambda resource: (resource.name,), call.params)
    arns = context.arns(call)
    return {"consumableResources": [_summary(resource, arns) for resource in chosen], "nextToken": token}


async def list_jobs_by_consumable_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """ListJobsByConsumableResource: the jobs that name it, the newest first."""
    params = call.params
    name = consumable_resource_name(params["consumableResource"])
    wanted = _jobs_wanted(name, _filters(params, ("JOB_STATUS", "JOB_NAME")))
    limit = page_size(params, JOBS_PAGE_MAX)
    after = position_in(params["nextToken"]) if params.get("nextToken") else None

    def look(store: Store) -> JobPage:
        if consumable_named(store, name) is None:
            raise does_not_exist(params["consumableResource"])
        try:
            return store.list_jobs(wanted, limit, after)
        except ValueError:
            # The store's own word for a position that no page has given.
            raise invalid_token() from None

    jobs_page = await context.read(look)
    arns = context.arns(call)
    token = None if jobs_page.next_after is None else token_of(jobs_page.next_after)
    return {"jobs": [_job_summary(job, name, arns) for job in jobs_page.jobs], "nextToken": token}


def consumable_named(store: Store, name: str) -> ConsumableResource | None:
    """One consumable resource of the store's."""
    return next((resource for resource in store.declared(ConsumableResource) if resource.name == name), None)


def required_tokens(sent: Mapping[str, Any] | None) -> tuple[tuple[str, int], ...]:
    """What a ConsumableResourceProperties asks for, names instead of ARNs."""
    entries: Sequence[Mapping[str, Any]] = (sent or {}).get("consumableResourceList", ())
    if len(entries) > PER_JOB_MAX:
        raise client_exception(
            f"consumableResourceList can name at most {PER_JOB_MAX} consumable resources, got {len(entries)}"
        )
    wanted: dict[str, int] = {}
    for entry in entries:
        name = check_name(consumable_resource_name(entry.get("consumableResource", "")), "consumableResource")
        quantity = entry.get("quantity", 1)
        if quantity < 1:
            raise client_exception(f"quantity of {name} must be at least 1, got {quantity}")
        if name in wanted:
            raise client_exception(f"consumableResourceList names {name} twice; give its quantity once")
        wanted[name] = quantity
    return tuple(wanted.items())


def token_properties(wanted: Sequence[tuple[str, int]], arns: Arns) -> dict[str, Any] | None:
    """The ConsumableResourceProperties of a job; None for a job that names none."""
    if not wanted:
        return None
    return {
        "consumableResourceList": [
            {"consumableResource": arns.consumable_resource(name), "quantity": quantity}
            for name, quantity in wanted
        ]
    }


def _filters(params: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, list[str]]:
    """The values of each filter."""
    values_by_name: dict[str, list[str]] = {}
    for entry in params.get("filters", ()):
        name, values = entry.get("name", "").strip(), entry.get("values", [])
        if name not in allowed:
            raise client_exception(f"Filter {shown(name)!r} is not valid; use {' or '.join(allowed)}")
        if not values or name in values_by_name:
            raise client_exception(f"Filter {name} must be given once, with at least one value")
        values_by_name[name] = values
    return values_by_name


def _fits(name: str, wanted: str) -> bool:
    name, wanted = name.casefold(), wanted.casefold()
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


def _jobs_wanted(resource: str, filters: Mapping[str, Sequence[str]]) -> JobFilter:
    states = None
    if "JOB_STATUS" in filters:
        unknown = [text for text in filters["JOB_STATUS"] if text not in tuple(JobState)]
        if unknown:
            raise client_exception(f"JOB_STATUS {shown(unknown[0])!r} is none of {', '.join(JobState)}")
        states = tuple(JobState(text) for text in filters["JOB_STATUS"])
    names = filters.get("JOB_NAME", ())
    if len(names) > 1:
        raise client_exception(f"Filter JOB_NAME must have exactly one value, got {len(names)}")
    name = names[0] if names else None
    return JobFilter(
        states=states,
        name=None if name is None else name.removesuffix("*"),
        name_is_prefix=name is not None and name.endswith("*"),
        consumable=resource,
    )


def _summary(resource: ConsumableResource, arns: Arns) -> dict[str, Any]:
    return {
        "consumableResourceName": resource.name,
        "consumableResourceArn": arns.consumable_resource(resource.name),
        "totalQuantity": resource.shown_total,
        "inUseQuantity": resource.in_use,
        "resourceType": _REPLENISHABLE if resource.replenishable else _NON_REPLENISHABLE,
    }


def _job_summary(job: Job, resource: str, arns: Arns) -> dict[str, Any]:
    submission = job.submission
    return {
        "jobArn": arns.job(job.id),
        "jobQueueArn": arns.queue(submission.queue),
        "jobName": submission.name,
        "jobDefinitionArn": arns.definition(submission.definition),
        "shareIdentifier": submission.share,
        "jobStatus": job.state.value,
        "quantity": dict(submission.consumables)[resource],
        "statusReason": job.status_reason,
        "startedAt": job.started_at,
        "createdAt": job.created_at,
        "consumableResourceProperties": token_properties(submission.consumables, arns),
    }
