"""Quota shares: five operations, addressed by ARN or by the queue that they divide.

Decides how a share reads on the wire. The core decides which limits are valid and who may borrow. Must not know who
holds what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import Arns, check_name, queue_name, quota_share_key
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.paging import page
from windfall.aws_api.batch.queues import queue_named
from windfall.aws_api.batch.rejections import does_not_exist
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.environments import Switch
from windfall.capacity.policies import UNLIMITED_BORROWING, CapacityLimit, QuotaShare, SharingStrategy
from windfall.control.commands.policies import CreateQuotaShare, DeleteQuotaShare, UpdateQuotaShare
from windfall.control.ports import Store

_ENABLED = "ENABLED"


async def create_quota_share(context: BatchContext, call: Call) -> dict[str, Any]:
    """CreateQuotaShare."""
    params = call.params
    sharing, borrow_percent = _sharing(params["resourceSharingConfiguration"])
    share = QuotaShare(
        check_name(params["quotaShareName"], "quotaShareName"),
        queue_name(params["jobQueue"]),
        _limits(params["capacityLimits"]),
        sharing,
        borrow_percent,
        _preempts_within(params["preemptionConfiguration"]),
        Switch(params.get("state", Switch.ENABLED)),
        tags=check_tags(params.get("tags", {})),
    )
    created: QuotaShare = await context.execute(CreateQuotaShare(share))
    return _named(created, context.arns(call))


async def update_quota_share(context: BatchContext, call: Call) -> dict[str, Any]:
    """UpdateQuotaShare: what is sent takes the place of what the share said of it."""
    params = call.params
    sharing: SharingStrategy | None = None
    borrow_percent: int | None = None
    if "resourceSharingConfiguration" in params:
        sharing, borrow_percent = _sharing(params["resourceSharingConfiguration"])
    command = UpdateQuotaShare(
        quota_share_key(params["quotaShareArn"]),
        _limits(params["capacityLimits"]) if "capacityLimits" in params else None,
        sharing,
        borrow_percent,
        _preempts_within(params["preemptionConfiguration"]) if "preemptionConfiguration" in params else None,
        Switch(params["state"]) if "state" in params else None,
    )
    updated: QuotaShare = await context.execute(command)
    return _named(updated, context.arns(call))


async def delete_quota_share(context: BatchContext, call: Call) -> dict[str, Any]:
    """DeleteQuotaShare: with the jobs that it still has, as on AWS."""
    await context.execute(DeleteQuotaShare(quota_share_key(call.params["quotaShareArn"])))
    return {}


async def describe_quota_share(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeQuotaShare."""
    key = quota_share_key(call.params["quotaShareArn"])
    share = await context.read(lambda store: quota_share_in(store, key))
    if share is None:
        raise does_not_exist(call.params["quotaShareArn"])
    return {**_detail(share, context.arns(call)), "tags": dict(share.tags)}


async def list_quota_shares(context: BatchContext, call: Call) -> dict[str, Any]:
    """ListQuotaShares: those of one queue, by name."""
    name = queue_name(call.params["jobQueue"])

    def look(store: Store) -> list[QuotaShare]:
        if queue_named(store, name) is None:
            raise does_not_exist(call.params["jobQueue"])
        return [share for share in store.declared(QuotaShare) if share.queue == name]

    shares = await context.read(look)
    chosen, token = page(shares, lambda share: (share.name,), call.params)
    arns = context.arns(call)
    return {"quotaShares": [_detail(share, arns) for share in chosen], "nextToken": token}


def quota_share_in(store: Store, key: str) -> QuotaShare | None:
    """One quota share of the store's, by `<queue>/<name>`."""
    return next((share for share in store.declared(QuotaShare) if share.key == key), None)


def _limits(sent: Sequence[Mapping[str, Any]]) -> tuple[CapacityLimit, ...]:
    return tuple(CapacityLimit(limit["capacityUnit"], limit["maxCapacity"]) for limit in sent)


def _sharing(sent: Mapping[str, Any]) -> tuple[SharingStrategy, int]:
    return SharingStrategy(sent["strategy"]), sent.get("borrowLimit", UNLIMITED_BORROWING)


def _preempts_within(sent: Mapping[str, Any]) -> bool:
    return bool(sent["inSharePreemption"] == _ENABLED)


def _named(share: QuotaShare, arns: Arns) -> dict[str, Any]:
    return {"quotaShareName": share.name, "quotaShareArn": arns.quota_share(share.queue, share.name)}


def _detail(share: QuotaShare, arns: Arns) -> dict[str, Any]:
    sharing: dict[str, Any] = {"strategy": share.sharing.value}
    if share.sharing is SharingStrategy.LEND_AND_BORROW:
        sharing["borrowLimit"] = share.borrow_percent
    return {
        **_named(share, arns),
        "jobQueueArn": arns.queue(share.queue),
        "capacityLimits": [
            {"maxCapacity": limit.amount, "capacityUnit": limit.unit} for limit in share.limits
        ],
        "resourceSharingConfiguration": sharing,
        "preemptionConfiguration": {"inSharePreemption": _ENABLED if share.preempts_within else "DISABLED"},
        "state": share.switch.value,
        "status": "VALID",
    }
