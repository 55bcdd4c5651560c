"""AddTags, ListTags and DeleteTags for everything of SageMaker's that can have tags here.

Decides by the kind in the ARN whose tags are meant: those of training jobs are changing.py's. Must not know how tags
are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from windfall.aws_api.batch.tags import is_own
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import changing
from windfall.aws_api.sagemaker.changing import tag_list, tag_page, tags_of
from windfall.aws_api.sagemaker.context import TrainingContext, check_may_steer_hosted
from windfall.aws_api.sagemaker.model_declarations import KINDS, require
from windfall.aws_api.sagemaker.names import split_arn
from windfall.control.commands.hosting import HostedKind, TagHosted
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel

_TYPES: dict[str, type] = {word: kind for kind, word in KINDS.items()}


async def add_tags(context: TrainingContext, call: Call) -> dict[str, Any]:
    """AddTags; the answer is all tags of the resource."""
    kind, _ = split_arn(call.params["ResourceArn"])
    if kind not in _TYPES:
        return await changing.add_tags(context, call)
    added = tags_of(call.params["Tags"])
    hosted = await _taggable(context, call, added)
    tags = await context.execute(TagHosted(cast(HostedKind, kind), hosted.name, add=added))
    return {"Tags": tag_list(tags)}


async def delete_tags(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DeleteTags; missing keys are ignored."""
    kind, _ = split_arn(call.params["ResourceArn"])
    if kind not in _TYPES:
        return await changing.delete_tags(context, call)
    keys = tuple(call.params["TagKeys"])
    hosted = await _taggable(context, call, keys)
    await context.execute(TagHosted(cast(HostedKind, kind), hosted.name, remove=keys))
    return {}


async def list_tags(context: TrainingContext, call: Call) -> dict[str, Any]:
    """ListTags, by key."""
    kind, _ = split_arn(call.params["ResourceArn"])
    if kind not in _TYPES:
        return await changing.list_tags(context, call)
    hosted = await _taggable(context, call, ())
    return tag_page(hosted.tags, call.params)


async def _taggable(
    context: TrainingContext, call: Call, keys: Iterable[str]
) -> HostedModel | HostedConfig | HostedEndpoint:
    kind, name = split_arn(call.params["ResourceArn"])
    hosted: HostedModel | HostedConfig | HostedEndpoint = await require(context, call, _TYPES[kind], name)
    if any(map(is_own, keys)):
        check_may_steer_hosted(hosted, call)
    return hosted
