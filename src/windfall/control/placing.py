"""From the scheduler's plan to attempts and instances: carries out what the plan says.

The plan was made from this very state in this very round, so it is applied without a second look; the occupancy
refuses if that were ever wrong.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from windfall.capacity.environments import RECLAIMABLE
from windfall.capacity.machines import Instance, InstanceState, Machine, Offer
from windfall.control import share_use
from windfall.control.backlog import same_group
from windfall.control.changes import LogStream
from windfall.control.consumables import hold_tokens
from windfall.control.events import AttemptExited
from windfall.control.gang_addresses import GangNetwork, network_of, node_environment
from windfall.control.gangs import gang_of, give_number, made_node, nodes_of, waits_for_main
from windfall.control.instances import let_go
from windfall.control.instructions import LaunchInstance, StartAttempt
from windfall.control.interrupting import take_back
from windfall.control.job_options import PARTITION
from windfall.control.job_users import claim_user, has_strangers, user_of
from windfall.control.lifecycle import note_child, recorded_child
from windfall.control.limits import watch
from windfall.control.node_parts import container_of_node, own_staging, staging_of_peer, with_interface
from windfall.control.replicas import ADDRESS_VARIABLE, address_of
from windfall.control.round import Round
from windfall.control.standby import hold_of
from windfall.control.state import State
from windfall.control.storage_rules import access_of_job, storage_problem
from windfall.jobs.attempts import Attempt, Market
from windfall.jobs.aws_texts import CANNOT_INITIALIZE, CANNOT_START
from windfall.jobs.containers import ContainerRun
from windfall.jobs.definitions import ContainerSpec, effective_container
from windfall.jobs.ids import AttemptToken, InstanceId, attempt_token, task_id
from windfall.jobs.images import (
    HOST_IMAGE,
    HostCommand,
    container_run,
    host_command,
    is_container,
    no_engine_reason,
    not_runnable_reason,
)
from windfall.jobs.job import Job, JobKind, OnPartition
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Staging
from windfall.jobs.states import STARTING
from windfall.jobs.storage import StorageAccess
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import qualified, qualified_log_group
from windfall.scheduling.snapshot import Launch, Placement, Plan


def apply_plan(state: State, plan: Plan, round_: Round) -> list[AttemptExited]:
    """Carry out a plan; the answer is the attempts that could not even be asked for (no image)."""
    # Nodes are told where all nodes of their gang are: none is started before all have their places.
    placed = [_give_place(state, placement, round_) for placement in plan.placements]
    begun = [_begin(state, job, container, round_) for job, container in placed]
    for launch in plan.launches:
        _launch(state, launch, round_)
    for instance_id in plan.terminations:
        let_go(state, instance_id, round_)
    for reclaim in plan.reclaims:
        take_back(state, reclaim, round_)
    reservations = (*plan.reservations, *plan.claims)
    state.reservations = {r.job_id: (r.instance, r.expected_at) for r in reservations}
    return [report for report in begun if report is not None]


def place(
    state: State, placement: Placement, round_: Round, *, behind: AttemptToken | None = None
) -> tuple[AttemptToken, AttemptExited | None]:
    """Give a job its next attempt, with a place or behind another; and its end where it cannot even be asked for."""
    job, container = _give_place(state, placement, round_, behind=behind)
    return job.attempts[-1].token, _begin(state, job, container, round_)


def _begin(state: State, job: Job, container: ContainerSpec, round_: Round) -> AttemptExited | None:
    """Have a job's newest attempt started, unless it waits for its main node; its end where it cannot be."""
    if waits_for_main(state, job):
        return None
    start = _start(state, job, job.attempts[-1], container)
    if isinstance(start, AttemptExited):
        return start
    round_.instructions.append(start)
    return None


