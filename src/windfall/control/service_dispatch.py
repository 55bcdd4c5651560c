"""Dispatches service jobs: shows the scheduler each service environment, and carries out what it decides.

Dispatched is what gets a training job; the daemon creates that after the commit, and again after a restart if it may
not have been. Also says why jobs that can never start cannot, and ends those whose queue limits that.
"""

from __future__ import annotations

from windfall.capacity.environments import JobQueue, ServiceEnvironment, Switch
from windfall.control.commands.service_jobs import TerminateServiceJob
from windfall.control.instructions import CreateTraining
from windfall.control.outbox import EventKind
from windfall.control.round import Round
from windfall.control.service_jobs import end_overdue_attempts, follow, on_terminate_service_job, preempt
from windfall.control.service_use import service_placed, service_shares
from windfall.control.snapshots import loss_of
from windfall.control.state import State
from windfall.control.state_changes import emit_service_job
from windfall.control.state_limits import SETTLING_MS, reason_code
from windfall.jobs.aws_texts import MAX_RESOURCE, SERVICE_STATE_TIME_LIMIT, AwsQuotaReason, AwsReason
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import HOLDING, ServiceAttempt, ServiceJob, ServiceState
from windfall.scheduling.service_queue import front_of, plan_services
from windfall.scheduling.service_views import (
    HoldingService,
    ServiceQueueView,
    ServiceView,
    WaitingService,
    counted,
    needs_of,
)

#: The reasons that AWS lets a queue of service jobs act upon.
SERVICE_REASONS = (
    reason_code(AwsReason.NO_CAPACITY),
    reason_code(MAX_RESOURCE),
    reason_code(AwsQuotaReason.LIMITS),
)
#: Fair shares have their turns by averages, which change while nothing happens; nobody needs to know sooner.
LOOK_EVERY_MS = 5_000
#: Who leaves at once makes room at once; what is not settled by then is in the next round.
PASSES_MAX = 5


def serve_services(state: State, round_: Round) -> None:
    """Bring service jobs to where their training jobs are, then dispatch and preempt what the scheduler says."""
    follow(state, round_)
    for _ in range(PASSES_MAX):
        if not state.services_unsettled:
            return
        state.services_unsettled, state.services_planned_at = False, round_.now
        for environment in list(state.service_environments.values()):
            _serve(state, environment, round_)
        # Those who were asked to leave before they had a place have left already.
        follow(state, round_)


def _serve(state: State, environment: ServiceEnvironment, round_: Round) -> None:
    view = view_of(state, environment, round_.now)
    if not any(queue.waiting for queue in view.queues):
        return
    plan = plan_services(view)
    _say_why(state, view, plan.never, round_)
    if environment.switch is Switch.DISABLED:
        return
    for job_id in plan.dispatch:
        _dispatch(state, state.service_jobs[job_id], environment, view, round_)
    for preemption in plan.preempt:
        preemptor = state.service_jobs[preemption.for_job]
        preemptor.promised = True
        round_.changes.service_jobs[preemptor.id] = preemptor
        preempt(state, state.service_jobs[preemption.victim], preemptor.id, preemption.cause, round_)


def creations_after_restart(state: State) -> list[CreateTraining]:
    """The training jobs that were decided before a restart and have not been created."""
    return [
        _creation(job, attempt)
        for job in state.service_jobs.values()
        if (attempt := job.attempt) is not None and attempt.training_id is None
    ]


def view_of(state: State, environment: ServiceEnvironment, now: int) -> ServiceView:
    """An environment as the scheduler sees it."""
    queues = [it for it in state.queues.values() if it.service_environment == environment.name]
    jobs: dict[QueueName, list[ServiceJob]] = {queue.name: [] for queue in queues}
    orphans = []
    for job in state.service_jobs.values():
        if job.queue in jobs:
            jobs[job.queue].append(job)
        elif (attempt := job.attempt) is not None and attempt.environment == environment.name:
            orphans.append(_holding(state, job, now))
    limits = {unit: float(amount) for unit, amount in environment.limits}
    total = sum(limits.values())
    views = [_queue_view(state, queue, jobs[queue.name], total, now) for queue in queues]
    if orphans:
        # The trainings of a queue that was deleted take their place until they have stopped.
        views.append(ServiceQueueView(QueueName(""), [], orphans))
    return ServiceView(limits, views)


def front_of_service_queue(state: State, name: QueueName, now: int) -> list[tuple[JobId, int]]:
    """The waiting jobs of a queue in the order of their turns, each with the time since it waits."""
    queue = state.queues.get(name)
    environment = state.service_environments.get(
        (queue.service_environment if queue is not None else None) or ""
    )
    if environment is None:
        return []
    view = view_of(state, environment, now)
    turns = next(front_of(queue) for queue in view.queues if queue.name == name)
    jobs = [state.service_jobs[turn.id] for turn in turns]
    return [(job.id, job.runnable_at or job.created_at) for job in jobs]


