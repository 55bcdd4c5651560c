"""SubmitJob: check it against what exists, resolve its dependencies, and let it wait in the right state."""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.capacity.environments import WITHOUT_GPUS, JobQueue, Switch
from windfall.control.consumables import wanted_tokens
from windfall.control.events import FinishedJob, SubmitJob
from windfall.control.gang_requests import check_node_options, most_gpus, requested_nodes
from windfall.control.gpu_requests import check_gpu_wish
from windfall.control.job_deadlines import check_deadline, learnt_work_s, reconsider
from windfall.control.job_options import (
    CHECKPOINT,
    DEADLINE,
    GIT,
    KEEP,
    PROFILE,
    WORKER,
    JobOptions,
    job_options_of,
)
from windfall.control.job_users import check_user, claim_user
from windfall.control.lifecycle import (
    consider_child,
    dependencies_met,
    fail_child,
    fail_waiting,
    make_runnable,
)
from windfall.control.limits import check_queue_budget
from windfall.control.ownership import is_visible, live_job
from windfall.control.quota_shares import check_quota_share
from windfall.control.round import Round
from windfall.control.share_use import check_share, joined
from windfall.control.state import State, Waits
from windfall.control.state_changes import tell_of
from windfall.control.storage_rules import check_staging, check_words_of_others
from windfall.jobs.arrays import ArrayPart, ChildTable, state_of_code
from windfall.jobs.aws_texts import DEPENDENCY_FAILED
from windfall.jobs.definitions import ContainerOverrides, JobDefinition, requested_resources, substituted
from windfall.jobs.dependencies import Dependency, DependencyType
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.fargate import check_size
from windfall.jobs.ids import JobId, split_child
from windfall.jobs.job import Job, JobDeadline, Submission
from windfall.jobs.nodes import Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Checkpoints
from windfall.jobs.states import FAILED, PENDING, SUBMITTED, SUCCEEDED, TERMINAL
from windfall.jobs.tenants import given_name


def on_submit_job(state: State, command: SubmitJob, round_: Round) -> Job:
    """Accept a job, or refuse it with nothing changed."""
    queue = _queue(state, command)
    # Before the definition: clients that make a missing one and submit again must not make it for nothing.
    _check_shares(state, queue, command, round_.now)
    definition = _definition(state, command.definition)
    nodes = requested_nodes(definition, command)
    if nodes is None:
        resources = requested_resources(definition, command.overrides)
        _check_size(definition, command.overrides, resources)
        _check_command(definition, command)
    else:
        resources = nodes.resources(nodes.main)
    largest = resources if nodes is None else most_gpus(nodes)
    _check_capability(state, queue, largest)
    dependencies = _resolve(state, command, round_)
    options = _job_options(state, command, definition)
    _check_worker(options, command.array_size)
    check_node_options(nodes, options)
    check_gpu_wish(state, queue.environments, largest, options.gpu_wish)
    check_queue_budget(state, queue.name, resources, options.budget_usd)
    _check_new(state, command)
    check_user(state, command.submitter, _images(definition, nodes), options.runtime)
    submission = Submission(
        command.name,
        queue.name,
        definition.key,
        resources,
        command.retry or definition.retry,
        command.timeout_s or definition.timeout_s,
        command.array_size,
        command.depends_on,
        command.overrides,
        command.parameters,
        command.tags,
        definition.propagate_tags if command.propagate_tags is None else command.propagate_tags,
        command.submitter,
        command.document,
        staging=options.staging,
        free_interruptions=options.free_interruptions,
        budget_usd=options.budget_usd,
        gpu_wish=options.gpu_wish,
        larger_gpu_on_oom=options.larger_gpu_on_oom,
        runtime=options.runtime,
        pull=options.pull,
        worker=options.worker,
        stays_on_sick_gpu=options.stays_on_sick_gpu,
        partition=options.partition,
        nodes=nodes,
        instance_type=None if nodes is None else nodes.group(nodes.main).instance_type,
        replaces_lost_nodes=nodes is not None and options.replaces_lost_nodes,
        share=command.share,
        preemptions_max=options.preemptions_max,
        priority=_priority(queue, definition, command),
        consumables=wanted_tokens(state, _tokens(definition, nodes, command)),
        directory=options.directory,
        deadline=_deadline(state, queue, definition, command, options, round_),
        array_part=command.array_part,
        log_limit_bytes=options.log_limit_bytes,
    )
    claim_user(state, command.submitter, round_)
    job = Job(command.job_id, submission, SUBMITTED, round_.now)
    tell_of(state, job)
    state.jobs[job.id] = round_.changes.jobs[job.id] = job
    joined(state, job, round_.now)
    if command.array_size is not None:
        state.children[job.id] = ChildTable.of(command.array_size, PENDING)
        job.rest = PENDING
    _enter(state, job, dependencies, round_)
    return job


