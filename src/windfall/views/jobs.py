"""Jobs in Windfall's own answers: attempts with what AWS has no field for, and image mappings."""

from __future__ import annotations

from windfall.jobs.attempts import Attempt
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job
from windfall.jobs.staging import Mark
from windfall.views.spelling import Answer, picked

_OF_ATTEMPT = (
    "number environment instance instance_type market usd_hour placed_at prepared_at started_at exited_at stopped_at"
    " stop_at stop_cause stop_words deadline_at exit_code reason status_reason doing alarm commit"
)
_OF_PROGRESS = "at step steps first_step_at restored_step saved_step stall_s steps_redone loss"


def attempts(job: Job) -> Answer:
    """All attempts of a job."""
    staging = job.submission.staging
    return {
        "jobId": job.id,
        "checkpointUri": staging.checkpoints.uri if staging and staging.checkpoints else None,
        "attempts": [_attempt(attempt) for attempt in job.begun_attempts],
    }


def _attempt(attempt: Attempt) -> Answer:
    progress, left = attempt.progress, attempt.left
    return {
        **picked(attempt, _OF_ATTEMPT),
        "restored": checkpoint(attempt.restored),
        "checkpoint": checkpoint(attempt.checkpoint),
        "progress": None if progress is None else picked(progress, _OF_PROGRESS),
        "leftFiles": None if left is None else picked(left, "count bytes names more"),
    }


def checkpoint(mark: Mark | None) -> Answer | None:
    """One committed checkpoint."""
    return None if mark is None else picked(mark, "name at state_at bytes step")


def image(mapping: ImageMapping) -> Answer:
    """How an image runs on this host."""
    return {
        **picked(mapping, "pattern directory"),
        "entrypoint": list(mapping.entrypoint),
        "environment": dict(mapping.environment),
    }
