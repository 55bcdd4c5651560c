"""Compute environments, job queues, definitions, images and tags: commands that declare things.

Each handler either changes everything it should or raises Rejected having changed nothing. Texts are AWS's where
AWS's are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windfall.capacity.environments import WITHOUT_GPUS, ComputeEnvironment, JobQueue, Switch
from windfall.control import events
from windfall.control.instances import let_go
from windfall.control.limits import watch
from windfall.control.round import Round
from windfall.control.shares import resize_shares
from windfall.control.state import State
from windfall.control.wishes import BUDGET, budget_of
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import EnvironmentName, JobId
from windfall.jobs.images import ImageMapping

ENVIRONMENTS_MAX = QUEUES_MAX = 50
TAGS_MAX = 50


def on_create_compute_environment(
    state: State, command: events.CreateComputeEnvironment, round_: Round
) -> ComputeEnvironment:
    """Declare a compute environment."""
    environment = command.environment
    if environment.name in state.environments:
        raise Conflict("Object already exists")
    if len(state.environments) >= ENVIRONMENTS_MAX:
        raise Conflict(
            f"Maximum number of compute environments ({ENVIRONMENTS_MAX}) reached; delete one first"
        )
    _check_range(environment)
    state.environments[environment.name] = round_.changes.environments[environment.name] = environment
    state.unsettled = True
    return environment


def on_update_compute_environment(
    state: State, command: events.UpdateComputeEnvironment, round_: Round
) -> ComputeEnvironment:
    """Change an environment's switch or bounds; what runs there goes on."""
    old = _environment(state, command.name)
    new = replace(
        old,
        switch=command.switch or old.switch,
        min_vcpus=old.min_vcpus if command.min_vcpus is None else command.min_vcpus,
        max_vcpus=old.max_vcpus if command.max_vcpus is None else command.max_vcpus,
        document=old.document if command.document is None else command.document,
        instance_types=old.instance_types if command.instance_types is None else command.instance_types,
        allocation=old.allocation if command.allocation is None else command.allocation,
        bid_percent=old.bid_percent if command.bid_percent is None else command.bid_percent,
    )
    _check_range(new)
    state.environments[new.name] = round_.changes.environments[new.name] = new
    resize_shares(state, round_)
    state.unsettled = True
    return new


def on_delete_compute_environment(
    state: State, command: events.DeleteComputeEnvironment, round_: Round
) -> None:
    """Remove an environment that is DISABLED and that no queue uses."""
    environment = _environment(state, command.name)
    if environment.switch is not Switch.DISABLED:
        raise Conflict("Cannot delete, state must be DISABLED")
    if any(command.name in queue.environments for queue in state.queues.values()):
        raise Conflict("Cannot delete, found existing JobQueue relationship")
    if any(
        instance.environment == command.name and use.holds
        for instance in state.instances.values()
        if (use := state.occupancy.instances.get(instance.id)) is not None
    ):
        raise Conflict("Cannot delete, resource is being modified: jobs still run in it")
    for instance in [i for i in state.instances.values() if i.environment == command.name]:
        let_go(state, instance.id, round_)
    del state.environments[command.name]
    round_.changes.environments[command.name] = None


def _environment(state: State, name: EnvironmentName) -> ComputeEnvironment:
    if name not in state.environments:
        raise NotFound(f"{name} does not exist")
    return state.environments[name]


def _check_range(environment: ComputeEnvironment) -> None:
    if environment.min_vcpus > environment.max_vcpus:
        raise Invalid(
            f"minvCpus ({environment.min_vcpus}) must not be greater than maxvCpus ({environment.max_vcpus})"
        )


def on_create_job_queue(state: State, command: events.CreateJobQueue, round_: Round) -> JobQueue:
    """Declare a job queue over existing environments."""
    queue = command.queue
    if queue.name in state.queues:
        raise Conflict("Object already exists")
    if len(state.queues) >= QUEUES_MAX:
        raise Conflict(f"Maximum number of job queues ({QUEUES_MAX}) reached; delete one first")
    _check_queue_environments(state, queue.environments)
    state.queues[queue.name] = round_.changes.queues[queue.name] = queue
    state.unsettled = True
    return queue


def on_update_job_queue(state: State, command: events.UpdateJobQueue, round_: Round) -> JobQueue:
    """Change a queue's switch, priority or environments; what waits in it is looked at anew."""
    if command.name not in state.queues:
        raise NotFound(f"{command.name} does not exist")
    old = state.queues[command.name]
    if command.environments is not None:
        _check_queue_environments(state, command.environments)
    new = replace(
        old,
        switch=command.switch or old.switch,
        priority=old.priority if command.priority is None else command.priority,
        environments=old.environments if command.environments is None else command.environments,
        document=old.document if command.document is None else command.document,
        time_limits=old.time_limits if command.time_limits is None else command.time_limits,
    )
    state.queues[new.name] = round_.changes.queues[new.name] = new
    state.unsettled = True
    return new


