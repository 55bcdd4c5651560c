"""Capacity that is taken away: notice to attempts, from an engine, for a job on demand, or as a drill.

An attempt with notice keeps its place until it has left or the deadline is over; how its end is read is closing.py's.
The notice lives in the attempt, so it is given again, with the same deadline, whenever its agent may not have heard it.
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.capacity.machines import InstanceState
from windfall.control.events import InterruptInstance, InterruptionNoticed, InterruptJob, RebalanceRecommended
from windfall.control.gangs import hold_back, leaves_alone, members
from windfall.control.instances import let_go_if_left
from windfall.control.instructions import InterruptAttempt, RecommendRebalance, StopAttempt
from windfall.control.ownership import live_job, serves_others
from windfall.control.round import Round
from windfall.control.standby import standbys_of
from windfall.control.state import State
from windfall.jobs.attempts import PREEMPTIONS, TAKEN_AWAY, Attempt, LeftPlace, StopCause
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import InstanceId, JobId, child_id, split_child, split_node
from windfall.jobs.job import Job, JobKind
from windfall.scheduling.snapshot import Preemption, Reclaim

#: Attempts that are asked to leave for these reasons are told when, and may save until then.
WITH_NOTICE = TAKEN_AWAY | {StopCause.BUDGET}
DRILL = "drill"
#: An attempt that is stopped for these reasons has as long to be saved as its process had to end,
_HURRIED = frozenset((StopCause.TERMINATED, StopCause.TIMED_OUT))
#: and at least this long: a grace may be none at all.
LEAST_SAVING_S = 10.0
#: What AWS writes before the reason while a job is on its way out for another one of its queue.
PREEMPTION_IN_PROGRESS = "PREEMPTION_IN_PROGRESS"
_PREEMPTED = {
    Preemption.CROSS_SHARE: StopCause.PREEMPTED,
    Preemption.IN_SHARE: StopCause.OUTRANKED,
}


def give_notice(
    state: State,
    job: Job,
    deadline_at: int,
    words: str,
    round_: Round,
    *,
    cause: StopCause = StopCause.INTERRUPTED,
    for_job: JobId | None = None,
) -> bool:
    """Tell an attempt that its place goes away, and with it all nodes of its gang, unless lost nodes are replaced.

    The answer is whether anybody has notice now.
    """
    together = [job] if leaves_alone(job) else members(state, job)
    noticed = [
        _tell(state, member, deadline_at, words, round_, cause, for_job if member is job else None)
        for member in together
    ]
    if job.submission.nodes is not None and together[0].is_gang:
        hold_back(state, together[0])
    return any(noticed)


def _tell(
    state: State,
    job: Job,
    deadline_at: int,
    words: str,
    round_: Round,
    cause: StopCause,
    for_job: JobId | None,
) -> bool:
    """Tell one attempt; one that is asked to stop already only learns of an earlier end."""
    attempt = job.attempt
    if attempt is None:
        return False
    if attempt.stop_cause is None:
        attempt.stop_cause, attempt.stop_at = cause, round_.now
        attempt.deadline_at, attempt.stop_words = deadline_at, words
        if for_job is not None:
            _leave_to(state, attempt, for_job, round_)
    elif attempt.stop_cause in WITH_NOTICE and deadline_at < (attempt.deadline_at or 0):
        attempt.deadline_at = deadline_at
    else:
        return attempt.stop_cause in WITH_NOTICE
    round_.changes.jobs[job.id] = job
    round_.instructions.append(notice_of(attempt))
    if cause in TAKEN_AWAY:
        # What is behind it would begin in a place that is promised to another, or gone.
        for standby in standbys_of(state, attempt.token):
            _tell(state, standby, deadline_at, words, round_, cause, None)
    return True


def _leave_to(state: State, attempt: Attempt, job_id: JobId, round_: Round) -> None:
    """Write down, with the one that leaves and with the job that it leaves for, whose its place is to be."""
    attempt.stop_for = job_id
    machine = state.instances[attempt.instance].machine
    if machine is not None:
        job = state.jobs[job_id]
        state.left_places.note(job, LeftPlace(attempt.token, machine, attempt.deadline_at or round_.now))
        round_.changes.jobs[job_id] = job


def ask_to_stop(state: State, jobs: Iterable[Job], cause: StopCause, round_: Round) -> None:
    """Have the attempts of these jobs stopped, with the usual grace."""
    for job in jobs:
        attempt = job.attempt
        if attempt is None:
            continue
        attempt.stop_cause, attempt.stop_at = cause, round_.now
        round_.changes.jobs[job.id] = job
        round_.instructions.append(_stop_of(state, job, attempt))


def notice_of(attempt: Attempt) -> InterruptAttempt:
    """The instruction for an attempt that has notice, the same every time."""
    deadline_at = attempt.deadline_at or attempt.stop_at or 0
    return InterruptAttempt(attempt.token, attempt.instance, deadline_at, attempt.stop_words or "")


def stop_again(state: State, job: Job, attempt: Attempt) -> InterruptAttempt | StopAttempt:
    """The instruction for an attempt that was asked to stop, for an agent that may not have heard of it."""
    if attempt.stop_cause in WITH_NOTICE:
        return notice_of(attempt)
    return _stop_of(state, job, attempt)


def _stop_of(state: State, job: Job, attempt: Attempt) -> StopAttempt:
    """The instruction to stop; somebody waits for the place of one that is not to go on, so its saving is bounded."""
    grace_s = grace_of(state, job)
    return StopAttempt(
        attempt.token,
        attempt.instance,
        grace_s,
        save_within_s=max(grace_s, LEAST_SAVING_S) if attempt.stop_cause in _HURRIED else None,
        gives_up=attempt.stop_cause is StopCause.TERMINATED,
    )


def grace_of(state: State, job: Job) -> float:
    """How long a job's process has between SIGTERM and SIGKILL, in seconds."""
    training = job.submission.kind is JobKind.TRAINING
    return state.rules.training_grace_s if training else state.rules.grace_s


