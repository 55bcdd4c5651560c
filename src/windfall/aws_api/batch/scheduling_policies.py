"""Scheduling policies: five operations, addressed by ARN.

Decides what a fairsharePolicy may say and what it means for the core. Must not know who uses a policy, nor how one
decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windfall.aws_api.batch.arns import Arns, check_name, policy_name
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.documents import read_document, without, write_document
from windfall.aws_api.batch.paging import PAGE_MAX, page
from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.capacity.policies import FairShare, SchedulingPolicy, ShareWeight
from windfall.control.commands.policies import (
    CreateSchedulingPolicy,
    DeleteSchedulingPolicy,
    UpdateSchedulingPolicy,
)
from windfall.control.ports import Store

DECAY_MAX_S = 604_800
RESERVATION_MAX_PERCENT = 99
WEIGHT_MIN, WEIGHT_MAX = 0.0001, 999.9999

_IDENTIFIER = re.compile(r"[A-Za-z0-9]{1,255}\*?")


async def create_scheduling_policy(context: BatchContext, call: Call) -> dict[str, Any]:
    """CreateSchedulingPolicy."""
    params = call.params
    name = check_name(params["name"], "name")
    policy = SchedulingPolicy(
        name,
        _fair_share(params),
        created_at=context.clock_ms(),
        tags=check_tags(params.get("tags", {})),
        document=write_document(without(params, "name", "tags")),
    )
    await context.execute(CreateSchedulingPolicy(policy))
    return {"name": name, "arn": context.arns(call).policy(name)}


async def update_scheduling_policy(context: BatchContext, call: Call) -> dict[str, Any]:
    """UpdateSchedulingPolicy: what is sent takes the place of all that the policy said."""
    params = call.params
    name = policy_name(params["arn"])
    if not params.keys() & {"fairsharePolicy", "quotaSharePolicy"}:
        return await _unchanged(context, call, name)
    document = write_document(without(params, "arn"))
    await context.execute(UpdateSchedulingPolicy(name, _fair_share(params), document))
    return {}


async def _unchanged(context: BatchContext, call: Call, name: str) -> dict[str, Any]:
    """An update that says nothing changes nothing; but what it names must exist."""
    if await context.read(lambda store: policy_in(store, name)) is None:
        raise client_exception(f"{context.arns(call).policy(name)} does not exist")
    return {}


async def delete_scheduling_policy(context: BatchContext, call: Call) -> dict[str, Any]:
    """DeleteSchedulingPolicy."""
    await context.execute(DeleteSchedulingPolicy(policy_name(call.params["arn"])))
    return {}


async def describe_scheduling_policies(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeSchedulingPolicies: those named, in the order asked; unknown ones are left out."""
    references = call.params["arns"]
    if not 1 <= len(references) <= PAGE_MAX:
        raise client_exception(f"arns must name 1 to {PAGE_MAX} scheduling policies, got {len(references)}")
    names = list(dict.fromkeys(policy_name(arn) for arn in references))
    policies = {
        policy.name: policy for policy in await context.read(lambda store: store.declared(SchedulingPolicy))
    }
    arns = context.arns(call)
    return {"schedulingPolicies": [_detail(policies[name], arns) for name in names if name in policies]}


async def list_scheduling_policies(context: BatchContext, call: Call) -> dict[str, Any]:
    """ListSchedulingPolicies: the ARNs of all, by name."""
    policies = await context.read(lambda store: store.declared(SchedulingPolicy))
    chosen, token = page(policies, lambda policy: (policy.name,), call.params)
    arns = context.arns(call)
    return {
        "schedulingPolicies": [{"arn": arns.policy(policy.name)} for policy in chosen],
        "nextToken": token,
    }


def policy_in(store: Store, name: str) -> SchedulingPolicy | None:
    """One policy of the store's."""
    return next((policy for policy in store.declared(SchedulingPolicy) if policy.name == name), None)


def _fair_share(params: Mapping[str, Any]) -> FairShare | None:
    """What a policy says; None for a quota policy. One that says neither is fair share with AWS's defaults."""
    sent = params.get("fairsharePolicy")
    if "quotaSharePolicy" in params:
        if sent is not None:
            raise client_exception("fairsharePolicy and quotaSharePolicy cannot be used together; send one")
        return None
    sent = sent or {}
    decay_s, percent = sent.get("shareDecaySeconds", 0), sent.get("computeReservation", 0)
    if not 0 <= decay_s <= DECAY_MAX_S:
        raise client_exception(f"shareDecaySeconds must be between 0 and {DECAY_MAX_S}, got {decay_s}")
    if not 0 <= percent <= RESERVATION_MAX_PERCENT:
        raise client_exception(
            f"computeReservation must be between 0 and {RESERVATION_MAX_PERCENT}, got {percent}"
        )
    return FairShare(decay_s, percent, tuple(_weight(entry) for entry in sent.get("shareDistribution", ())))


def _weight(sent: Mapping[str, Any]) -> ShareWeight:
    identifier, weight = sent["shareIdentifier"], sent.get("weightFactor", 1.0)
    if _IDENTIFIER.fullmatch(identifier) is None:
        raise client_exception(
            f"shareIdentifier {shown(identifier)!r} must have 1 to 255 letters and digits, and may end in an asterisk"
        )
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise client_exception(
            f"weightFactor of {shown(identifier)} must be between {WEIGHT_MIN} and {WEIGHT_MAX}, got {weight:g}"
        )
    return ShareWeight(identifier, float(weight))


def _detail(policy: SchedulingPolicy, arns: Arns) -> dict[str, Any]:
    """A SchedulingPolicyDetail: what was sent, in full."""
    return {
        **read_document(policy.document),
        "name": policy.name,
        "arn": arns.policy(policy.name),
        "tags": dict(policy.tags),
    }