def _deadline(
    state: State,
    queue: JobQueue,
    definition: JobDefinition,
    command: SubmitJob,
    options: JobOptions,
    round_: Round,
) -> JobDeadline | None:
    """The deadline of a job, if it has one that can be kept."""
    if options.deadline is None:
        return None
    if command.array_size is not None or definition.nodes is not None:
        raise Invalid(f"{DEADLINE} is for single jobs: omit it for arrays and multi-node jobs")
    deadline = options.deadline.from_now(round_.now)
    learnt_s = learnt_work_s(state, queue.name, definition.key)
    check_deadline(state, queue.name, deadline, learnt_s, round_.now)
    return deadline


def _check_new(state: State, command: SubmitJob) -> None:
    if command.job_id in state.jobs:
        raise Conflict(f"Job {command.job_id} exists")


def _images(definition: JobDefinition, nodes: Nodes | None) -> list[str]:
    containers = [definition.container] if nodes is None else [group.container for group in nodes.groups]
    return [container.image for container in containers]


def _tokens(
    definition: JobDefinition, nodes: Nodes | None, command: SubmitJob
) -> tuple[tuple[str, int], ...]:
    tokens = definition.consumables if command.consumables is None else command.consumables
    return tokens if nodes is None else nodes.consumables or tokens


def _job_options(state: State, command: SubmitJob, definition: JobDefinition) -> JobOptions:
    """What the job asks for by tags and parameters, if it may have the storage that it names."""
    checkpoint_root = state.rules.storage.checkpoint_root(command.submitter.tenant)
    options = job_options_of(command.job_id, command.tags, command.parameters, definition, checkpoint_root)
    check_staging(state, command.submitter, options.staging)
    if command.submitter.is_admin and not definition.shared:
        own = job_options_of(command.job_id, {}, {}, definition, checkpoint_root)
        check_words_of_others(state, command.submitter, options.staging, own.staging)
    if command.retry_of is not None and options.staging is not None:
        _check_unshared(state, options.staging.checkpoints, command.array_part)
    return options


def _check_unshared(state: State, checkpoints: Checkpoints | None, part: ArrayPart | None) -> None:
    """Refuse to run a job again whose checkpoints another job continues: each would overwrite the other's."""
    if checkpoints is None:
        return
    wanted = None if part is None else set(part.indexes)
    for job in state.jobs.values():
        staging, other = job.submission.staging, job.submission.array_part
        if job.parent is not None or staging is None or staging.checkpoints is None:
            continue
        if staging.checkpoints.uri != checkpoints.uri:
            continue
        if wanted is None or other is None or not wanted.isdisjoint(other.indexes):
            raise Conflict(
                f"Job {job.id} is {job.state} and continues the same checkpoints: wait for its end, or stop it first"
            )


def _enter(state: State, job: Job, dependencies: _Dependencies, round_: Round) -> None:
    _let_wait(state, job, dependencies, round_)
    reconsider(state, job, round_)


