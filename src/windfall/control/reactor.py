"""The one door: events go in, the state moves, and the round knows what to write and what to ask for.

`react` is one whole round, the same in the daemon and in the simulation: its events in order, the time, then the
schedule once. `handle` never does half of a command: a handler checks everything before it changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windfall.control import (
    calendar_declaring,
    calendar_runs,
    consumables,
    declaring,
    devices,
    events,
    holding,
    hosting,
    hosts,
    interrupting,
    log_groups,
    machine_events,
    policies,
    prioritizing,
    progress,
    quota_shares,
    reporting,
    service_environments,
    service_jobs,
    stopping,
    storage_places,
    submitting,
    timekeeping,
    training,
)
from windfall.control.commands import calendar as calendar_commands
from windfall.control.commands import consumables as consumable_commands
from windfall.control.commands import hosting as hosting_commands
from windfall.control.commands import hosts as host_commands
from windfall.control.commands import logs as log_commands
from windfall.control.commands import policies as policy_commands
from windfall.control.commands import service_jobs as service_commands
from windfall.control.commands import storage as storage_commands
from windfall.control.commands import turns as turn_commands
from windfall.control.growing import fail_the_outgrown
from windfall.control.instructions import InterruptAttempt, RecommendRebalance, StartAttempt
from windfall.control.lifecycle import settle
from windfall.control.look_ahead import look_ahead
from windfall.control.placing import apply_plan
from windfall.control.round import Round
from windfall.control.service_dispatch import serve_services
from windfall.control.snapshots import Offers, make_snapshot
from windfall.control.state import State
from windfall.control.state_changes import emit_round
from windfall.control.state_limits import note_blocked_heads, overdue_heads
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.job import Job
from windfall.scheduling.planning import plan

Handler = Callable[[State, Any, Round], Any]
#: What makes no sense any more once an attempt has been closed.
_FOR_LIVE = StartAttempt | InterruptAttempt | RecommendRebalance


def _delete_queue(state: State, command: events.DeleteJobQueue, round_: Round) -> list[JobId]:
    left = declaring.on_delete_job_queue(state, command, round_)
    for job_id in left:
        stopping.on_terminate_job(state, events.TerminateJob(job_id, "Job queue deleted"), round_)
    service_jobs.terminate_all(state, command.name, "Job queue deleted", round_)
    return left


def _delete_quota_share(
    state: State, command: policy_commands.DeleteQuotaShare, round_: Round
) -> list[JobId]:
    left = quota_shares.on_delete_quota_share(state, command, round_)
    for job_id in left:
        stopping.on_terminate_job(state, events.TerminateJob(job_id, "Quota share deleted"), round_)
    queue, _, share = command.key.partition("/")
    service_jobs.terminate_all(state, QueueName(queue), "Quota share deleted", round_, share)
    return left


def _start_run(state: State, command: calendar_commands.StartRun, round_: Round) -> Job:
    tick = calendar_runs.due_tick(state, command)
    job: Job = HANDLERS[type(command.command)](state, command.command, round_)
    calendar_runs.note_start(state, tick, job, round_)
    return job


HANDLERS: dict[type, Handler] = {
    events.CreateComputeEnvironment: declaring.on_create_compute_environment,
    events.UpdateComputeEnvironment: declaring.on_update_compute_environment,
    events.DeleteComputeEnvironment: declaring.on_delete_compute_environment,
    events.CreateJobQueue: declaring.on_create_job_queue,
    events.UpdateJobQueue: declaring.on_update_job_queue,
    events.DeleteJobQueue: _delete_queue,
    events.RegisterJobDefinition: declaring.on_register_job_definition,
    events.DeregisterJobDefinition: declaring.on_deregister_job_definition,
    events.AddImage: declaring.on_add_image,
    events.RemoveImage: declaring.on_remove_image,
    storage_commands.AddStorage: storage_places.on_add_storage,
    storage_commands.RemoveStorage: storage_places.on_remove_storage,
    host_commands.AddHost: hosts.on_add_host,
    host_commands.DrainHost: hosts.on_drain_host,
    host_commands.RemoveHost: hosts.on_remove_host,
    events.TagResource: declaring.on_tag_resource,
    consumable_commands.CreateConsumableResource: consumables.on_create_consumable_resource,
    consumable_commands.UpdateConsumableResource: consumables.on_update_consumable_resource,
    consumable_commands.DeleteConsumableResource: consumables.on_delete_consumable_resource,
    calendar_commands.CreateSchedule: calendar_declaring.on_create_schedule,
    calendar_commands.UpdateSchedule: calendar_declaring.on_update_schedule,
    calendar_commands.DeleteSchedule: calendar_declaring.on_delete_schedule,
    calendar_commands.CreateScheduleGroup: calendar_declaring.on_create_schedule_group,
    calendar_commands.DeleteScheduleGroup: calendar_declaring.on_delete_schedule_group,
    calendar_commands.TagSchedules: calendar_declaring.on_tag_schedules,
    calendar_commands.StartRun: _start_run,
    calendar_commands.TargetFailed: calendar_runs.on_target_failed,
    calendar_commands.DeadLetterWritten: calendar_runs.on_dead_letter_written,
    policy_commands.CreateSchedulingPolicy: policies.on_create_scheduling_policy,
    policy_commands.UpdateSchedulingPolicy: policies.on_update_scheduling_policy,
    policy_commands.DeleteSchedulingPolicy: policies.on_delete_scheduling_policy,
    policy_commands.CreateQuotaShare: quota_shares.on_create_quota_share,
    policy_commands.UpdateQuotaShare: quota_shares.on_update_quota_share,
    policy_commands.DeleteQuotaShare: _delete_quota_share,
    service_commands.CreateServiceEnvironment: service_environments.on_create_service_environment,
    service_commands.UpdateServiceEnvironment: service_environments.on_update_service_environment,
    service_commands.DeleteServiceEnvironment: service_environments.on_delete_service_environment,
    service_commands.SubmitServiceJob: service_jobs.on_submit_service_job,
    service_commands.UpdateServiceJob: service_jobs.on_update_service_job,
    service_commands.TerminateServiceJob: service_jobs.on_terminate_service_job,
    service_commands.TrainingRefused: service_jobs.on_training_refused,
    hosting_commands.CreateModel: hosting.on_create_model,
    hosting_commands.CreateEndpointConfig: hosting.on_create_endpoint_config,
    hosting_commands.CreateEndpoint: hosting.on_create_endpoint,
    hosting_commands.UpdateEndpoint: hosting.on_update_endpoint,
    hosting_commands.ResizeVariants: hosting.on_resize_variants,
    hosting_commands.DeleteHosted: hosting.on_delete_hosted,
    hosting_commands.TagHosted: hosting.on_tag_hosted,
    hosting_commands.ReplicaReady: hosting.on_replica_ready,
    hosting_commands.ReplicaSilent: hosting.on_replica_silent,
    hosting_commands.ReplicaDrained: hosting.on_replica_drained,
    log_commands.CreateLogGroup: log_groups.on_create_log_group,
    log_commands.DeleteLogGroup: log_groups.on_delete_log_group,
    log_commands.SetLogGroup: log_groups.on_set_log_group,
    events.SubmitJob: submitting.on_submit_job,
    events.SubmitTraining: training.on_submit_training,
    events.UpdateTraining: training.on_update_training,
    events.DeleteTraining: training.on_delete_training,
    events.InterruptJob: interrupting.on_interrupt_job,
    events.InterruptInstance: interrupting.on_interrupt_instance,
    events.InterruptionNoticed: interrupting.on_interruption_noticed,
    events.RebalanceRecommended: interrupting.on_rebalance_recommended,
    events.AttemptProgressed: progress.on_attempt_progressed,
    events.CancelJob: stopping.on_cancel_job,
    turn_commands.HoldJob: holding.on_hold_job,
    turn_commands.SetPriority: prioritizing.on_set_priority,
    turn_commands.ReleaseJob: holding.on_release_job,
    events.TerminateJob: stopping.on_terminate_job,
    events.InstanceReady: reporting.on_instance_ready,
    events.InstanceLost: reporting.on_instance_lost,
    events.InstanceLaunchFailed: reporting.on_instance_launch_failed,
    events.AttemptStarted: reporting.on_attempt_started,
    events.IsolationChanged: reporting.on_isolation_changed,
    events.AttemptExited: reporting.on_attempt_exited,
    events.AttemptLost: reporting.on_attempt_lost,
    events.AgentConnected: reporting.on_agent_connected,
    events.DevicesChanged: devices.on_devices_changed,
    machine_events.StandingChanged: reporting.on_standing_changed,
    machine_events.MachineRemoved: reporting.on_machine_removed,
    host_commands.FenceDevice: devices.on_fence_device,
    events.TimePassed: lambda state, _, round_: timekeeping.on_time_passed(state, round_),
}


#: How often time-driven rules (timeouts, idle instances, reservations, purge) are applied when nothing happens.
TICK_MS = 1_000


def react(
    state: State,
    happened: Iterable[tuple[events.Event, str | None]],
    offers: Callable[[State], Offers],
    round_: Round,
    *,
    placing: bool = True,
) -> list[Any]:
    """Let one round happen, and return the reply to each event: its answer, or why it was rejected.

    An event comes with the tenant that it is for. `placing` is False for a daemon that is being stopped.
    """
    replies = []
    for event, tenant in happened:
        try:
            reply: Any = handle(state, event, round_, tenant)
        except Rejected as rejected:
            reply = rejected
        replies.append(reply)
    due = timekeeping.next_due(state)
    # Also when the clock was set back: otherwise nothing would be due until it catches up.
    if not 0 <= round_.now - state.ticked_at < TICK_MS or (due is not None and due <= round_.now):
        state.ticked_at = round_.now
        handle(state, events.TimePassed(), round_)
    state.offers = offers(state)
    if placing:
        schedule(state, state.offers, round_)
    close(state, round_)
    return replies


def handle(state: State, event: events.Event, round_: Round, tenant: str | None = None) -> Any:
    """Let one event happen; the answer is the command's reply. Raises Rejected with nothing changed.

    For a command on behalf of a tenant the things of other tenants do not exist.
    """
    round_.tenant = tenant
    try:
        reply = HANDLERS[type(event)](state, event, round_)
    finally:
        round_.tenant = None
    if round_.ended:
        settle(state, round_)
    return reply


def schedule(state: State, offers: Offers, round_: Round) -> None:
    """Place what can be placed, if anything has changed since the last time."""
    state.offers = offers
    serve_services(state, round_)
    if round_.ended:
        settle(state, round_)
    if not state.unsettled:
        return
    state.unsettled = False
    fail_the_outgrown(state, offers, round_)
    made = plan(make_snapshot(state, offers, round_.now))
    # A share that has borrowed by it may be asked by an owner who had his turn before.
    state.unsettled = bool(state.quota_shares and made.placements)
    for refused in (*apply_plan(state, made, round_), *look_ahead(state, round_)):
        handle(state, refused, round_)
    if note_blocked_heads(state, offers, round_):
        for overdue in overdue_heads(state, round_.now):
            handle(state, overdue, round_)


def close(state: State, round_: Round) -> None:
    """Bring what readers see of arrays up to date, once a round, and take back what was asked of closed attempts."""
    service_jobs.follow(state, round_)
    hosting.tend(state, round_)
    if round_.closed:
        round_.instructions = [
            instruction
            for instruction in round_.instructions
            if not (isinstance(instruction, _FOR_LIVE) and instruction.token in round_.closed)
        ]
    for job_id in list(round_.changes.jobs):
        table = state.children.get(job_id)
        if table is not None:
            job = state.jobs[job_id]
            job.summary, job.summary_at = table.summary(), round_.now
    emit_round(state, round_)
