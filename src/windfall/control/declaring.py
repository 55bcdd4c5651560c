"""Compute environments, job queues, definitions, images and tags: commands that declare things.

Each handler either changes everything it should or raises Rejected having changed nothing. Texts are AWS's where
AWS's are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windfall.capacity.environments import WITHOUT_GPUS, ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.capacity.policies import SchedulingPolicy
from windfall.control import events
from windfall.control.infrastructure import replace_outdated
from windfall.control.instances import let_go, resize_instances
from windfall.control.job_options import BUDGET, DEADLINE, WORK, budget_of
from windfall.control.limits import check_queue_budget, watch
from windfall.control.ownership import live_job, live_service_job
from windfall.control.policies import check_queue_policy, policy_named
from windfall.control.quota_shares import forget_quota_shares
from windfall.control.round import Round
from windfall.control.service_environments import check_kind_kept, check_service_queue
from windfall.control.service_use import take_over_services
from windfall.control.share_use import forget_queue, take_over
from windfall.control.state import State
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import EnvironmentName, JobId
from windfall.jobs.images import ImageMapping
from windfall.jobs.tenants import given_name

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
    """Change an environment; what runs there goes on, or has a while to end where instances are replaced."""
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
        provisioning=command.provisioning or old.provisioning,
    )
    _check_range(new)
    _check_kind(old, new)
    state.environments[new.name] = round_.changes.environments[new.name] = new
    resize_instances(state, round_)
    replace_outdated(state, old, new, command.jobs_have_s, round_)
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


def _check_kind(old: ComputeEnvironment, new: ComputeEnvironment) -> None:
    """An environment may change between on demand and spot, never between EC2, Fargate and UNMANAGED."""
    families = [
        (kind in WITHOUT_GPUS, kind is Provisioning.UNMANAGED)
        for kind in (old.provisioning, new.provisioning)
    ]
    if families[0] != families[1]:
        raise Invalid(
            f"A compute environment of type {old.provisioning} cannot become {new.provisioning}; create another one"
        )


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
    if queue.policy is not None:
        policy_named(state, queue.policy)
    check_service_queue(state, queue)
    state.queues[queue.name] = round_.changes.queues[queue.name] = queue
    if queue.policy is not None:
        take_over(state, queue.name, round_.now)
        take_over_services(state, queue.name, round_.now)
    state.unsettled = True
    return queue


def on_update_job_queue(state: State, command: events.UpdateJobQueue, round_: Round) -> JobQueue:
    """Change a queue's switch, priority or environments; what waits in it is looked at anew."""
    if command.name not in state.queues:
        raise NotFound(f"{command.name} does not exist")
    old = state.queues[command.name]
    check_queue_policy(state, old.name, old.policy, command.policy)
    check_kind_kept(old, command)
    if command.environments is not None:
        _check_queue_environments(state, command.environments)
    new = replace(
        old,
        switch=command.switch or old.switch,
        priority=old.priority if command.priority is None else command.priority,
        environments=old.environments if command.environments is None else command.environments,
        document=old.document if command.document is None else command.document,
        time_limits=old.time_limits if command.time_limits is None else command.time_limits,
        policy=old.policy if command.policy is None else command.policy,
        service_environment=command.service_environment or old.service_environment,
    )
    check_service_queue(state, new)
    state.queues[new.name] = round_.changes.queues[new.name] = new
    state.unsettled = state.services_unsettled = True
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
    forget_queue(state, command.name, round_)
    forget_quota_shares(state, command.name, round_)
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
    """Make a revision INACTIVE; jobs that use it go on. Doing it twice is not an error, as on AWS."""
    definition = state.definitions.get(command.name, {}).get(command.revision)
    if definition is None:
        raise NotFound(f"Job definition {given_name(command.name)}:{command.revision} does not exist")
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


def _check_deadline_kept(command: events.TagResource) -> None:
    """Refuse to change a deadline of a live job by its tags: it would be written down and not followed."""
    for tag in (DEADLINE, WORK):
        if tag in command.add or tag in command.remove:
            raise Invalid(
                f"{tag} is fixed when a job is submitted: stop the job, and submit it with another one"
            )


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
    elif command.kind == "job" and (job := live_job(state, JobId(name), round_)) and not job.is_node:
        _check_deadline_kept(command)
        tags = _retagged(job.submission.tags, command)
        submission = replace(job.submission, tags=tags)
        if BUDGET in command.add or BUDGET in command.remove:
            submission = replace(submission, budget_usd=budget_of(tags))
            check_queue_budget(state, submission.queue, submission.resources, submission.budget_usd)
        for tagged_job in [job, *(child for child in state.jobs.values() if child.parent == job.id)]:
            tagged_job.submission = submission
            watch(state, tagged_job)
        round_.changes.jobs[job.id] = job
    elif command.kind == "consumable-resource" and (resource := state.consumables.get(name)):
        tagged = replace(resource, tags=_retagged(resource.tags, command))
        state.consumables[name] = round_.changes.declared[type(tagged), name] = tagged
    elif command.kind == "service-environment" and (service := state.service_environments.get(name)):
        renewed = replace(service, tags=_retagged(service.tags, command))
        state.service_environments[name] = round_.changes.declared[type(renewed), name] = renewed
    elif command.kind == "service-job" and (service_job := live_service_job(state, JobId(name), round_)):
        service_job.tags = _retagged(service_job.tags, command)
        round_.changes.service_jobs[service_job.id] = service_job
    elif command.kind == "scheduling-policy" and (policy := state.policies.get(name)):
        labelled = replace(policy, tags=_retagged(policy.tags, command))
        state.policies[name] = round_.changes.declared[SchedulingPolicy, name] = labelled
    elif command.kind == "quota-share" and (share := state.quota_shares.get(name)):
        marked = replace(share, tags=_retagged(share.tags, command))
        state.quota_shares[name] = round_.changes.declared[type(marked), name] = marked
    else:
        shown = given_name(name) if command.kind == "job-definition" else name
        raise NotFound(f"{command.kind} {shown} does not exist, or has finished")


def _retagged(tags: Mapping[str, str], command: events.TagResource) -> dict[str, str]:
    return retagged(tags, command.add, command.remove)


def retagged(tags: Mapping[str, str], add: Mapping[str, str], remove: tuple[str, ...] = ()) -> dict[str, str]:
    """Tags after some were added and some removed; raises when they would be too many."""
    new = {key: value for key, value in {**tags, **add}.items() if key not in remove}
    if len(new) > TAGS_MAX:
        raise Invalid(f"A resource can have at most {TAGS_MAX} tags; this would make {len(new)}")
    return new
