"""Why a job is where it is: a live one, as the core explains it, and a service job, from what its scheduler reads.

Turns reasons into sentences; decides nothing. views/endings.py explains jobs that have finished.
"""

from __future__ import annotations

from collections import Counter

from windfall.capacity.environments import ServiceEnvironment, Switch
from windfall.control.queue_shares import queue_shares
from windfall.control.service_dispatch import front_of_service_queue, view_of
from windfall.control.state import State
from windfall.control.why import Why
from windfall.jobs.ids import QueueName
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob, ServiceState
from windfall.scheduling.service_views import counted, needs_of
from windfall.views.spelling import Answer, picked

_WAITING = (ServiceState.SUBMITTED, ServiceState.RUNNABLE)

Reason = tuple[str, str]


def about(job: Job, job_id: str) -> Answer:
    """What every answer about a job begins with; `job_id` may be that of a child without a record."""
    return {
        "jobId": job_id,
        "jobName": job.submission.name,
        "jobDefinition": job.submission.definition,
        "changes": [],
        "expectedAt": None,
        "awsReason": None,
    }


def why_live(live: Why) -> Answer:
    """Why a live job is where it is."""
    return {"reasons": _reasons(live.reasons), **picked(live, "state changes expected_at aws_reason")}


def waits(job: ServiceJob) -> bool:
    """Whether only the state knows why a service job is where it is: ask `why_it_waits`."""
    return job.state in _WAITING


def why_service_job(job: ServiceJob, waiting: list[Reason], training: Why | None) -> Answer:
    """Why a service job is where it is, in the form of the answer for any job.

    `waiting` is what `why_it_waits` found, and `training` what is known of its live training job.
    """
    reasons, changes = list(waiting), []
    attempt = job.attempts[-1] if job.attempts else None
    if job.finished:
        reasons = [("finished", f"is {job.state}: {job.status_reason or 'no reason was given'}")]
    if attempt is not None and attempt.training_id is not None:
        which = "training job" if attempt.stopped_at is None else "last training job"
        reasons.append(("training", f"its {which} is {attempt.training_id}"))
        if job.state is ServiceState.FAILED:
            changes.append(f"see how it ended: windfall why {attempt.training_id}")
    if training is not None:
        reasons += training.reasons
        changes += training.changes
    aws_reason = None if job.finished else job.status_reason
    return {
        "jobId": job.id,
        "jobName": job.name,
        "state": job.state,
        "reasons": _reasons(reasons),
        "changes": changes,
        "expectedAt": None if training is None else training.expected_at,
        "awsReason": aws_reason or (None if training is None else training.aws_reason),
    }


def _reasons(reasons: list[Reason]) -> list[Answer]:
    return [{"code": code, "text": text} for code, text in reasons]


def why_it_waits(state: State, job: ServiceJob, now: int) -> list[Reason]:
    """What a waiting service job asks for, how much is available, and how many jobs are before it."""
    queue = state.queues.get(job.queue)
    environment = state.service_environments.get((queue and queue.service_environment) or "")
    if queue is None or environment is None:
        return [("queue", f"its queue {job.queue} has no service environment")]
    reasons: list[Reason] = []
    if environment.switch is Switch.DISABLED:
        enable = (
            f"aws batch update-service-environment --service-environment {environment.name} --state ENABLED"
        )
        reasons.append(("disabled", f"service environment {environment.name} is DISABLED; {enable}"))
    reasons += _needs(state, environment, job, now)
    front = [job_id for job_id, _ in front_of_service_queue(state, job.queue, now)]
    before = front.index(job.id) if job.id in front else 0
    if before:
        reasons.append(
            ("turn", f"{before} service job{'' if before == 1 else 's'} of queue {job.queue} before it")
        )
    if share := job.quota_share or job.share:
        reasons.append(
            ("share", f"{_share_text(state, job.queue, share, now)}; see `windfall shares {job.queue}`")
        )
    return reasons


def _share_text(state: State, queue: QueueName, name: str, now: int) -> str:
    standings = queue_shares(state, queue, now)
    share = next(
        (candidate for candidate in (standings.shares if standings else ()) if candidate.name == name), None
    )
    if share is None or not share.limits:
        return f"it is of share {name}"
    numbers = [f"{share.used.get(unit, 0):g} of {limit:g} {unit}" for unit, limit in share.limits.items()]
    return f"its quota share {name} holds {', '.join(numbers)}"


def _needs(state: State, environment: ServiceEnvironment, job: ServiceJob, now: int) -> list[Reason]:
    view = view_of(state, environment, now)
    in_use: Counter[str] = Counter()
    for holder in (held_by for queue in view.queues for held_by in queue.holding):
        in_use.update({unit: int(amount) for unit, amount in counted(holder.needs, view.limits).items()})
    have = f"service environment {environment.name} has"
    return [
        (
            "capacity",
            f"asks for {amount:g} {unit}; {have} {view.limits.get(unit, 0):g}, {in_use[unit]} in use",
        )
        for unit, amount in counted(needs_of(job.instances), view.limits).items()
    ]
