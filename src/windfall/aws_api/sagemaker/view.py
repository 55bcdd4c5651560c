"""A training job as DescribeTrainingJob and ListTrainingJobs show it.

Decides statuses, times and seconds from the job alone. Pure: made from values, tested with jobs made by hand.
Must not know the store or the gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windfall.accounting.prices import billable_seconds, training_seconds
from windfall.aws_api.sagemaker.contract import model_uri
from windfall.aws_api.sagemaker.documents import Document
from windfall.aws_api.sagemaker.endings import failure_reason, final_status, has_failed
from windfall.aws_api.sagemaker.metrics import MetricValue
from windfall.aws_api.sagemaker.timeline import Transition, WaitingReason, stages
from windfall.jobs.job import Job

#: What AWS answers where a request was silent.
_DEFAULTS: dict[str, Any] = {
    "EnableNetworkIsolation": False,
    "EnableInterContainerTrafficEncryption": False,
    "EnableManagedSpotTraining": False,
    "ProfilingStatus": "Disabled",
}


def status_of(job: Job, transitions: Sequence[Transition]) -> tuple[str, str]:
    """TrainingJobStatus and SecondaryStatus."""
    if job.finished:
        return final_status(job)
    secondary = transitions[-1].status
    return ("Stopping" if secondary == "Stopping" else "InProgress"), secondary


def summary(job: Job, document: Document, arn: str) -> dict[str, Any]:
    """A TrainingJobSummary."""
    transitions = stages(job, document)
    primary, secondary = status_of(job, transitions)
    return {
        "TrainingJobName": job.submission.name,
        "TrainingJobArn": arn,
        "CreationTime": job.created_at / 1000,
        "TrainingEndTime": None if job.stopped_at is None else job.stopped_at / 1000,
        "LastModifiedTime": last_modified(job) / 1000,
        "TrainingJobStatus": primary,
        "SecondaryStatus": secondary,
        "WarmPoolStatus": warm_pool(job, document),
        "TrainingPlanArn": document.request.get("ResourceConfig", {}).get("TrainingPlanArn"),
    }


def description(
    job: Job,
    document: Document,
    arn: str,
    *,
    now: int,
    spot_factor: float,
    waiting: WaitingReason | None = None,
    metrics: Sequence[MetricValue] = (),
) -> dict[str, Any]:
    """What DescribeTrainingJob answers: the request as it was sent, and what has become of it."""
    transitions = stages(job, document, waiting)
    primary, secondary = status_of(job, transitions)
    request = document.request
    training_s, billable_s = _seconds(job, now, spot_factor)
    first = job.attempts[0] if job.attempts else None
    return {
        **_DEFAULTS,
        **request,
        # Clients read this member whether it was sent or not.
        "OutputDataConfig": {"KmsKeyId": "", **request["OutputDataConfig"]},
        "TrainingJobName": job.submission.name,
        "TrainingJobArn": arn,
        "ModelArtifacts": {"S3ModelArtifacts": model_uri(request)},
        "TrainingJobStatus": primary,
        "SecondaryStatus": secondary,
        "FailureReason": failure_reason(job) if has_failed(job) else None,
        "CreationTime": job.created_at / 1000,
        "TrainingStartTime": None if first is None else first.placed_at / 1000,
        "TrainingEndTime": None if job.stopped_at is None else job.stopped_at / 1000,
        "LastModifiedTime": last_modified(job) / 1000,
        "SecondaryStatusTransitions": [_transition(stage) for stage in transitions],
        "TrainingTimeInSeconds": training_s,
        "BillableTimeInSeconds": billable_s,
        "WarmPoolStatus": warm_pool(job, document),
        "FinalMetricDataList": [
            {"MetricName": it.name, "Value": it.value, "Timestamp": it.at / 1000} for it in metrics
        ]
        or None,
    }


def last_modified(job: Job) -> int:
    """When anything about a job was last seen to change."""
    times = [job.created_at, job.runnable_at, job.started_at, job.stopped_at]
    for attempt in job.tries:
        times += [
            attempt.placed_at,
            attempt.prepared_at,
            attempt.started_at,
            attempt.stop_at,
            attempt.exited_at,
            attempt.stopped_at,
        ]
    return max(at for at in times if at is not None)


def warm_pool(job: Job, document: Document) -> dict[str, Any] | None:
    """The warm pool that a job asked for. None is kept here, because a machine of one's own is always warm."""
    if not document.request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds"):
        return None
    if not job.finished:
        return {"Status": "InUse"}
    return {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}


def _seconds(job: Job, now: int, spot_factor: float) -> tuple[int | None, int | None]:
    """Training and billable seconds of a job that has ended or has run; never more billed than trained."""
    until = now if job.stopped_at is None else job.stopped_at
    training_s = training_seconds(job.tries, until)
    billable_s = billable_seconds(job.tries, until, spot_factor)
    if training_s is None or billable_s is None:
        return None, None
    return training_s, min(training_s, billable_s)


def _transition(stage: Transition) -> dict[str, Any]:
    return {
        "Status": stage.status,
        "StartTime": stage.since / 1000,
        "EndTime": None if stage.until is None else stage.until / 1000,
        "StatusMessage": stage.message,
    }