def _let_wait(state: State, job: Job, dependencies: _Dependencies, round_: Round) -> None:
    waits = dependencies.waits
    if dependencies.failed:
        if job.is_array:
            job.move(PENDING)
        fail_waiting(state, job, DEPENDENCY_FAILED, round_)
        return
    if job.is_array or waits.whole:
        job.move(PENDING)
    if not waits.whole and not waits.by_child:
        make_runnable(state, job, round_)
        return
    state.waits[job.id] = waits
    for awaited in waits.whole | waits.n_to_n:
        state.dependents.setdefault(awaited, []).append(job.id)
    for index in sorted(dependencies.failed_children):
        fail_child(state, job, index, round_)
    if not waits.whole:
        dependencies_met(state, job, waits, round_)
    elif waits.n_to_n:
        _fail_children_already_decided(state, job, round_)


def _fail_children_already_decided(state: State, job: Job, round_: Round) -> None:
    for index in list(state.children[job.id].at_rest()):
        consider_child(state, job, index, round_)


def _check_shares(state: State, queue: JobQueue, command: SubmitJob, now: int) -> None:
    check_share(state, queue.name, command.share, command.priority, now)
    check_quota_share(state, queue, command.share)


def _queue(state: State, command: SubmitJob) -> JobQueue:
    queue = state.queues.get(command.queue)
    if queue is None:
        raise NotFound(f"Job queue {command.queue} does not exist")
    if queue.service_environment is not None:
        raise Invalid(f"JobQueue {queue.name} takes service jobs; submit them with SubmitServiceJob")
    if queue.switch is Switch.DISABLED:
        raise Invalid(
            f"JobQueue {queue.name} is DISABLED and takes no new jobs; enable it with update-job-queue"
        )
    return queue


def _definition(state: State, key: str) -> JobDefinition:
    definition = state.usable_definition(key)
    if definition is None:
        raise NotFound(f"Job definition {given_name(key)} does not exist")
    if not definition.active:
        raise Invalid(f"Job definition {given_name(definition.key)} is INACTIVE; register a new revision")
    return definition


def _priority(queue: JobQueue, definition: JobDefinition, command: SubmitJob) -> int:
    """Who goes first within a share; where there are none, nobody."""
    if queue.policy is None:
        return 0
    return definition.priority if command.priority is None else command.priority


def _check_capability(state: State, queue: JobQueue, resources: Resources) -> None:
    kinds = [
        state.environments[name].provisioning for name in queue.environments if name in state.environments
    ]
    if resources.gpus and kinds and all(kind in WITHOUT_GPUS for kind in kinds):
        raise Invalid(
            "Job Queue is attached to Compute Environment that can not run Jobs with capability EC2:"
            " Fargate has no GPUs; submit to a queue with an EC2 or SPOT compute environment"
        )


def _check_size(
    definition: JobDefinition, overrides: ContainerOverrides | None, resources: Resources
) -> None:
    """Refuse an override that makes a size which Fargate, or a host without parts of a vCPU, does not have."""
    if overrides is None:
        return
    beside = definition.container.fargate_beside
    if beside is not None:
        check_size(resources + beside)
    elif overrides.vcpus is not None and overrides.vcpus != int(overrides.vcpus):
        raise Invalid(
            f"Value {overrides.vcpus:g} for type VCPU in resourceRequirement is not valid: parts of a vCPU are for"
            " Fargate, and the job definition has no platformCapabilities FARGATE. Please provide a whole number."
        )


def _check_command(definition: JobDefinition, command: SubmitJob) -> None:
    words = definition.container.command
    if command.overrides is not None and command.overrides.command is not None:
        words = command.overrides.command
    substituted(words, {**definition.parameters, **command.parameters} if words else {})


def _check_worker(options: JobOptions, array_size: int | None) -> None:
    if options.worker is None:
        return
    if array_size is None:
        raise Invalid(
            f"{WORKER} is for the children of an array job: set arrayProperties.size, or drop the tag"
        )
    if options.staging is not None:
        raise Invalid(
            f"{WORKER} goes with none of {CHECKPOINT}, {GIT}, {KEEP} and {PROFILE}, which are brought and saved for"
            " each child alone: drop the one or the others"
        )


