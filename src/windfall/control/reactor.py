"""The one door: an event goes in, the state moves, and the round knows what to write and what to ask for.

`handle` never does half of a command: a handler checks everything before it changes anything. `schedule` is called
once a round, after all its events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.control import (
    declaring,
    devices,
    events,
    interrupting,
    progress,
    reporting,
    stopping,
    submitting,
    timekeeping,
    training,
)
from windfall.control.blocked import note_blocked_heads
from windfall.control.growing import fail_the_outgrown
from windfall.control.instructions import InterruptAttempt, RecommendRebalance, StartAttempt
from windfall.control.lifecycle import settle
from windfall.control.placing import apply_plan
from windfall.control.round import Round
from windfall.control.snapshots import Offers, make_snapshot
from windfall.control.state import State
from windfall.control.state_limits import overdue_heads
from windfall.jobs.ids import JobId
from windfall.scheduling.planning import plan

Handler = Callable[[State, Any, Round], Any]
#: What makes no sense any more once an attempt has been closed.
_FOR_LIVE = StartAttempt | InterruptAttempt | RecommendRebalance


def _delete_queue(state: State, command: events.DeleteJobQueue, round_: Round) -> list[JobId]:
    left = declaring.on_delete_job_queue(state, command, round_)
    for job_id in left:
        stopping.on_terminate_job(state, events.TerminateJob(job_id, "Job queue deleted"), round_)
    return left


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
    events.TagResource: declaring.on_tag_resource,
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
    events.FenceDevice: devices.on_fence_device,
    events.TimePassed: lambda state, _, round_: timekeeping.on_time_passed(state, round_),
}


def handle(state: State, event: events.Event, round_: Round) -> Any:
    """Let one event happen; the answer is the command's reply. Raises Rejected with nothing changed."""
    reply = HANDLERS[type(event)](state, event, round_)
    if round_.ended:
        settle(state, round_)
    return reply


def schedule(state: State, offers: Offers, round_: Round) -> None:
    """Place what can be placed, if anything has changed since the last time."""
    state.offers = offers
    if not state.unsettled:
        return
    state.unsettled = False
    fail_the_outgrown(state, offers, round_)
    made = plan(make_snapshot(state, offers, round_.now))
    for refused in apply_plan(state, made, round_):
        handle(state, refused, round_)
    if note_blocked_heads(state, offers, round_):
        for overdue in overdue_heads(state, round_.now):
            handle(state, overdue, round_)


def close(state: State, round_: Round) -> None:
    """Bring what readers see of arrays up to date, once a round, and take back what was asked of closed attempts."""
    if round_.closed:
        round_.instructions = [
            asked
            for asked in round_.instructions
            if not (isinstance(asked, _FOR_LIVE) and asked.token in round_.closed)
        ]
    for job_id in list(round_.changes.jobs):
        table = state.children.get(job_id)
        if table is not None:
            job = state.jobs[job_id]
            job.summary, job.summary_at = table.summary(), round_.now
