"""State from the store: everything derived (backlog, occupancy, dependants, child tables) is worked out again.

What was being done when the daemon stopped needs no record of its own: an instance that was LAUNCHING is asked for
again here, and an attempt that was STARTING is asked for again when its agent connects and does not know it.
"""

from __future__ import annotations

import heapq

from windfall.capacity.consumables import ConsumableResource
from windfall.capacity.environments import ServiceEnvironment
from windfall.capacity.hosts import Host
from windfall.capacity.policies import QuotaShare, SchedulingPolicy, ShareUse
from windfall.control.agenda import rebuild_agenda
from windfall.control.consumables import rebuild_holders
from windfall.control.gangs import may_wait_alone
from windfall.control.holding import let_wait
from windfall.control.instructions import Instruction
from windfall.control.interrupting import WITH_NOTICE, notice_of
from windfall.control.job_deadlines import watch_deadline
from windfall.control.limits import watch
from windfall.control.placing import is_launching, relaunch
from windfall.control.ports import Loaded
from windfall.control.service_dispatch import creations_after_restart
from windfall.control.service_use import rebuild_service_shares
from windfall.control.share_use import rebuild_shares
from windfall.control.standby import hold_of
from windfall.control.state import Rules, State, Waits
from windfall.control.state_changes import watch_loaded_jobs
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel
from windfall.jobs.arrays import ChildTable
from windfall.jobs.aws_texts import AwsQuotaReason, AwsReason
from windfall.jobs.dependencies import DependencyType
from windfall.jobs.ids import JobId, split_child
from windfall.jobs.job import Job
from windfall.jobs.job_users import TenantUser
from windfall.jobs.log_groups import LogGroup
from windfall.jobs.states import FAILED, PENDING, PLACED, RUNNABLE
from windfall.jobs.storage import StoragePlace
from windfall.schedules.schedule import Deletion, Schedule, ScheduleGroup


def rebuild(loaded: Loaded, rules: Rules) -> State:
    """The state that a daemon with this store had."""
    state = State(rules)
    state.environments = {environment.name: environment for environment in loaded.environments}
    state.queues = {queue.name: queue for queue in loaded.queues}
    for definition in loaded.definitions:
        state.definitions.setdefault(definition.name, {})[definition.revision] = definition
    state.images = {mapping.pattern: mapping for mapping in loaded.images}
    state.instances = {instance.id: instance for instance in loaded.instances}
    state.machines = {machine.id: machine for machine in loaded.machines}
    _rebuild_declared(state, loaded)
    state.last_order = loaded.last_order
    state.jobs = {job.id: job for job in loaded.jobs}
    _rebuild_children(state, loaded)
    rebuild_holders(state, loaded.jobs)
    watch_loaded_jobs(state)
    for job in loaded.jobs:
        if job.state is PENDING or job.is_array:
            _rebuild_waits(state, job)
    state.blocked = {
        job.id: job.status_reason
        for job in loaded.jobs
        if job.status_reason is not None and job.status_reason.startswith((*AwsReason, *AwsQuotaReason))
    }
    for job in sorted(loaded.jobs, key=lambda job: job.order):
        _rebuild_place(state, job)
        state.left_places.rebuild(job)
    rebuild_shares(state, [use for use in loaded.declared if isinstance(use, ShareUse)])
    rebuild_service_shares(state)
    state.shared_machines = {
        instance.machine
        for instance in loaded.instances
        if instance.is_share and instance.machine is not None
    }
    return state


def _rebuild_declared(state: State, loaded: Loaded) -> None:
    state.hosts = {it.name: it for it in loaded.declared if isinstance(it, Host)}
    for it in loaded.declared:
        match it:
            case SchedulingPolicy():
                state.policies[it.name] = it
            case QuotaShare():
                state.quota_shares[it.key] = it
            case ConsumableResource():
                state.consumables[it.name] = it
            case ServiceEnvironment():
                state.service_environments[it.name] = it
            case ScheduleGroup():
                state.schedule_groups[it.name] = it
            case Schedule():
                state.schedules[it.key] = it
            case Deletion():
                state.deletions[it.request] = it
            case LogGroup():
                state.log_groups[it.name] = it
            case TenantUser():
                state.job_users.add(it)
            case StoragePlace():
                state.storage_places[it.key] = it
    state.models = {it.name: it for it in loaded.declared if isinstance(it, HostedModel)}
    state.endpoint_configs = {it.name: it for it in loaded.declared if isinstance(it, HostedConfig)}
    state.endpoints = {it.name: it for it in loaded.declared if isinstance(it, HostedEndpoint)}
    state.deletions = dict(sorted(state.deletions.items(), key=lambda pair: pair[1].at))
    state.service_jobs = {job.id: job for job in loaded.service_jobs}
    state.ticks = {(tick.schedule, tick.due_at): tick for tick in loaded.ticks}
    rebuild_agenda(state)