@dataclass(slots=True)
class _Dependencies:
    """What a new job waits for, and what of it has failed already."""

    waits: Waits = field(default_factory=Waits)
    #: Whether the job fails with a dependency that it waits for as a whole.
    failed: bool = False
    #: The children whose counterparts failed in arrays that have ended (N_TO_N).
    failed_children: set[int] = field(default_factory=set)


def _resolve(state: State, command: SubmitJob, round_: Round) -> _Dependencies:
    resolved = _Dependencies()
    waits = resolved.waits
    for dependency in command.depends_on:
        if dependency.type is DependencyType.SEQUENTIAL:
            if command.array_size is not None:
                waits.sequential = waits.by_child = True
            elif dependency.job_id is None:
                raise Invalid(
                    "A SEQUENTIAL dependency without a jobId needs an array job; set arrayProperties.size"
                )
            if dependency.job_id is None:
                continue
        if dependency.job_id is None:
            raise Invalid("A dependency needs a jobId, unless its type is SEQUENTIAL")
        awaited = _look_up(state, dependency.job_id, command.finished, round_)
        if awaited is None:
            raise NotFound(f"Job {dependency.job_id} does not exist, so nothing can depend on it")
        _check_n_to_n(dependency, awaited, command.array_size)
        n_to_n = dependency.type is DependencyType.N_TO_N
        if awaited.state is FAILED and n_to_n and awaited.children is not None:
            resolved.failed_children |= _failed_among(awaited.children)
            waits.by_child = True
        elif awaited.state is FAILED:
            resolved.failed = True
        elif awaited.state is not SUCCEEDED:
            (waits.n_to_n if n_to_n else waits.whole).add(awaited.id)
            waits.by_child = waits.by_child or n_to_n
    if len(resolved.failed_children) == command.array_size:
        resolved.failed = True  # with all its children at once, which then need no records
    return resolved


def _failed_among(children: bytes) -> set[int]:
    return {index for index, code in enumerate(children) if state_of_code(code) is FAILED}


def _check_n_to_n(dependency: Dependency, awaited: FinishedJob, array_size: int | None) -> None:
    if dependency.type is not DependencyType.N_TO_N:
        return
    if array_size is None or awaited.array_size is None:
        raise Invalid("An N_TO_N dependency needs two array jobs; drop the type to wait for the whole job")
    if array_size != awaited.array_size:
        raise Invalid(
            f"An N_TO_N dependency needs arrays of one size: this one has {array_size},"
            f" job {awaited.id} has {awaited.array_size}"
        )


def _look_up(
    state: State, job_id: JobId, finished: tuple[FinishedJob, ...], round_: Round
) -> FinishedJob | None:
    """A dependency, wherever it is: live, at rest in a live array, just finished, or found in the store."""
    if (job := live_job(state, job_id, round_)) is not None:
        return FinishedJob(job.id, job.state, job.submission.array_size if job.parent is None else None)
    parent, index = split_child(job_id)
    if index is not None:
        array, table = live_job(state, parent, round_), state.children.get(parent)
        if array is not None and table is not None and index < table.size:
            return FinishedJob(job_id, table.state(index))
        recent = _recent(state, parent, round_)
        ended = None if recent is None else recent.children
        if ended is not None and index < len(ended):
            return FinishedJob(job_id, state_of_code(ended[index]))
    if (end := _recent(state, job_id, round_)) is not None:
        return end
    return next((stored for stored in finished if stored.id == job_id and stored.state in TERMINAL), None)


def _recent(state: State, job_id: JobId, round_: Round) -> FinishedJob | None:
    """A job that has just left memory."""
    end = state.finished.get(job_id)
    return end.job if end is not None and is_visible(end.tenant, round_) else None
