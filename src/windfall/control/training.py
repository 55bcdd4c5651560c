"""Training jobs: one job of a queue that is made for it, with limits of its own and code that it brings along.

They live as Batch jobs do; what differs is who made the queue, what is retried, and that their records can be removed.
Must not know SageMaker's words: the wire reads states, attempts and reasons.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.control.events import DeleteTraining, SubmitTraining, UpdateTraining
from windfall.control.gang_requests import check_gpu_parts, most_gpus
from windfall.control.gpu_requests import check_gpu_wish
from windfall.control.job_options import (
    budget_of,
    gpu_wish_of,
    larger_gpu_on_oom,
    log_limit_of,
    partition_of,
    pull_of,
    runtime_of,
    stays_on_sick_gpu,
)
from windfall.control.job_users import check_user, claim_user
from windfall.control.lifecycle import make_runnable
from windfall.control.limits import check_budget, watch
from windfall.control.own_queues import own_queue
from windfall.control.ownership import live_job
from windfall.control.round import Round
from windfall.control.service_jobs import adopt_training, awaited_attempt
from windfall.control.state import State
from windfall.control.state_changes import emit_moves, tell_of
from windfall.control.storage_rules import check_staging
from windfall.jobs.aws_texts import CANNOT_CREATE, CANNOT_INITIALIZE, CANNOT_PULL, EXITED
from windfall.jobs.errors import Conflict, NotFound
from windfall.jobs.ids import DefinitionKey
from windfall.jobs.job import Job, JobKind, Submission
from windfall.jobs.retry import Action, ExitRule, RetryStrategy
from windfall.jobs.staging import Staging
from windfall.jobs.states import SUBMITTED

#: A process that ran and failed, an image that nobody can run, or a secret that is not there is the job's own fault:
#: trying again does not help.
OWN_FAULTS = (
    ExitRule(Action.EXIT, on_status_reason=EXITED),
    ExitRule(Action.EXIT, on_reason=f"{CANNOT_PULL}*"),
    ExitRule(Action.EXIT, on_reason=f"{CANNOT_CREATE}*"),
    ExitRule(Action.EXIT, on_reason=f"{CANNOT_INITIALIZE}*"),
)


def on_submit_training(state: State, command: SubmitTraining, round_: Round) -> Job:
    """Accept a training job, with its environment and queue if they are missing, or refuse it with nothing changed."""
    if command.job_id in state.jobs or command.job_id in state.finished:
        raise Conflict(
            f"Training job {command.name} exists; choose another name, or delete it when it has ended"
        )
    budget_usd = budget_of(command.tags)
    gpu_wish, larger = gpu_wish_of(command.tags), larger_gpu_on_oom(command.tags)
    resources = command.container.resources
    if command.nodes is not None:
        check_gpu_parts(gpu_wish)
        resources = most_gpus(command.nodes)
    check_gpu_wish(state, (command.environment.name,), resources, gpu_wish)
    check_budget(state, (command.environment.engine,), resources, budget_usd)
    for staging in _stagings(command):
        check_staging(state, command.submitter, staging)
    if command.service_job is not None:
        awaited_attempt(state, command.service_job, command.name)
    runtime, pull = runtime_of(command.tags), pull_of(command.tags)
    check_user(state, command.submitter, (command.container.image,), runtime)
    queue = own_queue(state, command.environment, "training jobs", round_)
    submission = Submission(
        command.name,
        queue,
        DefinitionKey(""),
        command.container.resources,
        RetryStrategy(command.attempts, OWN_FAULTS),
        tags=command.tags,
        submitter=command.submitter,
        document=command.document,
        kind=JobKind.TRAINING,
        container=command.container,
        staging=command.staging,
        free_interruptions=True,
        instance_type=command.instance_type,
        limits=command.limits,
        budget_usd=budget_usd,
        gpu_wish=gpu_wish,
        larger_gpu_on_oom=larger,
        runtime=runtime,
        stays_on_sick_gpu=stays_on_sick_gpu(command.tags),
        partition=partition_of(command.tags),
        pull=pull,
        service_job=command.service_job,
        nodes=command.nodes,
        log_limit_bytes=log_limit_of(command.tags),
    )
    claim_user(state, command.submitter, round_)
    job = Job(command.job_id, submission, SUBMITTED, round_.now)
    tell_of(state, job)
    state.jobs[job.id] = round_.changes.jobs[job.id] = job
    make_runnable(state, job, round_)
    watch(state, job)
    adopt_training(state, job, round_)
    return job


def on_update_training(state: State, command: UpdateTraining, round_: Round) -> Job:
    """Replace the kept request of a live training job."""
    job = live_job(state, command.job_id, round_)
    if job is None or job.submission.kind is not JobKind.TRAINING:
        raise NotFound(f"{command.job_id} is not a live training job")
    job.submission = replace(job.submission, document=command.document)
    round_.changes.jobs[job.id] = job
    return job


def on_delete_training(state: State, command: DeleteTraining, round_: Round) -> None:
    """Remove the record of a training job that has finished; its name can be used again."""
    if command.job_id in state.jobs:
        raise Conflict(f"{command.job_id} has not ended; stop it first")
    state.finished.pop(command.job_id, None)
    # Its end may be of this very round, and that of its nodes: the removal is the last word about them.
    for ended in [job for job in round_.changes.jobs.values() if command.job_id in (job.id, job.parent)]:
        del round_.changes.jobs[ended.id]
        emit_moves(state, ended, round_)
    round_.changes.removed_jobs.add(command.job_id)


def _stagings(command: SubmitTraining) -> list[Staging | None]:
    """What is brought and taken for each of its nodes."""
    groups = () if command.nodes is None else command.nodes.groups
    return [command.staging, *(group.staging for group in groups)]
