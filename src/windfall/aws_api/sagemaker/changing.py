"""StopTrainingJob, DeleteTrainingJob, UpdateTrainingJob, and the tags of training jobs.

Decides in which status each is allowed, which members of a job can change, how SageMaker's lists of tags become the
core's, and which tag is Windfall's own. Must not know how a job is stopped, nor how tags are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from windfall.aws_api.batch.paging import position_in, token_of
from windfall.aws_api.batch.tags import is_own, why_unknown
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import names
from windfall.aws_api.sagemaker.context import TrainingContext, check_may_steer
from windfall.aws_api.sagemaker.documents import read_document, write_document
from windfall.aws_api.sagemaker.rejections import in_use, invalid, shown
from windfall.aws_api.sagemaker.timeline import stages
from windfall.aws_api.sagemaker.view import status_of
from windfall.control.events import DeleteTraining, TagResource, TerminateJob, UpdateTraining
from windfall.jobs.job import Job

STOPPED = "Stopped by StopTrainingJob"
_UPDATABLE = ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig")


async def stop_training_job(context: TrainingContext, call: Call) -> dict[str, Any]:
    """StopTrainingJob; one that is stopping already is left to it."""
    job = await context.require(call.params["TrainingJobName"])
    if job.finished:
        raise _rejected(job)
    await context.execute(TerminateJob(job.id, STOPPED))
    return {}


async def delete_training_job(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DeleteTrainingJob: its record and its logs go, and its name is free; what it wrote to S3 stays."""
    async with context.changing:
        job = await context.require(call.params["TrainingJobName"])
        if not job.finished:
            raise in_use(
                f"The training job {job.submission.name} is in status {_status(job)}; "
                "stop it and wait until it has stopped, then delete it"
            )
        await context.execute(DeleteTraining(job.id))
    return {}


async def update_training_job(context: TrainingContext, call: Call) -> dict[str, Any]:
    """UpdateTrainingJob: profiling and debugging of a job that runs, and how long its instances would be kept."""
    params = call.params
    async with context.changing:
        job = await context.require(params["TrainingJobName"])
        check_may_steer(job, call)
        document = read_document(job.submission.document)
        if job.finished:
            raise _rejected(job)
        secondary = status_of(job, stages(job, document))[1]
        if "RemoteDebugConfig" in params and secondary not in ("Downloading", "Training"):
            raise invalid(
                "RemoteDebugConfig can only be changed while the secondary status is Downloading or Training, "
                f"and it is {secondary}"
            )
        request = {**document.request, **{name: params[name] for name in _UPDATABLE if name in params}}
        if "ResourceConfig" in params:
            request["ResourceConfig"] = {**document.request["ResourceConfig"], **params["ResourceConfig"]}
        await context.execute(UpdateTraining(job.id, write_document(replace(document, request=request))))
    return {"TrainingJobArn": context.arn(call, job.submission.name)}


def _status(job: Job) -> str:
    return status_of(job, stages(job, read_document(job.submission.document)))[0]


def _rejected(job: Job) -> Exception:
    return invalid(f"The request was rejected because the training job is in status {_status(job)}.")


PAGE_MAX = 50
JOB = "job"


async def add_tags(context: TrainingContext, call: Call) -> dict[str, Any]:
    """AddTags; the answer is all tags of the resource."""
    added = tags_of(call.params["Tags"])
    job = await _taggable(context, call, added)
    await context.execute(TagResource(JOB, job.id, add=added))
    return {"Tags": tag_list({**job.submission.tags, **added})}


async def delete_tags(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DeleteTags; missing keys are ignored."""
    job = await _taggable(context, call, call.params["TagKeys"])
    await context.execute(TagResource(JOB, job.id, remove=tuple(call.params["TagKeys"])))
    return {}


async def list_tags(context: TrainingContext, call: Call) -> dict[str, Any]:
    """ListTags, by key."""
    job = await context.require(names.name_in_arn(call.params["ResourceArn"]))
    return tag_page(job.submission.tags, call.params)


def tag_page(all_tags: Mapping[str, str], params: Mapping[str, Any]) -> dict[str, Any]:
    """One page of tags."""
    tags = tag_list(all_tags)
    if token := params.get("NextToken"):
        last = _position(token)
        tags = [tag for tag in tags if tag["Key"] > last]
    size = params.get("MaxResults", PAGE_MAX)
    more = len(tags) > size
    return {"Tags": tags[:size], "NextToken": token_of(tags[size - 1]["Key"]) if more else None}


async def _taggable(context: TrainingContext, call: Call, keys: Iterable[str]) -> Job:
    job = await context.require(names.name_in_arn(call.params["ResourceArn"]))
    if any(map(is_own, keys)):
        check_may_steer(job, call)
    if job.finished:
        raise invalid(
            f"The training job {job.submission.name} has ended, and the tags of ended jobs cannot be changed here"
        )
    return job


def tags_of(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """A list of tags as the core keeps them; of a key that is given twice the last value counts."""
    values = {}
    for tag in tags:
        if tag["Key"].lower().startswith("aws:"):
            raise invalid(f"Tag key {shown(tag['Key'])!r} begins with aws:, which is reserved")
        if (problem := why_unknown(tag["Key"])) is not None:
            raise invalid(problem)
        values[tag["Key"]] = tag["Value"]
    return values


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as SageMaker lists them, by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def _position(token: str) -> str:
    try:
        return position_in(token)
    except ApiError:
        raise invalid_token() from None


def invalid_token() -> ApiError:
    """The refusal of a NextToken that we did not give."""
    return invalid("NextToken is not valid; send the one of the previous answer unchanged")
