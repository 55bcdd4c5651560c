"""Service jobs in Windfall's own operations: counting them, finding one, and explaining why one waits.

Reads what the scheduler of service jobs reads, and turns it into sentences; decides nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from windfall.capacity.environments import ServiceEnvironment, Switch
from windfall.control.ports import ServiceJobFilter, Store
from windfall.control.queue_shares import queue_shares
from windfall.control.service_dispatch import front_of_service_queue, view_of
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.control.why import Why
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import ServiceJob, ServiceState
from windfall.scheduling.service_views import counted, needs_of

#: How many jobs a search answers with.
_FOUND_MAX = 10
#: How many of a queue's newest jobs are read; a queue has far fewer.
_NEWEST = 10_000
_WAITING = (ServiceState.SUBMITTED, ServiceState.RUNNABLE)

Reason = tuple[str, str]


def service_counts(store: Store) -> dict[QueueName, dict[str, int]]:
    """How many service jobs each queue of service jobs has in each state."""
    return {queue: dict(Counter(job.state.value for job in jobs)) for queue, jobs in _by_queue(store).items()}


def find_service_jobs(store: Store, text: str) -> list[JobId]:
    """Ids of service jobs with this name or id prefix, newest first, at most 10."""
    matching = [
        job
        for jobs in _by_queue(store).values()
        for job in jobs
        if job.name == text or job.id.startswith(text)
    ]
    return [job.id for job in sorted(matching, key=lambda job: -job.created_at)[:_FOUND_MAX]]


async def why_service_job(gateway: TenantGateway, job: ServiceJob) -> dict[str, Any]:
    """Why a service job is where it is, in the form of the answer for any job."""
    reasons: list[Reason] = []
    changes: list[str] = []
    training: Why | None = None
    attempt = job.attempts[-1] if job.attempts else None
    if job.state in _WAITING:

        def look(state: State, _: Offers, now: int) -> list[Reason]:
            return why_it_waits(state, job, now)

        reasons = await gateway.inspect(look)
    elif job.finished:
        reasons = [("finished", f"is {job.state}: {job.status_reason or 'no reason was given'}")]
    elif attempt is not None and attempt.training_id is not None:
        training = await gateway.why(attempt.training_id)
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
        "reasons": [{"code": code, "text": text} for code, text in reasons],
        "changes": changes,
        "expectedAt": training.expected_at if training is not None else None,
        "awsReason": aws_reason or (training.aws_reason if training is not None else None),
    }


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
            ("share", f"{_standing(state, job.queue, share, now)}; see `windfall shares {job.queue}`")
        )
    return reasons


def _standing(state: State, queue: QueueName, name: str, now: int) -> str:
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


def _by_queue(store: Store) -> dict[QueueName, list[ServiceJob]]:
    return {
        queue.name: store.list_service_jobs(ServiceJobFilter(queue.name), _NEWEST, None).jobs
        for queue in store.queues()
        if queue.service_environment is not None
    }