def instructions_after_restart(state: State) -> list[Instruction]:
    """What was decided before the restart and may not have been done."""
    again: list[Instruction] = [
        relaunch(instance) for instance in state.instances.values() if is_launching(instance)
    ]
    attempts = (job.attempt for job in state.attempts.values())
    again += creations_after_restart(state)
    again += [
        notice_of(attempt)
        for attempt in attempts
        if attempt is not None and attempt.stop_cause in WITH_NOTICE
    ]
    return again


def _rebuild_children(state: State, loaded: Loaded) -> None:
    for job in loaded.jobs:
        if job.is_array and job.submission.array_size is not None and job.rest is not None:
            table = ChildTable.of(job.submission.array_size, job.rest)
            table.rest_reason, table.rest_at = job.rest_reason, job.rest_at
            state.children[job.id] = table
    for parent, index, child_state in loaded.finished_children:
        if parent in state.children:
            state.children[parent].load(index, child_state)
    for job in loaded.jobs:
        if job.parent is not None and job.index is not None:
            job.submission = state.jobs[job.parent].submission
            if job.parent in state.children:
                state.children[job.parent].load(job.index, job.state)


def _rebuild_waits(state: State, job: Job) -> None:
    """A dependency that is not live any more has succeeded: had it failed, this job would have failed with it.

    Of an array that is followed child by child each child has: those that followed a failed one failed with it.
    """
    waits = Waits()
    for dependency in job.submission.depends_on:
        if dependency.type is DependencyType.SEQUENTIAL and job.submission.array_size is not None:
            waits.sequential = waits.by_child = True
        if dependency.type is DependencyType.N_TO_N:
            waits.by_child = True
        if dependency.job_id is None or not _is_live(state, dependency.job_id):
            continue
        (waits.n_to_n if dependency.type is DependencyType.N_TO_N else waits.whole).add(dependency.job_id)
    if job.parent is not None or not (waits.whole or waits.by_child):
        return
    if job.is_array and not waits.by_child and job.rest is not PENDING:
        return
    state.waits[job.id] = waits
    for awaited in waits.whole | waits.n_to_n:
        state.dependents.setdefault(awaited, []).append(job.id)


def _is_live(state: State, job_id: JobId) -> bool:
    if job_id in state.jobs:
        return True
    parent, index = split_child(job_id)
    table = state.children.get(parent)
    return (
        index is not None
        and table is not None
        and index < table.size
        and not table.recorded[index]
        and table.rest is not FAILED
    )


def _rebuild_place(state: State, job: Job) -> None:
    watch_deadline(state, job, 0)
    if job.is_array:
        table = state.children[job.id]
        if table.waiting:
            let_wait(state, job, table.waiting)
    elif job.state is RUNNABLE and (not job.is_node or may_wait_alone(state, job)):
        let_wait(state, job)
        if job.gpu_memory_floor_mib is not None:
            state.outgrown.add(job.id)
        watch(state, job)
    elif job.state in PLACED and job.attempt is not None:
        attempt = job.attempt
        state.attempts[attempt.token] = job
        if attempt.behind is not None:
            state.standbys[attempt.behind] = attempt.token
        watch(state, job)
        instance = state.instances.get(attempt.instance)
        if instance is not None:
            state.occupancy.take(attempt.token, hold_of(job, attempt), instance)
        if (
            attempt.started_at is not None
            and job.submission.timeout_s is not None
            and not job.is_node
            and attempt.stop_cause is None
        ):
            heapq.heappush(
                state.deadlines, (attempt.started_at + job.submission.timeout_s * 1000, attempt.token)
            )
