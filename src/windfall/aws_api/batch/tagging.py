"""Tags of environments, queues, definitions and jobs, addressed by ARN.

Decides which ARNs can be tagged. The core, which has the existing tags, decides how many a resource may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windfall.aws_api.batch.arns import (
    CONSUMABLE_RESOURCE,
    DEFINITION,
    ENVIRONMENT,
    JOB,
    POLICY,
    QUEUE,
    QUOTA_SHARE,
    SERVICE_ENVIRONMENT,
    SERVICE_JOB,
    job_reference,
    parse_arn,
)
from windfall.aws_api.batch.consumable_resources import consumable_named
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.definitions import is_shared
from windfall.aws_api.batch.environments import environment_named
from windfall.aws_api.batch.job_details import find_jobs, job_tags
from windfall.aws_api.batch.queues import queue_named
from windfall.aws_api.batch.quota_shares import quota_share_in
from windfall.aws_api.batch.rejections import client_exception, does_not_exist, unsupported
from windfall.aws_api.batch.run_definitions import is_reserved
from windfall.aws_api.batch.scheduling_policies import policy_in
from windfall.aws_api.batch.service_environments import service_environment_tags
from windfall.aws_api.batch.service_jobs import service_job_tags
from windfall.aws_api.batch.tags import OWN, check_tags, is_own
from windfall.aws_api.protocol.errors import AccessDeniedError
from windfall.aws_api.protocol.service import Call, Role
from windfall.control.events import TagResource
from windfall.control.ports import Store
from windfall.jobs.ids import DefinitionKey


def _consumable_tags(store: Store, name: str) -> Mapping[str, str] | None:
    resource = consumable_named(store, name)
    return None if resource is None else resource.tags


def _policy_tags(store: Store, name: str) -> Mapping[str, str] | None:
    policy = policy_in(store, name)
    return None if policy is None else policy.tags


def _quota_share_tags(store: Store, name: str) -> Mapping[str, str] | None:
    share = quota_share_in(store, name)
    return None if share is None else share.tags


#: Where the tags of what else can be declared are found: the kind in the ARN, and what follows it.
_DECLARED: Mapping[str, Callable[[Store, str], Mapping[str, str] | None]] = {
    SERVICE_ENVIRONMENT: service_environment_tags,
    SERVICE_JOB: service_job_tags,
    CONSUMABLE_RESOURCE: _consumable_tags,
    POLICY: _policy_tags,
    QUOTA_SHARE: _quota_share_tags,
}
#: What only an admin key may create, change or delete.
_ADMIN_KINDS = frozenset(
    {ENVIRONMENT, QUEUE, POLICY, QUOTA_SHARE, SERVICE_ENVIRONMENT, CONSUMABLE_RESOURCE},
)
_KINDS = frozenset({ENVIRONMENT, QUEUE, DEFINITION, JOB, *_DECLARED})


async def tag_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """TagResource: add tags, or change those of the same key."""
    kind, name = await _taggable(context, call, call.params["tags"])
    await context.execute(TagResource(kind, name, add=check_tags(call.params["tags"])))
    return {}


async def untag_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """UntagResource: remove tags by key; missing keys are ignored."""
    kind, name = await _taggable(context, call, call.params["tagKeys"])
    await context.execute(TagResource(kind, name, remove=tuple(call.params["tagKeys"])))
    return {}


async def list_tags_for_resource(context: BatchContext, call: Call) -> dict[str, Any]:
    """ListTagsForResource."""
    kind, name = _resource(call)
    tags = await context.read(lambda store: _tags_of(store, kind, name))
    if tags is None:
        raise does_not_exist(call.params["resourceArn"])
    return {"tags": dict(tags)}


def _resource(call: Call) -> tuple[str, str]:
    kind, name = parse_arn(call.params["resourceArn"])
    if kind not in _KINDS:
        raise unsupported(f"tags of a {kind}")
    if kind == JOB and job_reference(name) is None:
        raise does_not_exist(call.params["resourceArn"])
    return kind, name


async def _taggable(context: BatchContext, call: Call, keys: Iterable[str]) -> tuple[str, str]:
    kind, name = _resource(call)
    if call.caller.role < Role.ADMIN and await _is_admins(context, kind, name):
        raise AccessDeniedError(
            f"Others use this {kind} too, and changing its tags needs an admin key; the key"
            f" {call.caller.access_key_id} has the role {call.caller.role.name.lower()}."
        )
    if kind == JOB and ":" in name:
        raise client_exception(f"The children of an array share its tags; tag job {name.partition(':')[0]}")
    if kind == JOB and any(map(is_own, keys)) and not await _may_steer(context, call, name):
        raise AccessDeniedError(
            f"Tags that begin with {OWN} decide how job {name} is run again, and it has other rights than jobs of the"
            f" key {call.caller.access_key_id}: change them with a key like the one that submitted it, or an admin key."
        )
    return kind, name


async def _is_admins(context: BatchContext, kind: str, name: str) -> bool:
    """Whether only an admin key may change a thing: shared capacity, and definitions that serve others too."""
    if kind != DEFINITION:
        return kind in _ADMIN_KINDS
    return is_reserved(name) or await is_shared(context, name)


async def _may_steer(context: BatchContext, call: Call, name: str) -> bool:
    job_id = job_reference(name)
    jobs = await context.read(lambda store: [] if job_id is None else store.jobs([job_id]))
    return all(call.caller.submitter.may_steer(job.submission.submitter) for job in jobs)


def _tags_of(store: Store, kind: str, name: str) -> Mapping[str, str] | None:
    if kind == JOB:
        job_id = job_reference(name)
        jobs = [] if job_id is None else find_jobs(store, [job_id])
        return job_tags(jobs[0]) if jobs else None
    if kind in _DECLARED:
        return _DECLARED[kind](store, name)
    if kind == ENVIRONMENT:
        environment = environment_named(store, name)
        return None if environment is None else environment.tags
    if kind == QUEUE:
        queue = queue_named(store, name)
        return None if queue is None else queue.tags
    definition = store.definition(DefinitionKey(name))
    return None if definition is None else definition.tags
