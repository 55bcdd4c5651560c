"""From the scheduler's plan to attempts and instances: carries out what the plan says.

The plan was made from this very state in this very round, so it is applied without a second look; the occupancy
refuses if that were ever wrong.
"""

from __future__ import annotations

import hashlib

from windfall.capacity.machines import Hold, Instance, InstanceState, Offer
from windfall.control.changes import LogStream
from windfall.control.events import AttemptExited
from windfall.control.instructions import LaunchInstance, StartAttempt, TerminateInstance
from windfall.control.lifecycle import recorded_child, touch
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.definitions import ContainerSpec, effective_container
from windfall.jobs.ids import InstanceId, attempt_token, task_id
from windfall.jobs.images import host_command, not_runnable_reason
from windfall.jobs.job import Job
from windfall.jobs.states import STARTING
from windfall.scheduling.snapshot import Launch, Placement, Plan


def apply_plan(state: State, plan: Plan, round_: Round) -> list[AttemptExited]:
    """Carry out a plan; the answer is the attempts that could not even be asked for (no image)."""
    refused = []
    for placement in plan.placements:
        report = _place(state, placement, round_)
        if report is not None:
            refused.append(report)
    for launch in plan.launches:
        _launch(state, launch, round_)
    for instance_id in plan.terminations:
        _terminate(state, instance_id, round_)
    state.reservations = {r.job_id: (r.instance, r.expected_at) for r in plan.reservations}
    return refused


def _place(state: State, placement: Placement, round_: Round) -> AttemptExited | None:
    job = state.jobs[placement.job_id]
    state.backlog.take(job)
    if job.is_array:
        index = state.children[job.id].next_at_rest()
        assert index is not None, f"{job.story()} has no child left to place"
        job = recorded_child(state, job, index, round_)
    instance = state.instances[placement.instance]
    definition = state.definition(job.submission.definition)
    assert definition is not None, f"{job.story()} has lost its definition"
    container = effective_container(definition, job.submission.overrides, job.submission.parameters)
    attempt = _new_attempt(job, instance, container, placement.gpu_ids, definition.name, round_.now)
    job.attempts.append(attempt)
    job.move(STARTING)
    if job.parent is not None and job.index is not None:
        state.children[job.parent].move(job.index, STARTING)
        touch(state, job.parent, round_)
    state.attempts[attempt.token] = job
    hold = Hold(instance.id, job.submission.resources, placement.gpu_ids)
    state.occupancy.take(attempt.token, hold, instance)
    round_.changes.jobs[job.id] = job
    round_.changes.log_streams[attempt.task_id] = LogStream(
        container.log_group, attempt.log_stream, attempt.task_id, job.id, round_.now
    )
    start = _start(state, job, attempt, container)
    if isinstance(start, AttemptExited):
        return start
    round_.instructions.append(start)
    return None


def _new_attempt(
    job: Job,
    instance: Instance,
    container: ContainerSpec,
    gpu_ids: tuple[str, ...],
    definition: str,
    now: int,
) -> Attempt:
    number = len(job.attempts) + 1
    token = attempt_token(job.id, number)
    task = task_id(token, now)
    stream = f"{(container.log_prefix or definition)[:200]}/default/{task}"
    return Attempt(number, token, task, instance.environment, instance.id, gpu_ids, stream, now)


def start_again(state: State, job: Job, attempt: Attempt) -> StartAttempt | AttemptExited:
    """The instruction for an attempt that has a place but may never have reached its agent."""
    definition = state.definition(job.submission.definition)
    assert definition is not None, f"{job.story()} has lost its definition"
    container = effective_container(definition, job.submission.overrides, job.submission.parameters)
    return _start(state, job, attempt, container)


def _start(
    state: State, job: Job, attempt: Attempt, container: ContainerSpec
) -> StartAttempt | AttemptExited:
    """What the agent is to run, or the end of an attempt whose image stands for nothing here."""
    command = host_command(container, state.images.values())
    if command is None:
        return AttemptExited(attempt.token, attempt.placed_at, None, not_runnable_reason(container.image))
    return StartAttempt(
        attempt.token,
        attempt.task_id,
        attempt.instance,
        command.argv,
        {**command.environment, **_injected(job, attempt)},
        command.directory,
        job.submission.resources,
        attempt.gpu_ids,
        container.shared_memory_mib,
        state.many_tenants,
    )


def _injected(job: Job, attempt: Attempt) -> dict[str, str]:
    """The variables that AWS Batch gives every job."""
    environment = {
        "AWS_BATCH_JOB_ID": job.id,
        "AWS_BATCH_JOB_ATTEMPT": str(attempt.number),
        "AWS_BATCH_JQ_NAME": job.submission.queue,
        "AWS_BATCH_CE_NAME": attempt.environment,
        "AWS_EXECUTION_ENV": "AWS_ECS_EC2",
    }
    if job.index is not None:
        environment["AWS_BATCH_JOB_ARRAY_INDEX"] = str(job.index)
        environment["AWS_BATCH_JOB_ARRAY_SIZE"] = str(job.submission.array_size)
    return environment


def _launch(state: State, launch: Launch, round_: Round) -> None:
    state.launches += 1
    seed = f"{launch.environment}/{round_.now}/{state.launches}"
    instance_id = InstanceId(f"i-{hashlib.md5(seed.encode(), usedforsecurity=False).hexdigest()[:17]}")
    instance = Instance(
        instance_id,
        launch.environment,
        launch.offer.type,
        launch.offer.resources,
        launched_at=round_.now,
        is_share=launch.offer.machine is not None,
    )
    state.instances[instance_id] = round_.changes.instances[instance_id] = instance
    round_.instructions.append(LaunchInstance(instance_id, launch.environment, launch.offer))


def _terminate(state: State, instance_id: InstanceId, round_: Round) -> None:
    del state.instances[instance_id]
    state.occupancy.instances.pop(instance_id, None)
    round_.changes.instances[instance_id] = None
    round_.instructions.append(TerminateInstance(instance_id))


def relaunch(instance: Instance) -> LaunchInstance:
    """The instruction for an instance that was launching when the daemon stopped."""
    return LaunchInstance(instance.id, instance.environment, Offer(instance.type, instance.total))


def is_launching(instance: Instance) -> bool:
    """Whether an instance has not been reported ready."""
    return instance.state is InstanceState.LAUNCHING
