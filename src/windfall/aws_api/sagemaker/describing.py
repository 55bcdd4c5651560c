"""DescribeTrainingJob: gathers what a view of one job needs.

Reads the job from the store, the reason why it waits from the core, and its metrics from its logs. Must not know how
any of it is shown.
"""

from __future__ import annotations

from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker.context import TrainingContext
from windfall.aws_api.sagemaker.documents import Document, read_document
from windfall.aws_api.sagemaker.timeline import WaitingReason
from windfall.aws_api.sagemaker.view import description
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import node_id
from windfall.jobs.job import Job
from windfall.jobs.states import RUNNABLE

_CAPACITY = "CAPACITY:"


async def describe_training_job(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DescribeTrainingJob."""
    job = await context.require(call.params["TrainingJobName"])
    document = read_document(job.submission.document)
    now = context.clock_ms()
    return description(
        job,
        document,
        context.arn(call, job.submission.name),
        now=now,
        spot_factor=context.settings.spot_factor,
        waiting=await _waiting(context, job),
        metrics=await context.metrics.of(await _attempts(context, job), _patterns(document), now),
    )


async def _attempts(context: TrainingContext, job: Job) -> list[Attempt]:
    """The attempts of all hosts."""
    nodes = job.submission.nodes
    if nodes is None:
        return job.attempts
    others = await context.read(
        lambda store: store.jobs([node_id(job.id, number) for number in nodes.others])
    )
    return [attempt for host_job in (job, *others) for attempt in host_job.attempts]


async def _waiting(context: TrainingContext, job: Job) -> WaitingReason | None:
    if job.state is not RUNNABLE:
        return None
    why = await context.gate.why(job.id)
    if why is None or why.state is not RUNNABLE:
        return None
    text = why.reasons[0][1] if why.reasons else None
    return WaitingReason((why.aws_reason or "").startswith(_CAPACITY), text)


def _patterns(document: Document) -> list[tuple[str, str]]:
    metrics = document.request["AlgorithmSpecification"].get("MetricDefinitions", ())
    return [(metric["Name"], metric["Regex"]) for metric in metrics]