def watch_services(state: State, round_: Round) -> None:
    """Note which jobs wait for capacity, and end those that have carried a reason for too long."""
    if not state.service_jobs:
        return
    if round_.now - state.services_planned_at >= LOOK_EVERY_MS:
        # What shares have used grows old by itself.
        state.services_unsettled = True
    state.services_watched_at = state.services_watched_at or round_.now
    settled = round_.now - state.services_watched_at >= SETTLING_MS
    end_overdue_attempts(state, round_)
    for job in list(state.service_jobs.values()):
        if job.state is ServiceState.SCHEDULED and (attempt := job.attempt) is not None:
            _note_capacity(state, job, attempt, round_)
        due = _limit_at(state, job)
        if due is None or due > round_.now:
            continue
        # Only of capacity that it may not see yet a daemon that has just started cannot be sure.
        if settled or reason_code(job.status_reason) != SERVICE_REASONS[0]:
            words = f"{SERVICE_STATE_TIME_LIMIT}: {reason_code(job.status_reason)}"
            on_terminate_service_job(state, TerminateServiceJob(job.id, words), round_)


def _queue_view(
    state: State, queue: JobQueue, jobs: list[ServiceJob], total: float, now: int
) -> ServiceQueueView:
    policy = state.policies.get(queue.policy or "")
    is_quota = policy is not None and policy.is_quota
    return ServiceQueueView(
        queue.name,
        [
            WaitingService(
                job.id, job.order, needs_of(job.instances), job.priority, _share(job), job.promised
            )
            for job in jobs
            if job.state is ServiceState.RUNNABLE
        ],
        [_holding(state, job, now) for job in jobs if job.state in HOLDING],
        queue.priority,
        service_shares(state, queue, total, now),
        [it for it in state.quota_shares.values() if it.queue == queue.name] if is_quota else None,
    )


def _holding(state: State, job: ServiceJob, now: int) -> HoldingService:
    return HoldingService(
        job.id,
        needs_of(job.instances),
        job.priority,
        _share(job),
        _loss(state, job, now),
        leaving=job.terminated or (job.attempt is not None and job.attempt.leaves_for is not None),
    )


def _share(job: ServiceJob) -> str:
    return job.quota_share or job.share or ""


def _loss(state: State, job: ServiceJob, now: int) -> float:
    """What stopping a job's training costs: the seconds since its last checkpoint and of a restart, times its GPUs."""
    attempt = job.attempt
    training = None if attempt is None else state.jobs.get(attempt.training_id or JobId(""))
    instances = sum(job.instances.values())
    place = None if training is None else training.attempt
    if training is None or place is None or place.started_at is None:
        return 0.0
    return loss_of(place, training.submission.resources, state.rules.restart_s, now) * instances


def _dispatch(
    state: State, job: ServiceJob, environment: ServiceEnvironment, view: ServiceView, round_: Round
) -> None:
    service_placed(state, job, round_.now)
    job.trainings, job.promised = job.trainings + 1, False
    name = job.training_name(job.trainings)
    capacity = counted(needs_of(job.instances), view.limits)
    attempt = ServiceAttempt(name, capacity=capacity, environment=environment.name, scheduled_at=round_.now)
    job.attempts.append(attempt)
    job.move(ServiceState.SCHEDULED)
    job.scheduled_at, job.status_reason = round_.now, None
    round_.changes.service_jobs[job.id] = job
    emit_service_job(state, job, round_)
    round_.instructions.append(_creation(job, attempt))


def _creation(job: ServiceJob, attempt: ServiceAttempt) -> CreateTraining:
    return CreateTraining(job.id, attempt.training_job, job.payload, job.region, job.submitter)


def _say_why(state: State, view: ServiceView, never: dict[JobId, str], round_: Round) -> None:
    """Give jobs that can never start AWS's reason, and take it from those that can again."""
    for queue in view.queues:
        for turn in queue.waiting:
            job, reason = state.service_jobs[turn.id], never.get(turn.id)
            if reason is not None and _carry(job, reason, round_):
                emit_service_job(state, job, round_, EventKind.SERVICE_QUEUE_BLOCKED)
            elif reason is None and reason_code(job.status_reason) in SERVICE_REASONS[1:]:
                _carry(job, None, round_)


def _note_capacity(state: State, job: ServiceJob, attempt: ServiceAttempt, round_: Round) -> None:
    """Have a job say that its training job lacks capacity, as long as that heads its own queue and does."""
    training = state.jobs.get(attempt.training_id or JobId(""))
    reason = None if training is None else training.status_reason
    if reason_code(reason) == SERVICE_REASONS[0]:
        if _carry(job, reason, round_):
            emit_service_job(state, job, round_, EventKind.SERVICE_QUEUE_BLOCKED)
    elif reason_code(job.status_reason) == SERVICE_REASONS[0]:
        _carry(job, None, round_)


def _carry(job: ServiceJob, reason: str | None, round_: Round) -> bool:
    """Have a job say a reason, or none; the answer is whether it said another one before."""
    if job.status_reason == reason:
        return False
    if reason is None:
        job.blocked_at = None
    elif job.blocked_at is None or reason_code(job.status_reason) in SERVICE_REASONS:
        # The time goes on over training jobs in a row that had no capacity: they carry other words meanwhile.
        job.blocked_at = round_.now
    job.status_reason = reason
    round_.changes.service_jobs[job.id] = job
    return True


def _limit_at(state: State, job: ServiceJob) -> int | None:
    """When a job is to be terminated, if its queue has a limit for the reason that it carries."""
    queue = state.queues.get(job.queue)
    if queue is None or job.blocked_at is None or job.terminated:
        return None
    code = reason_code(job.status_reason)
    limits_s = [limit.max_time_s for limit in queue.time_limits if limit.reason == code]
    return job.blocked_at + min(limits_s) * 1000 if limits_s else None