def on_delete_job_queue(state: State, command: events.DeleteJobQueue, round_: Round) -> list[JobId]:
    """Remove a DISABLED queue; the reply is the jobs that it still had, which the caller must terminate.

    AWS deletes the queue's jobs with it. The queue leaves at once; its jobs are terminated in the same round, so
    none can be left behind without a queue.
    """
    queue = state.queues.get(command.name)
    if queue is None:
        raise NotFound(f"{command.name} does not exist")
    if queue.switch is not Switch.DISABLED:
        raise Conflict("Cannot delete, state must be DISABLED")
    left = [
        job.id for job in state.jobs.values() if job.submission.queue == command.name and job.parent is None
    ]
    del state.queues[command.name]
    round_.changes.queues[command.name] = None
    return left


def _check_queue_environments(state: State, names: tuple[EnvironmentName, ...]) -> None:
    for name in names:
        if name not in state.environments:
            raise NotFound(f"{name} does not exist")
    kinds = {state.environments[name].provisioning in WITHOUT_GPUS for name in names}
    if len(kinds) > 1:
        raise Invalid("A job queue cannot mix Fargate and EC2 compute environments; use two queues")


def on_register_job_definition(
    state: State, command: events.RegisterJobDefinition, round_: Round
) -> JobDefinition:
    """Register the next revision of a definition."""
    revisions = state.definitions.setdefault(command.definition.name, {})
    definition = replace(command.definition, revision=max(revisions, default=0) + 1, registered_at=round_.now)
    revisions[definition.revision] = round_.changes.definitions[definition.key] = definition
    return definition


def on_deregister_job_definition(
    state: State, command: events.DeregisterJobDefinition, round_: Round
) -> None:
    """Make a revision INACTIVE; jobs that use it go on. Doing it twice is no error, as on AWS."""
    definition = state.definitions.get(command.name, {}).get(command.revision)
    if definition is None:
        raise NotFound(f"Job definition {command.name}:{command.revision} does not exist")
    if definition.active:
        inactive = replace(definition, active=False, deregistered_at=round_.now)
        state.definitions[command.name][command.revision] = round_.changes.definitions[definition.key] = (
            inactive
        )


def on_add_image(state: State, command: events.AddImage, round_: Round) -> ImageMapping:
    """Map an image name to a directory and command of this host; an existing mapping is replaced."""
    mapping = command.mapping
    state.images[mapping.pattern] = round_.changes.images[mapping.pattern] = mapping
    return mapping


def on_remove_image(state: State, command: events.RemoveImage, round_: Round) -> None:
    """Remove a mapping."""
    if command.pattern not in state.images:
        raise NotFound(f"No image mapping {command.pattern}; `windfall image list` shows what there is")
    del state.images[command.pattern]
    round_.changes.images[command.pattern] = None


def on_tag_resource(state: State, command: events.TagResource, round_: Round) -> None:
    """Add and remove tags of an environment, a queue, a definition or a live job."""
    name = command.name
    if command.kind == "compute-environment" and (
        environment := state.environments.get(EnvironmentName(name))
    ):
        changed = replace(environment, tags=_retagged(environment.tags, command))
        state.environments[changed.name] = round_.changes.environments[changed.name] = changed
    elif command.kind == "job-queue" and (queue := {str(n): q for n, q in state.queues.items()}.get(name)):
        changed_queue = replace(queue, tags=_retagged(queue.tags, command))
        state.queues[queue.name] = round_.changes.queues[queue.name] = changed_queue
    elif command.kind == "job-definition" and (definition := state.definition(name)):
        revised = replace(definition, tags=_retagged(definition.tags, command))
        state.definitions[revised.name][revised.revision] = round_.changes.definitions[revised.key] = revised
    elif command.kind == "job" and (job := state.jobs.get(JobId(name))):
        tags = _retagged(job.submission.tags, command)
        submission = replace(job.submission, tags=tags)
        if BUDGET in command.add or BUDGET in command.remove:
            submission = replace(submission, budget_usd=budget_of(tags))
        for kin in [job, *(k for k in state.jobs.values() if k.parent == job.id)]:
            kin.submission = submission
            watch(state, kin)
        round_.changes.jobs[job.id] = job
    else:
        raise NotFound(f"{command.kind} {name} does not exist, or has finished")


def _retagged(tags: Mapping[str, str], command: events.TagResource) -> dict[str, str]:
    new = {key: value for key, value in {**tags, **command.add}.items() if key not in command.remove}
    if len(new) > TAGS_MAX:
        raise Invalid(f"A resource can have at most {TAGS_MAX} tags; this would make {len(new)}")
    return new