def _give_place(
    state: State, placement: Placement, round_: Round, *, behind: AttemptToken | None = None
) -> tuple[Job, ContainerSpec]:
    """Give a job, or a node or child of it, its next attempt with a place; the answer is which, and what it runs."""
    job = state.jobs[placement.job_id]
    if placement.node is not None and placement.node != job.node:
        job = made_node(state, job, placement.node, round_)
    else:
        state.backlog.take(job)
        job.blocked_at = None
        if state.left_places:
            machine = state.instances[placement.instance].machine
            find_same_group = partial(same_group, state.jobs, job)
            owner = state.left_places.served(job, machine, state.attempts, find_same_group)
            if owner is not None:
                round_.changes.jobs[owner.id] = owner
    if job.is_gang:
        give_number(state, job)
    if job.is_array:
        index = state.children[job.id].next_at_rest()
        assert index is not None, f"{job.story()} has no child left to place"
        job = recorded_child(state, job, index, round_)
    instance = state.instances[placement.instance]
    container = _container(state, job)
    attempt = _new_attempt(state, job, instance, container, placement.gpu_ids, round_.now)
    if behind is not None:
        attempt.behind = behind
        state.standbys[behind] = attempt.token
    job.attempts.append(attempt)
    job.status_reason = None  # What it said was about the wait, or about the attempt before.
    job.move(STARTING)
    hold_tokens(state, job, round_)
    note_child(state, job, round_)
    state.attempts[attempt.token] = job
    state.occupancy.take(attempt.token, hold_of(job, attempt), instance)
    share_use.placed(state, job, round_)
    watch(state, job)
    round_.changes.jobs[job.id] = job
    round_.changes.log_streams[attempt.task_id] = LogStream(
        qualified_log_group(job.submission.submitter.tenant, container.log_group),
        attempt.log_stream,
        attempt.task_id,
        job.id,
        round_.now,
    )
    claim_user(state, job.submission.submitter, round_)  # It may have been submitted under other settings.
    return job, container


def start_nodes(state: State, gang: Job, round_: Round) -> list[AttemptExited]:
    """Have the other nodes of a gang started whose main node runs; the answer is those that cannot be (no image)."""
    refused = []
    for node in nodes_of(state, gang):
        attempt = node.attempt
        if attempt is None or attempt.stop_cause is not None or node.state is not STARTING:
            continue
        start = start_again(state, node, attempt)
        if isinstance(start, AttemptExited):
            refused.append(start)
        else:
            round_.instructions.append(start)
    return refused


def _container(state: State, job: Job) -> ContainerSpec:
    """What a job runs: its own, or what its definition and its overrides make."""
    submission = job.submission
    if submission.nodes is not None and job.node is not None:
        return container_of_node(submission.nodes, job.node)
    if submission.container is not None:
        return submission.container
    definition = state.definition(submission.definition)
    assert definition is not None, f"{job.story()} has lost its definition"
    return effective_container(definition, submission.overrides, submission.parameters)


def _new_attempt(
    state: State,
    job: Job,
    instance: Instance,
    container: ContainerSpec,
    gpu_ids: tuple[str, ...],
    now: int,
) -> Attempt:
    number = len(job.attempts) + 1
    # Later than the one before, whatever the clock does: its time is what fences that one off.
    placed_at = max([now, *(attempt.placed_at + 1 for attempt in job.attempts[-1:])])
    training = job.submission.kind is JobKind.TRAINING
    token = attempt_token(job.id, number, job.created_at if training else None)
    task = task_id(token, placed_at)
    if training:
        stream = f"{job.submission.name}/algo-{(job.node or 0) + 1}-{placed_at}"
    elif job.submission.kind is JobKind.REPLICA:
        stream = f"{container.log_prefix}/{token}"
    else:
        prefix = container.log_prefix or job.submission.definition.partition(":")[0]
        stream = f"{prefix[:200]}/{container.name}/{task}"
    attempt = Attempt(number, token, task, instance.environment, instance.id, gpu_ids, stream, placed_at)
    environment = state.environments.get(instance.environment)
    if environment is not None and environment.provisioning in RECLAIMABLE:
        attempt.market = Market.SPOT
    attempt.instance_type, attempt.gpu_share = instance.type, job.share
    fraction = paid_fraction(job.needs, instance.total)
    if instance.usd_hour is not None:
        attempt.usd_hour = instance.usd_hour * fraction
    if instance.on_demand_usd_hour is not None:
        attempt.on_demand_usd_hour = instance.on_demand_usd_hour * fraction
    return attempt


