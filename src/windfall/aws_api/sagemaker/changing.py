"""StopTrainingJob, DeleteTrainingJob and UpdateTrainingJob.

Decides in which status each is allowed, and which members of a job can change. Must not know how a job is
stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker.context import TrainingContext, check_may_steer
from windfall.aws_api.sagemaker.documents import read_document, write_document
from windfall.aws_api.sagemaker.rejections import in_use, invalid
from windfall.aws_api.sagemaker.timeline import stages
from windfall.aws_api.sagemaker.view import status_of
from windfall.control.events import DeleteTraining, TerminateJob, UpdateTraining
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
