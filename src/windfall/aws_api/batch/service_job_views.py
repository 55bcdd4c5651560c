"""A service job as DescribeServiceJob and ListServiceJobs show it.

Decides members and their form from the job alone. Pure.
"""

from __future__ import annotations

from typing import Any

from windfall.aws_api.batch.arns import SERVICE_JOB, Arns
from windfall.aws_api.batch.service_environments import TRAINING_TYPE
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.service_jobs import HOLDING, ServiceAttempt, ServiceJob

RECENT_PREEMPTIONS = 10


def detail(job: ServiceJob, arns: Arns) -> dict[str, Any]:
    """What DescribeServiceJob answers; members that are None do not reach the wire."""
    preempted = [attempt for attempt in job.attempts if attempt.preempted]
    return {
        **_common_members(job, arns),
        "attempts": [
            _attempt(attempt, arns)
            for attempt in job.attempts
            if attempt.stopped_at is not None and not attempt.preempted
        ],
        "jobQueue": arns.queue(job.queue),
        "retryStrategy": _retry(job.retry),
        "schedulingPriority": job.priority,
        "serviceRequestPayload": job.payload,
        "preemptionConfiguration": None
        if job.preemptions_max is None
        else {"preemptionRetriesBeforeTermination": job.preemptions_max},
        "preemptionSummary": {
            "preemptedAttemptCount": len(preempted),
            "recentPreemptedAttempts": [
                _attempt(it, arns) for it in reversed(preempted[-RECENT_PREEMPTIONS:])
            ],
        }
        if job.quota_share is not None
        else None,
        "tags": dict(job.tags),
        "timeoutConfig": None if job.timeout_s is None else {"attemptDurationSeconds": job.timeout_s},
        "isTerminated": job.terminated,
        # AWS's model has this member always; a job that has not begun has no better time than none.
        "startedAt": job.started_at or 0,
    }


def summary(job: ServiceJob, arns: Arns) -> dict[str, Any]:
    """A ServiceJobSummary."""
    return {**_common_members(job, arns), "isTerminated": job.terminated or None}


def _common_members(job: ServiceJob, arns: Arns) -> dict[str, Any]:
    """What both have."""
    latest = job.attempts[-1] if job.attempts else None
    capacity = latest.capacity if latest is not None and job.state in HOLDING else None
    return {
        "jobArn": arns.of(SERVICE_JOB, job.id),
        "jobId": job.id,
        "jobName": job.name,
        "serviceJobType": TRAINING_TYPE,
        "status": job.state.value,
        "statusReason": job.status_reason,
        "createdAt": job.created_at,
        "scheduledAt": job.scheduled_at,
        "startedAt": job.started_at,
        "stoppedAt": job.stopped_at,
        "shareIdentifier": job.share,
        "quotaShareName": job.quota_share,
        "latestAttempt": None if latest is None else {"serviceResourceId": _resource(latest, arns)},
        "capacityUsage": None
        if capacity is None
        else [{"capacityUnit": unit, "quantity": amount} for unit, amount in capacity.items()],
    }


def _attempt(attempt: ServiceAttempt, arns: Arns) -> dict[str, Any]:
    return {
        "serviceResourceId": _resource(attempt, arns),
        "startedAt": attempt.started_at,
        "stoppedAt": attempt.stopped_at,
        "statusReason": attempt.status_reason,
    }


def _resource(attempt: ServiceAttempt, arns: Arns) -> dict[str, str]:
    return {"name": "TrainingJobArn", "value": arns.training_job(attempt.training_job)}


def _retry(strategy: RetryStrategy) -> dict[str, Any]:
    return {
        "attempts": strategy.attempts,
        "evaluateOnExit": [
            {"action": rule.action.value.upper(), "onStatusReason": rule.on_status_reason}
            for rule in strategy.rules
        ],
    }