def paid_fraction(wanted: Resources, total: Resources) -> float:
    """The fraction of an instance that a job pays for: of its GPUs if it needs some, else the larger of the others."""
    if wanted.gpus and total.gpus:
        return min(1.0, wanted.gpus / total.gpus)
    parts = [
        have / of
        for have, of in ((wanted.vcpus, total.vcpus), (wanted.memory_mib, total.memory_mib))
        if of > 0
    ]
    return min(1.0, max(parts, default=1.0))


def start_again(state: State, job: Job, attempt: Attempt) -> StartAttempt | AttemptExited:
    """The instruction for an attempt that has a place but may never have reached its agent."""
    return _start(state, job, attempt, _container(state, job))


def _staging(state: State, job: Job, network: GangNetwork | None) -> Staging | None:
    """What has to be brought for this try: code stays at one commit."""
    staging, nodes = own_staging(job), job.submission.nodes
    if staging is None:
        return None
    if nodes is not None and nodes.peers and network is not None:
        staging = staging_of_peer(gang_of(state, job), job, staging, network)
    commit = next((attempt.commit for attempt in job.attempts if attempt.commit is not None), None)
    if staging.git is not None and commit is not None:
        staging = replace(staging, git=replace(staging.git, revision=commit))
    return staging


def opened_storage(state: State, job: Job) -> StorageAccess | None:
    """What is opened of object storage for the attempt of a job; None where nothing is."""
    staging = own_staging(job)
    if staging is None and not _container(state, job).has_role:
        return None
    return access_of_job(state, job, staging)


def _start(
    state: State, job: Job, attempt: Attempt, container: ContainerSpec
) -> StartAttempt | AttemptExited:
    """What the agent is to run, or the end of an attempt whose image or storage it cannot have."""
    nodes, number, network = job.submission.nodes, job.node, None
    if nodes is not None and number is not None:
        network = network_of(state, gang_of(state, job))
        container = container_of_node(nodes, number, network.interfaces[number])
        container = with_interface(container, network, number)
    container = _with_own_secrets(container, job)
    program = _program(state, job, attempt, container)
    if isinstance(program, str):
        return AttemptExited(attempt.token, attempt.placed_at, None, program)
    command, run = program
    staging = _staging(state, job, network)
    storage = replace(access_of_job(state, job, staging), for_programs=container.has_role)
    if staging is not None and (problem := storage_problem(storage, staging)) is not None:
        return AttemptExited(attempt.token, attempt.placed_at, None, f"{CANNOT_INITIALIZE}: {problem}")
    submitter = job.submission.submitter
    own_directory = job.submission.directory if run is None else None
    user = user_of(state, submitter, _machine(state, attempt.instance), contained=run is not None)
    if isinstance(user, str):
        return AttemptExited(attempt.token, attempt.placed_at, None, f"{CANNOT_START}: {user}")
    return StartAttempt(
        attempt.token,
        attempt.task_id,
        attempt.instance,
        command.argv,
        {**command.environment, **_injected(state, job, attempt, network)},
        own_directory or command.directory,
        job.resources,
        attempt.gpu_ids,
        container.shared_memory_mib,
        has_strangers(state, submitter),
        staging,
        attempt.placed_at,
        attempt.instance_type or "",
        attempt.market.value,
        container=run,
        gpu_share=attempt.gpu_share,
        worker=job.submission.worker,
        worker_key=job.parent or job.id,
        secrets=container.options.secrets if run is None else (),
        storage=storage,
        run_as=user,
        tenant=submitter.tenant,
        enters_as_user=own_directory is not None,
        behind=attempt.behind,
        stops_alone=stops_alone(state, job, attempt),
        log_limit_bytes=job.submission.log_limit_bytes,
    )


def stops_alone(state: State, job: Job, attempt: Attempt) -> bool:
    """Whether an attempt is ended by its agent when that hears no daemon; if neither says so, it goes on."""
    if job.submission.partition is not None:
        return job.submission.partition is OnPartition.STOP
    environment = state.environments.get(attempt.environment)
    return environment is not None and environment.tags.get(PARTITION, "").strip().lower() == OnPartition.STOP


def _with_own_secrets(container: ContainerSpec, job: Job) -> ContainerSpec:
    """The container with the secrets of the job's own tenant, regardless of the key that registered its definition."""
    tenant, secrets = job.submission.submitter.tenant, container.options.secrets
    if not secrets or tenant == DEFAULT_TENANT:
        return container
    own = tuple(replace(secret, secret=qualified(tenant, secret.secret)) for secret in secrets)
    return replace(container, options=replace(container.options, secrets=own))