def on_interrupt_job(state: State, command: InterruptJob, round_: Round) -> int:
    """Take the place of a job, or of all children of an array, away; the reply is how many attempts have notice."""
    deadline_at = _deadline(command.notice_s, round_)
    gang_id, number = split_node(command.job_id)
    gang = None if number is None else live_job(state, gang_id, round_)
    # The main node has no job of its own.
    job = gang if gang is not None and gang.node == number else live_job(state, command.job_id, round_)
    parent, index = split_child(command.job_id)
    if job is None and (index is None or live_job(state, parent, round_) is None):
        raise NotFound(
            f"Job {command.job_id} does not exist, or has finished; `windfall jobs` shows what runs"
        )
    if job is None:
        return 0
    jobs = members(state, job) if job.is_gang else [job]
    if job.is_array:
        ids = (child_id(job.id, number) for number in range(state.children[job.id].size))
        jobs = [state.jobs[job_id] for job_id in ids if job_id in state.jobs]
    return sum(give_notice(state, child, deadline_at, DRILL, round_) for child in jobs)


def on_interrupt_instance(state: State, command: InterruptInstance, round_: Round) -> int:
    """Take an instance away, with notice to all that runs there; the reply is how many attempts have it."""
    deadline_at = _deadline(command.notice_s, round_)
    if command.instance not in state.instances:
        raise NotFound(f"Instance {command.instance} does not exist; `windfall status` shows what there is")
    if serves_others(state, command.instance, round_):
        raise Invalid(
            f"Instance {command.instance} also runs jobs of other tenants, so only an admin key can take it away;"
            " name a job of your own instead"
        )
    return take_away(state, command.instance, deadline_at, DRILL, round_)


def on_interruption_noticed(state: State, report: InterruptionNoticed, round_: Round) -> None:
    """An instance will go: nothing new is placed there, and what runs has until then."""
    if report.instance in state.instances:
        take_away(state, report.instance, report.deadline_at, report.words, round_)


def on_rebalance_recommended(state: State, report: RebalanceRecommended, round_: Round) -> None:
    """Pass a warning on to what runs on an instance; nothing else depends on it."""
    use = state.occupancy.instances.get(report.instance)
    for token in use.holds if use is not None else ():
        attempt = state.attempts[token].attempt
        if attempt is not None and attempt.stop_cause is None:
            round_.instructions.append(RecommendRebalance(token, report.instance, round_.now))


def take_back(state: State, reclaim: Reclaim, round_: Round) -> None:
    """Ask an attempt to leave its place to a job that may have it."""
    victim, job = state.attempts[reclaim.token], state.jobs[reclaim.for_job]
    deadline_at = round_.now + int(state.rules.notice_s * 1000)
    if reclaim.preemption is None:
        words = f"{_named(job, victim)} of queue {job.submission.queue} takes its place back"
        give_notice(state, victim, deadline_at, words, round_, for_job=job.id)
        return
    cause = _PREEMPTED[reclaim.preemption]
    words = f"{_named(job, victim)} of quota share {job.submission.share} takes its place"
    if reclaim.preemption is Preemption.IN_SHARE:
        words += f": its priority is {job.submission.priority}, and {victim.submission.priority} here"
    # Of several who leave for one place of an array, which has many, one stands for it.
    for_job = None if reclaim.beside and job.is_array else job.id
    if give_notice(state, victim, deadline_at, words, round_, cause=cause, for_job=for_job):
        for member in [victim] if leaves_alone(victim) else members(state, victim):
            if member.attempt is not None:
                member.status_reason = f"{PREEMPTION_IN_PROGRESS}: {PREEMPTIONS[cause]}"


def _named(job: Job, victim: Job) -> str:
    """The job that a place goes to, in words for the one that leaves; a tenant learns nothing of another's jobs."""
    if job.submission.submitter.tenant != victim.submission.submitter.tenant:
        return "a job"
    return f"job {job.id} ({job.submission.name})"


def _deadline(notice_s: float, round_: Round) -> int:
    if not 0 <= notice_s <= 86_400:
        raise Invalid(f"A notice of {notice_s} s makes no sense; give 0 to 86,400 seconds")
    return round_.now + int(notice_s * 1000)


def take_away(state: State, instance_id: InstanceId, deadline_at: int, words: str, round_: Round) -> int:
    """Let an instance go at a deadline, with notice to all that runs there; the answer is how many have it."""
    instance = state.instances[instance_id]
    if instance.reclaim_at is None or deadline_at < instance.reclaim_at:
        if instance.state is not InstanceState.TERMINATING:
            instance.move(InstanceState.TERMINATING)
        instance.reclaim_at = deadline_at
        round_.changes.instances[instance_id] = instance
        state.unsettled = True
    use = state.occupancy.instances.get(instance_id)
    jobs = [state.attempts[token] for token in use.holds] if use is not None else []
    noticed = sum(give_notice(state, job, instance.reclaim_at, words, round_) for job in jobs)
    let_go_if_left(state, instance, round_)
    return noticed
