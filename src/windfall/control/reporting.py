"""What engines report: instances come and go, attempts start, exit and get lost, agents connect again.

Reports may come late, twice, or about attempts that were superseded: each handler takes that as ordinary. An attempt
that the core does not know can change nothing; its agent is told to stop and forget it.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from functools import partial

from windfall.backoff import Pauses
from windfall.capacity.machines import InstanceState, Machine
from windfall.control.closing import close_attempt
from windfall.control.devices import keep_fences, leave_sick_devices
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptLost,
    AttemptStarted,
    InstanceLaunchFailed,
    InstanceLost,
    InstanceReady,
    IsolationChanged,
)
from windfall.control.gangs import waits_for_main
from windfall.control.instances import forget_machine, remove_instance, resize_instances
from windfall.control.instructions import ForgetAttempt, StartAttempt, StopAttempt, TerminateInstance
from windfall.control.interrupting import grace_of, stop_again
from windfall.control.lifecycle import note_child
from windfall.control.limits import watch
from windfall.control.machine_events import MachineRemoved, StandingChanged
from windfall.control.placing import start_again, start_nodes
from windfall.control.progress import note_marks, note_start
from windfall.control.round import Round
from windfall.control.standby import depth_of
from windfall.control.state import FailedLaunch, State
from windfall.jobs.attempts import TAKEN_AWAY, Attempt, StopCause
from windfall.jobs.ids import AttemptToken
from windfall.jobs.job import Job
from windfall.jobs.states import RUNNING, STARTING

#: How long a type of instance that could not be had is left alone: twice as long after every failure, up to a bound.
LAUNCH_AGAIN_MS = Pauses(5_000, 60_000)
#: Why an attempt has left whose tag has it stop when its machine is cut off.
ALONE = "its machine heard no daemon (windfall:partition=stop)"


def on_instance_ready(state: State, report: InstanceReady, round_: Round) -> None:
    """An instance can take attempts."""
    instance = state.instances.get(report.instance)
    if instance is None:
        # It was given up while it came, or a crash swallowed the instruction that ended it.
        forget_machine(state, report.machine.id, round_)
        round_.instructions.append(TerminateInstance(report.instance))
        return
    if instance.state is not InstanceState.LAUNCHING:
        return  # Said again after a restart; one that is to go away stays so.
    # A provider may launch a machine again that it took back a moment ago.
    state.gone_machines.pop(report.machine.id, None)
    _know_machine(state, report.machine, round_)
    instance.move(InstanceState.READY)
    instance.machine = report.machine.id
    state.failed_launches.pop((instance.environment, instance.type), None)
    round_.changes.instances[instance.id] = instance
    state.unsettled = True


def on_instance_launch_failed(state: State, report: InstanceLaunchFailed, round_: Round) -> None:
    """An instance could not be had: other types and environments have their turn until it is asked for again."""
    instance = state.instances.get(report.instance)
    if instance is None or instance.state is not InstanceState.LAUNCHING:
        return
    remove_instance(state, instance.id, round_)
    key = (instance.environment, instance.type)
    failures = state.failed_launches[key].failures + 1 if key in state.failed_launches else 1
    wait_ms = int(LAUNCH_AGAIN_MS.after(failures))
    state.failed_launches[key] = FailedLaunch(report.reason, failures, round_.now + wait_ms)


def on_instance_lost(state: State, report: InstanceLost, round_: Round) -> None:
    """An instance is gone, and all that ran there is lost with it."""
    instance = state.instances.get(report.instance)
    if instance is None:
        return
    use = state.occupancy.instances.get(report.instance)
    # Those that have nothing yet come first: they have lost nothing either.
    for token in sorted(use.holds, key=partial(depth_of, state), reverse=True) if use else []:
        on_attempt_lost(state, AttemptLost(token, round_.now), round_)
    if report.instance in state.instances:  # unless it was to go, and the last attempt took it along
        remove_instance(state, report.instance, round_)


def on_agent_connected(state: State, report: AgentConnected, round_: Round) -> None:
    """Reconcile what an agent knows with what we know; what was never delivered is asked for again."""
    _know_machine(state, report.machine, round_)
    for started in report.running:
        on_attempt_started(state, started, round_)
    for ended in report.ended:
        if isinstance(ended, AttemptExited):
            on_attempt_exited(state, ended, round_)
        else:
            on_attempt_lost(state, ended, round_)
    named = {started.token for started in report.running}.union(report.preparing)
    # An agent must know of an attempt before it hears who is behind it.
    for token in sorted(_tokens_on(state, report.machine), key=partial(depth_of, state)):
        job = state.attempts[token]
        attempt = job.attempt
        if attempt is None:
            continue
        if token in named:
            if attempt.stop_cause is not None:
                round_.instructions.append(stop_again(state, job, attempt))
        elif attempt.stop_cause is not None or not waits_for_main(state, job):
            round_.instructions.append(_ask_again(state, job, attempt))
    leave_sick_devices(state, report.machine.id, round_)


def _ask_again(state: State, job: Job, attempt: Attempt) -> StartAttempt | StopAttempt:
    """What to ask of an agent that does not name an attempt: to start it, if it may not have heard of it, or to stop.

    A start that was sent since the agent spoke may still reach it. Only its answer to a stop (`Lost` for an attempt
    that it does not know) proves that nothing runs and the place is free.
    """
    if job.state is STARTING and attempt.stop_cause is None:
        again = start_again(state, job, attempt)
        if isinstance(again, StartAttempt):
            return again
    return StopAttempt(attempt.token, attempt.instance, grace_of(state, job))


def _tokens_on(state: State, machine: Machine) -> list[AttemptToken]:
    return [
        token
        for instance in state.instances.values()
        if instance.machine == machine.id and instance.id in state.occupancy.instances
        for token in state.occupancy.instances[instance.id].holds
    ]


def _know_machine(state: State, machine: Machine, round_: Round) -> None:
    machine = keep_fences(state.machines.get(machine.id), machine)
    if machine.id not in state.gone_machines and state.machines.get(machine.id) != machine:
        state.machines[machine.id] = round_.changes.machines[machine.id] = machine
        resize_instances(state, round_)
        state.unsettled = True


def on_standing_changed(state: State, report: StandingChanged, round_: Round) -> None:
    """Place nothing new on a machine, or again; what runs there is not touched."""
    machine = state.machines.get(report.machine)
    if machine is not None and machine.closed != report.closed:
        machine = replace(machine, closed=report.closed)
        state.machines[machine.id] = round_.changes.machines[machine.id] = machine
        state.unsettled = True


def on_machine_removed(state: State, report: MachineRemoved, round_: Round) -> None:
    """Forget a machine that this daemon does not have any more; it may be added again later."""
    for instance in [each for each in state.instances.values() if each.machine == report.machine]:
        on_instance_lost(state, InstanceLost(instance.id), round_)
    state.shared_machines.discard(report.machine)
    if report.machine in state.machines:
        del state.machines[report.machine]
        state.occupancy.machines.pop(report.machine, None)
        round_.changes.machines[report.machine] = None
        state.unsettled = True


def on_attempt_started(state: State, report: AttemptStarted, round_: Round) -> None:
    """A process runs: the job is RUNNING, and its timeout begins."""
    job = state.attempts.get(report.token)
    if job is None:
        round_.instructions.append(StopAttempt(report.token, None, 0))
        return
    attempt = job.attempt
    if attempt is None:
        return
    if report.isolation is not None and attempt.isolation != report.isolation:
        attempt.isolation = report.isolation
        round_.changes.jobs[job.id] = job
    if job.state is STARTING:
        note_start(attempt, report)
        _begin(state, job, attempt, report.at, round_)


def on_isolation_changed(state: State, report: IsolationChanged, round_: Round) -> None:
    """Note it for readers; nothing depends on it."""
    job = state.attempts.get(report.token)
    if job is not None and job.attempt is not None:
        job.attempt.isolation = report.isolation
        round_.changes.jobs[job.id] = job


def _begin(state: State, job: Job, attempt: Attempt, at: int, round_: Round) -> None:
    job.move(RUNNING)
    attempt.started_at = job.started_at = at
    note_child(state, job, round_)
    if job.submission.timeout_s is not None and not job.is_node:
        heapq.heappush(state.deadlines, (at + job.submission.timeout_s * 1000, attempt.token))
    watch(state, job)
    round_.changes.jobs[job.id] = job
    nodes = job.submission.nodes
    if nodes is not None and job.is_gang and not nodes.peers:
        for refused in start_nodes(state, job, round_):
            on_attempt_exited(state, refused, round_)


def on_attempt_exited(state: State, report: AttemptExited, round_: Round) -> None:
    """A process ended, or could not be started."""
    round_.instructions.append(ForgetAttempt(report.token, None))
    job = state.attempts.get(report.token)
    if job is None or job.attempt is None:
        return
    attempt = job.attempt
    if job.state is STARTING and (report.started_at is not None or report.exit_code is not None):
        _begin(state, job, attempt, report.started_at or report.at, round_)
    if report.alone and attempt.stop_cause is None:
        attempt.stop_cause, attempt.stop_words = StopCause.INTERRUPTED, ALONE
        attempt.stop_at = report.exited_at or report.at
    attempt.exit_code, attempt.reason = report.exit_code, report.reason
    attempt.given_back = report.given_back and (
        attempt.stop_cause is None or attempt.stop_cause in TAKEN_AWAY
    )
    attempt.isolation = report.isolation or attempt.isolation
    attempt.failure, attempt.progress = report.failure, report.progress or attempt.progress
    attempt.diagnosis, attempt.left = report.diagnosis, report.left
    note_marks(attempt, report)
    close_attempt(state, job, attempt, report.at, round_, lost=False)


def on_attempt_lost(state: State, report: AttemptLost, round_: Round) -> None:
    """Nobody will ever know how it ended: closed as a lost host, and retried by rule."""
    round_.instructions.append(ForgetAttempt(report.token, None))
    job = state.attempts.get(report.token)
    if job is None or job.attempt is None:
        return
    attempt = job.attempt
    attempt.reason = None
    attempt.given_back = attempt.behind is not None  # It has lost nothing.
    close_attempt(state, job, attempt, report.at, round_, lost=True)