def _program(
    state: State, job: Job, attempt: Attempt, container: ContainerSpec
) -> tuple[HostCommand, ContainerRun | None] | str:
    """What runs, as a process or as a container; or the reason why nothing can."""
    mappings, has_engine = state.images.values(), _has_engine(state, attempt.instance)
    wish = job.submission.runtime
    if is_container(container.image, wish, state.rules.runtime, mappings, has_engine=has_engine):
        if not has_engine or container.image == HOST_IMAGE:
            return no_engine_reason(container.image)
        if job.submission.nodes is not None and container.options.network is None:
            # The addresses of nodes are the host's own.
            container = replace(container, options=replace(container.options, network="host"))
        return HostCommand((), None, container.environment), container_run(container, job.submission.pull)
    command = host_command(container, mappings)
    return not_runnable_reason(container) if command is None else (command, None)


def _has_engine(state: State, instance_id: InstanceId) -> bool:
    """Whether a container engine answers on the machine of an instance."""
    machine = _machine(state, instance_id)
    return machine is not None and bool(machine.facts.get("containers"))


def _machine(state: State, instance_id: InstanceId) -> Machine | None:
    instance = state.instances.get(instance_id)
    return None if instance is None or instance.machine is None else state.machines.get(instance.machine)


def _injected(state: State, job: Job, attempt: Attempt, network: GangNetwork | None) -> dict[str, str]:
    """The variables that AWS Batch, or SageMaker, gives every job."""
    nodes = job.submission.nodes
    of_node: dict[str, str] = {}
    if nodes is not None and job.node is not None and network is not None:
        of_node = node_environment(gang_of(state, job), nodes, job.node, network)
    if job.submission.kind is JobKind.TRAINING:
        return {"TRAINING_JOB_NAME": job.submission.name, **of_node}
    if job.submission.kind is JobKind.REPLICA:
        return {ADDRESS_VARIABLE: address_of(_machine(state, attempt.instance))}
    environment = {
        "AWS_BATCH_JOB_ID": job.id if nodes is None else f"{job.parent or job.id}#{job.node}",
        "AWS_BATCH_JOB_ATTEMPT": str(len(job.begun_attempts)),
        "AWS_BATCH_JQ_NAME": job.submission.queue,
        "AWS_BATCH_CE_NAME": attempt.environment,
        "AWS_EXECUTION_ENV": "AWS_ECS_EC2",
        **of_node,
    }
    if job.array_place is not None:
        index, size = job.array_place
        environment["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
        environment["AWS_BATCH_JOB_ARRAY_SIZE"] = str(size)
    return environment


def _launch(state: State, launch: Launch, round_: Round) -> None:
    state.launches += 1
    if launch.offer.machine is not None:
        state.shared_machines.add(launch.offer.machine)
    seed = f"{launch.environment}/{round_.now}/{state.launches}"
    instance_id = InstanceId(f"i-{hashlib.md5(seed.encode(), usedforsecurity=False).hexdigest()[:17]}")
    instance = Instance(
        instance_id,
        launch.environment,
        launch.offer.type,
        launch.offer.resources,
        machine=launch.offer.machine,
        launched_at=round_.now,
        is_share=launch.offer.machine is not None,
        usd_hour=launch.offer.usd_hour,
        on_demand_usd_hour=launch.offer.on_demand_usd_hour,
    )
    state.instances[instance_id] = round_.changes.instances[instance_id] = instance
    round_.instructions.append(LaunchInstance(instance_id, launch.environment, launch.offer))


def relaunch(instance: Instance) -> LaunchInstance:
    """The instruction for an instance that was launching when the daemon stopped."""
    offer = Offer(
        instance.type,
        instance.total,
        machine=instance.machine if instance.is_share else None,
        usd_hour=instance.usd_hour,
        on_demand_usd_hour=instance.on_demand_usd_hour,
    )
    return LaunchInstance(instance.id, instance.environment, offer)


def is_launching(instance: Instance) -> bool:
    """Whether an instance has not been reported ready."""
    return instance.state is InstanceState.LAUNCHING
