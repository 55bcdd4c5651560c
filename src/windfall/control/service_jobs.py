"""Service jobs: accepted, changed, terminated, and what becomes of them when their training job moves or ends.

A service job follows its training job: `follow` looks, once a round, at every training job that the round has changed.
Who is dispatched is service_dispatch.py's. Must not know how a training job is made from a payload.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.capacity.environments import JobQueue, Switch
from windfall.control.aws_texts import AwsTexts
from windfall.control.commands.service_jobs import (
    SubmitServiceJob,
    TerminateServiceJob,
    TrainingRefused,
    UpdateServiceJob,
)
from windfall.control.events import TerminateJob
from windfall.control.outbox import EventKind
from windfall.control.ownership import live_service_job
from windfall.control.quota_shares import check_quota_share, has_quotas
from windfall.control.round import Round
from windfall.control.service_use import service_ended, service_joined, service_left
from windfall.control.share_use import check_share
from windfall.control.state import State
from windfall.control.state_changes import emit_service_job
from windfall.control.stopping import on_terminate_job
from windfall.control.training_ends import lacked_capacity
from windfall.jobs.aws_texts import TIMED_OUT
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.job import Job
from windfall.jobs.retry import Action, decide
from windfall.jobs.service_jobs import HOLDING, ServiceAttempt, ServiceJob, ServiceState
from windfall.jobs.states import RUNNING, STARTING, SUCCEEDED

_PREEMPTING = "PREEMPTION_IN_PROGRESS: "
_STAGES = {STARTING: ServiceState.STARTING, RUNNING: ServiceState.RUNNING}


def on_submit_service_job(state: State, command: SubmitServiceJob, round_: Round) -> ServiceJob:
    """Accept a service job, or refuse it with nothing changed."""
    job = command.job
    queue = state.queues.get(job.queue)
    if queue is None:
        raise NotFound(f"Job queue {job.queue} does not exist")
    if queue.service_environment is None:
        raise Invalid(
            f"JobQueue {queue.name} has compute environments and takes no service jobs; submit to a queue of type"
            " SAGEMAKER_TRAINING"
        )
    if queue.switch is Switch.DISABLED:
        raise Invalid(
            f"JobQueue {queue.name} is DISABLED and takes no new jobs; enable it with update-job-queue"
        )
    if job.id in state.service_jobs:
        raise Conflict(f"A service job with this clientToken exists: {job.id}")
    _check_share(state, queue, job, round_.now)
    last = next(reversed(state.service_jobs.values()), None)
    job.order = 1 if last is None else last.order + 1
    job.created_at = job.runnable_at = round_.now
    state.service_jobs[job.id] = job
    service_joined(state, job, round_.now)
    _come_to(state, job, ServiceState.RUNNABLE, round_)
    return job


def on_update_service_job(state: State, command: UpdateServiceJob, round_: Round) -> ServiceJob:
    """Change the priority of a live job; one that waits has its turn by it from now on."""
    job = live_service_job(state, command.job_id, round_)
    if job is None:
        raise NotFound(f"Service job {command.job_id} does not exist, or has finished")
    job.priority = command.priority
    round_.changes.service_jobs[job.id] = job
    state.services_unsettled = True
    return job


def on_terminate_service_job(state: State, command: TerminateServiceJob, round_: Round) -> bool:
    """End a job, and its training job with it; the reply is whether it was live."""
    job = live_service_job(state, command.job_id, round_)
    if job is None:
        return False
    if not job.terminated:
        job.terminated, job.stop_reason = True, command.reason
        round_.changes.service_jobs[job.id] = job
        stop_training(state, job, command.reason, round_)
    return True


def terminate_all(
    state: State, queue: QueueName, reason: str, round_: Round, quota_share: str | None = None
) -> None:
    """End all jobs of a queue, or of a quota share, that goes away."""
    left = [job for job in state.service_jobs.values() if job.queue == queue]
    for job in left if quota_share is None else [it for it in left if it.quota_share == quota_share]:
        on_terminate_service_job(state, TerminateServiceJob(job.id, reason), round_)


def on_training_refused(state: State, command: TrainingRefused, round_: Round) -> None:
    """A payload that makes no training job ends the attempt, and is tried again if the retry strategy says so."""
    job = state.service_jobs.get(command.job_id)
    attempt = None if job is None else job.attempt
    if job is None or attempt is None or attempt.training_job != command.training_job:
        return
    if attempt.training_id is None:
        attempt.status_reason = state.rules.aws_texts.training_refused(command.reason)
        _attempt_ended(state, job, attempt, round_)


def awaited_attempt(state: State, job_id: JobId, training_job: str) -> ServiceAttempt:
    """The attempt that a training job is to be; raise if nobody waits for it any more."""
    job = state.service_jobs.get(job_id)
    attempt = None if job is None else job.attempt
    if attempt is None or attempt.training_job != training_job:
        raise Conflict(f"Service job {job_id} does not wait for training job {training_job}")
    return attempt


def adopt_training(state: State, training: Job, round_: Round) -> None:
    """Note that the training job of an attempt has been created."""
    job_id = training.submission.service_job
    if job_id is not None:
        awaited_attempt(state, job_id, training.submission.name).training_id = training.id
        round_.changes.service_jobs[job_id] = state.service_jobs[job_id]


def follow(state: State, round_: Round) -> None:
    """Let service jobs come to where the training jobs are that this round has changed."""
    if not state.service_jobs:
        return
    changed = [
        training
        for training in round_.changes.jobs.values()
        if training.submission.service_job is not None and training.parent is None
    ]
    for training in changed:
        job = state.service_jobs.get(training.submission.service_job or JobId(""))
        attempt = None if job is None else job.attempt
        if job is None or attempt is None or attempt.training_id != training.id:
            continue
        if training.finished:
            _training_ended(state, job, attempt, training, round_)
        else:
            _training_moved(state, job, attempt, training, round_)


def stop_training(state: State, job: ServiceJob, reason: str, round_: Round) -> None:
    """End what a job has; one without a training job ends at once, others when theirs has stopped."""
    attempt = job.attempt
    if attempt is None:
        _finish(state, job, ServiceState.FAILED, job.stop_reason or reason, round_)
    elif attempt.training_id is None:
        # It is about to be created; `awaited_attempt` will refuse it.
        _attempt_ended(state, job, attempt, round_)
    else:
        on_terminate_job(state, TerminateJob(attempt.training_id, reason), round_)


def preempt(state: State, job: ServiceJob, for_job: JobId, words: str, round_: Round) -> None:
    """Ask a job to leave its instances to another one; it waits again when its training job has saved and stopped."""
    attempt = job.attempt
    if attempt is None or attempt.leaves_for is not None:
        return
    attempt.leaves_for, attempt.leaves_because = for_job, words
    job.status_reason = f"{_PREEMPTING}{words}"
    round_.changes.service_jobs[job.id] = job
    emit_service_job(state, job, round_, EventKind.PREEMPTION_STARTED)
    if state.service_jobs[for_job].submitter.tenant == job.submitter.tenant:
        words += f" (service job {for_job})"
    stop_training(state, job, words, round_)


def end_overdue_attempts(state: State, round_: Round) -> None:
    """Stop the training jobs of attempts that have run for longer than their jobs allow."""
    for job in list(state.service_jobs.values()):
        due = timeout_at(job)
        if due is not None and due <= round_.now:
            job.terminated, job.stop_reason = True, TIMED_OUT
            round_.changes.service_jobs[job.id] = job
            stop_training(state, job, TIMED_OUT, round_)


def timeout_at(job: ServiceJob) -> int | None:
    """When the attempt of a job has run for as long as it may; None when it has no such limit, or is ending."""
    attempt = job.attempt
    if job.timeout_s is None or job.terminated or attempt is None or attempt.started_at is None:
        return None
    return attempt.started_at + job.timeout_s * 1000


def _training_moved(
    state: State, job: ServiceJob, attempt: ServiceAttempt, training: Job, round_: Round
) -> None:
    stage = _STAGES.get(training.state, ServiceState.SCHEDULED)
    if stage is ServiceState.RUNNING and attempt.started_at is None:
        attempt.started_at = training.started_at
        job.started_at = job.started_at or training.started_at
    if stage is not ServiceState.SCHEDULED and job.blocked_at is not None:
        # It has its machine: what it said about capacity is over.
        job.blocked_at = job.status_reason = None
    if stage is not job.state:
        _come_to(state, job, stage, round_)


def _training_ended(
    state: State, job: ServiceJob, attempt: ServiceAttempt, training: Job, round_: Round
) -> None:
    if attempt.started_at is None and training.started_at is not None:
        attempt.started_at = job.started_at = training.started_at
    attempt.status_reason = state.rules.aws_texts.training_ended(training)
    if training.state is SUCCEEDED:
        service_ended(state, job, round_.now)
        attempt.stopped_at = round_.now
        _finish(state, job, ServiceState.SUCCEEDED, attempt.status_reason, round_)
        return
    attempt.no_capacity = not job.terminated and attempt.leaves_for is None and lacked_capacity(training)
    _attempt_ended(state, job, attempt, round_)


def _attempt_ended(state: State, job: ServiceJob, attempt: ServiceAttempt, round_: Round) -> None:
    """An attempt came to nothing: the job fails, or waits again."""
    service_ended(state, job, round_.now)
    attempt.stopped_at = round_.now
    if attempt.leaves_for is not None and not job.terminated:
        attempt.preempted, attempt.status_reason = True, attempt.leaves_because
        emit_service_job(state, job, round_, EventKind.PREEMPTION_COMPLETED)
    attempt.leaves_for = None
    if not attempt.no_capacity:
        job.blocked_at = None
    if job.terminated:
        attempt.status_reason = attempt.status_reason or job.stop_reason
        _finish(state, job, ServiceState.FAILED, job.stop_reason, round_)
    elif _goes_on(job, attempt, state.rules.aws_texts):
        if attempt.no_capacity:
            _keep_newest(job, round_)
        job.status_reason = attempt.status_reason
        job.runnable_at = round_.now
        _come_to(state, job, ServiceState.RUNNABLE, round_)
    else:
        _finish(state, job, ServiceState.FAILED, attempt.status_reason, round_)


def _goes_on(job: ServiceJob, attempt: ServiceAttempt, aws_texts: AwsTexts) -> bool:
    if attempt.no_capacity:
        return True
    if attempt.preempted:
        preempted = sum(tried.preempted for tried in job.attempts)
        return job.preemptions_max is None or preempted <= job.preemptions_max
    charged = sum(tried.is_charged for tried in job.attempts)

    def comparable(text: str | None) -> str | None:
        return None if text is None else aws_texts.comparable(text)

    rules = tuple(
        replace(rule, on_status_reason=comparable(rule.on_status_reason)) for rule in job.retry.rules
    )
    strategy = replace(job.retry, rules=rules)
    return decide(strategy, charged, comparable(attempt.status_reason), None, None) is Action.RETRY


def _keep_newest(job: ServiceJob, round_: Round) -> None:
    """Of tries in a row that had no capacity only the last is kept, as on AWS: they may be many."""
    while len(job.attempts) > 1 and job.attempts[-2].no_capacity:
        gone = job.attempts.pop(-2)
        if gone.training_id is not None:
            round_.changes.removed_jobs.add(gone.training_id)


def _come_to(state: State, job: ServiceJob, new: ServiceState, round_: Round) -> None:
    job.move(new)
    round_.changes.service_jobs[job.id] = job
    state.services_unsettled = state.services_unsettled or new not in HOLDING
    emit_service_job(state, job, round_)


def _finish(state: State, job: ServiceJob, new: ServiceState, reason: str | None, round_: Round) -> None:
    job.status_reason, job.stopped_at, job.blocked_at = reason, round_.now, None
    del state.service_jobs[job.id]
    service_left(state, job, round_)
    _come_to(state, job, new, round_)


def _check_share(state: State, queue: JobQueue, job: ServiceJob, now: int) -> None:
    if has_quotas(state, queue):
        if job.share is not None:
            raise Invalid("shareIdentifier is for fair-share queues; name the quota share in quotaShareName")
        if job.quota_share is None:
            raise Invalid("quotaShareName must be specified.")
        check_quota_share(state, queue, job.quota_share)
        return
    if job.quota_share is not None or job.preemptions_max is not None:
        raise Invalid(
            "quotaShareName and preemptionConfiguration can only be used with a job queue with a quota share"
            " scheduling policy."
        )
    check_share(state, queue.name, job.share, None, now)
