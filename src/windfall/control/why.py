"""Why a live job is where it is: dependencies, the scheduler's own explanation, or what its attempt is doing.

Built from what the reactor and the scheduler themselves read. Must not guess: what is not known is not said.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.capacity.environments import JobQueue
from windfall.control.backlog import scheduling_class_of, shape_of
from windfall.control.gangs import gang_of, may_wait_alone, members, waits_for_main
from windfall.control.holding import held_by
from windfall.control.interrupting import WITH_NOTICE
from windfall.control.job_deadlines import deadline_reasons
from windfall.control.snapshots import Offers, make_snapshot
from windfall.control.state import State
from windfall.control.state_limits import due_at, reason_code
from windfall.jobs.attempts import Attempt, StopCause
from windfall.jobs.ids import JobId, split_child, split_node
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, RUNNING, STARTING, JobState
from windfall.scheduling.counterfactuals import AskLessGpuMemory
from windfall.scheduling.dispatch_order import jobs_ahead
from windfall.scheduling.explain import Explanation, explain
from windfall.scheduling.gpu_reasons import GpusFenced
from windfall.scheduling.reasons import RoomTaken
from windfall.scheduling.snapshot import Snapshot
from windfall.scheduling.wording import Resource, amount_of, counted, utc

#: Jobs that are named as the ones that hold what another waits for.
NAMED_HOLDERS = 3
#: Machines that take nothing new which are named.
CLOSED_NAMED = 5


@dataclass(frozen=True, slots=True)
class Why:
    """An answer for people, with stable codes for programs."""

    job_id: JobId
    state: JobState
    #: (code, sentence), the most important first.
    reasons: list[tuple[str, str]]
    #: What change would let it start.
    changes: list[str] = field(default_factory=list)
    expected_at: int | None = None
    #: AWS's own reason, where AWS has one.
    aws_reason: str | None = None


def why(state: State, job_id: JobId, offers: Offers, now: int) -> Why | None:
    """Why this live job is where it is; None when it is not live."""
    gang_id, number = split_node(job_id)
    if number is not None and gang_id in state.jobs and state.jobs[gang_id].node == number:
        job_id = gang_id  # The main node has no job of its own.
    parent_id, index = split_child(job_id)
    job = state.jobs.get(job_id)
    if (
        job is None
        and index is not None
        and parent_id in state.children
        and index < state.children[parent_id].size
    ):
        return _child_at_rest(state, state.jobs[parent_id], index, offers, now)
    if job is None:
        return None
    if job.is_array:
        return _array(state, job, offers, now)
    if job.state is PENDING:
        return Why(job.id, job.state, [*_held(state, job), *_dependencies(state, job)])
    if (of_gang := _in_gang(state, job)) is not None:
        return Why(job.id, job.state, [of_gang])
    if job.state is RUNNABLE:
        return _waiting(state, job, offers, now)
    return Why(job.id, job.state, [_placed(job, now), *deadline_reasons(state, job, now)])


def _in_gang(state: State, job: Job) -> tuple[str, str] | None:
    """What only nodes of multi-node jobs wait for: one another."""
    gang, ended = gang_of(state, job), bool(job.attempts) and job.attempt is None
    if job.is_node and job.state is RUNNABLE and not may_wait_alone(state, job):
        return ("gang", f"waits with the other nodes of job {gang.id}")
    if job.is_node and job.attempt is not None and waits_for_main(state, job):
        return ("main_node", f"has its place and starts when the main node of job {gang.id} runs")
    if job.state is RUNNABLE or not (job.is_gang or job.is_node) or not ended:
        return None
    nodes = job.submission.nodes
    if nodes is not None and nodes.peers:
        return ("ended", f"has ended; job {gang.id} goes on until its last node ends")
    if job.is_node and gang.attempt is not None:
        return ("ended", f"has ended; job {gang.id} goes on until its main node ends")
    left = sum(member.attempt is not None for member in members(state, job))
    return ("stopping", f"its main node has ended, and {left} of the others are being stopped")


def _child_at_rest(state: State, array: Job, index: int, offers: Offers, now: int) -> Why | None:
    table = state.children[array.id]
    if table.recorded[index] or table.rest is FAILED:
        return None
    answer = _array(state, array, offers, now)
    return Why(
        JobId(f"{array.id}:{index}"),
        table.rest,
        answer.reasons,
        answer.changes,
        answer.expected_at,
        answer.aws_reason,
    )


def _array(state: State, job: Job, offers: Offers, now: int) -> Why:
    table = state.children[job.id]
    counts = ", ".join(f"{count:,} {name}" for name, count in table.summary().items() if count)
    reasons = [("array", f"an array of {table.size:,}: {counts}")]
    waits = state.waits.get(job.id)
    if waits is not None and (waits.whole or waits.n_to_n or waits.sequential):
        reasons += _dependencies(state, job)
    reasons += _held(state, job)
    if table.waiting and job.held_by is None:
        waiting = _waiting(state, job, offers, now)
        return Why(
            job.id,
            job.state,
            reasons + waiting.reasons,
            waiting.changes,
            waiting.expected_at,
            waiting.aws_reason,
        )
    return Why(job.id, job.state, reasons)


def _dependencies(state: State, job: Job) -> list[tuple[str, str]]:
    waits = state.waits.get(job.id)
    whole, n_to_n = (sorted(waits.whole), sorted(waits.n_to_n)) if waits else ([], [])
    reasons = [
        ("dependency", f"waits for job {awaited} to succeed, which is {_state_text(state, awaited)}")
        for awaited in whole
    ]
    reasons += [
        ("dependency", f"each child waits for the same child of {array_id} (N_TO_N)") for array_id in n_to_n
    ]
    if waits and waits.sequential:
        reasons.append(("dependency", "each child waits for the one before it (SEQUENTIAL)"))
    if job.cancelled:
        reasons.append(("cancelled", "is cancelled, and will end when the jobs it depends on have ended"))
    return reasons or [("dependency", "its dependencies are being looked at")]


def _state_text(state: State, job_id: JobId) -> str:
    job = state.jobs.get(job_id)
    if job is not None:
        return f"{job.state} ({job.submission.name})"
    parent, index = split_child(job_id)
    table = state.children.get(parent)
    return str(table.state(index)) if table is not None and index is not None else "finished"


def _held(state: State, job: Job) -> list[tuple[str, str]]:
    who = held_by(state, job)
    whole = job.parent or job.id
    text = f"is held by {who}, and starts after `windfall release {whole}`; ask {who} before you do that"
    return [] if who is None else [("held", text)]


def _waiting(state: State, job: Job, offers: Offers, now: int) -> Why:
    if reasons := _held(state, job):
        return Why(job.id, job.state, [*reasons, *_taken_away(job)], [])
    waiting = state.backlog.find(job)
    if waiting is None:
        return Why(job.id, job.state, [("settling", "has just become RUNNABLE and is being looked at")])
    snapshot = make_snapshot(state, offers, now)
    view = next(view for view in snapshot.queues if view.queue.name == job.submission.queue)
    ahead = jobs_ahead(view, waiting, scheduling_class_of(job))
    explanation = explain(
        snapshot, job.submission.queue, shape_of(job), waiting, ahead, scheduling_class_of(job)
    )
    return Why(
        job.id,
        job.state,
        [
            *_taken_away(job),
            *deadline_reasons(state, job, now),
            *_outgrown(job),
            *((reason.code, reason.text()) for reason in explanation.reasons),
            *_held_by(state, job, explanation, now),
            *_fenced_beside(snapshot, view.queue, job, explanation),
            *_closed_machines(snapshot),
            *_limited(state, job),
        ],
        [
            change.text()
            for change in explanation.counterfactuals
            # What has turned out to be too small is not advice.
            if not (isinstance(change, AskLessGpuMemory) and job.gpu_memory_floor_mib is not None)
        ],
        explanation.expected_at,
        explanation.aws_reason,
    )


def _held_by(state: State, job: Job, explanation: Explanation, now: int) -> list[tuple[str, str]]:
    """Which jobs hold what it needs, those that hold most first; those of other tenants are only counted."""
    said: list[tuple[str, str]] = []
    for reason in explanation.reasons:
        if not isinstance(reason, RoomTaken):
            continue
        machine = state.instances[reason.instance].machine
        uses = [
            state.occupancy.instances[instance.id]
            for instance in state.instances.values()
            if instance.id in state.occupancy.instances
            and (instance.id == reason.instance or (machine is not None and instance.machine == machine))
        ]
        holders = [
            (reason.resource.of(hold.resources), state.attempts[token])
            for use in uses
            for token, hold in use.holds.items()
            if token in state.attempts and reason.resource.of(hold.resources)
        ]
        holders.sort(key=lambda pair: -pair[0])
        tenant = job.submission.submitter.tenant
        own = [pair for pair in holders if pair[1].submission.submitter.tenant == tenant]
        said += [
            ("held_by", _holder(reason.resource, amount, holder, now))
            for amount, holder in own[:NAMED_HOLDERS]
        ]
        if others := len(holders) - len(own[:NAMED_HOLDERS]):
            whose = " of other tenants" if len(own) <= NAMED_HOLDERS else ""
            said.append(("held_by", f"{counted(others, 'more job', 'more jobs')}{whose} hold the rest"))
    return said


def _holder(resource: Resource, amount: float, job: Job, now: int) -> str:
    attempt, limit_s = job.attempt, job.submission.timeout_s
    holds = f"job {job.id} ({job.submission.name}) holds {amount_of(resource, amount)}"
    if attempt is None or attempt.started_at is None:
        return f"{holds} and is starting"
    if limit_s is None:
        return f"{holds}, has run for {(now - attempt.started_at) // 1000:,} s and has no time limit"
    return f"{holds} until {utc(attempt.started_at + limit_s * 1000)} at the latest"


def _taken_away(job: Job) -> list[tuple[str, str]]:
    """Why it waits again, if its last place was taken away."""
    last = job.attempts[-1] if job.attempts else None
    if last is None or not last.interrupted:
        return []
    words = last.stop_words or "its instance was lost without notice"
    resumes = "" if last.checkpoint is None else f"; it goes on from checkpoint {last.checkpoint.name}"
    return [("interrupted", f"attempt {last.number} was interrupted: {words}{resumes}")]


def _fenced_beside(
    snapshot: Snapshot, queue: JobQueue, job: Job, explanation: Explanation
) -> list[tuple[str, str]]:
    """GPUs of its machines that are kept from everybody, where it waits for others that are merely taken."""
    if not job.submission.resources.gpus or any(
        reason.code == GpusFenced.code for reason in explanation.reasons
    ):
        return []
    said: list[tuple[str, str]] = []
    for instance in snapshot.instances:
        machine = snapshot.machines.get(instance.machine) if instance.machine is not None else None
        if machine is None or instance.environment not in queue.environments or not machine.devices.fenced:
            continue
        fenced = tuple(machine.devices.fenced.items())
        reason = GpusFenced(instance.environment, instance.id, fenced, len(machine.devices.devices))
        said.append((reason.code, reason.text()))
    return said


def _closed_machines(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The machines that take nothing new, and why, up to a number that can be read."""
    closed = [machine.closed for machine in snapshot.machines.values() if machine.closed is not None]
    said = [("machine_closed", f"{text}; nothing new is placed there") for text in closed[:CLOSED_NAMED]]
    if len(closed) > CLOSED_NAMED:
        said.append(("machine_closed", f"{len(closed) - CLOSED_NAMED} more machines take nothing new"))
    return said


def _outgrown(job: Job) -> list[tuple[str, str]]:
    """Why it waits again, if a GPU's memory was too small for it."""
    last = job.attempts[-1] if job.attempts else None
    if last is None or not job.outgrew(last):
        return []
    return [("larger_gpu", f"attempt {last.number} ran out of GPU memory: {last.stop_words}")]


def _limited(state: State, job: Job) -> list[tuple[str, str]]:
    """When its queue will lose patience with it."""
    due = due_at(state, job)
    if due is None:
        return []
    who = "its first waiting child" if job.is_array else "it"
    allowed = f"jobStateTimeLimitActions of queue {job.submission.queue} say so for {reason_code(job.status_reason)}"
    return [("state_limit", f"if nothing changes, {who} is cancelled at {utc(due)}: {allowed}")]


def _placed(job: Job, now: int) -> tuple[str, str]:
    attempt = job.attempt
    if attempt is None or job.state not in (STARTING, RUNNING):
        return ("settling", "is between two states")
    tries = f"attempt {attempt.number}"
    # One that left for others, or was replaced in its gang, may have more attempts than it may fail.
    if not job.submission.free_interruptions and attempt.number <= job.submission.retry.attempts:
        tries += f" of {job.submission.retry.attempts}"
    where = f"on instance {attempt.instance} of {attempt.environment}, {tries}"
    if attempt.stop_cause in WITH_NOTICE:
        return ("leaving", _leaving(attempt, where))
    if attempt.stop_cause is not None:
        doing = f"; {attempt.doing}" if attempt.doing else ""
        return ("stopping", f"is being stopped ({attempt.stop_cause}) {where}{doing}")
    if job.state is STARTING:
        doing = attempt.doing or "its process is being started"
        return (
            "starting",
            f"was placed {(now - attempt.placed_at) / 1000:,.1f} s ago {where}; {doing}",
        )
    doing = f"; {attempt.doing}" if attempt.doing else ""
    return ("running", f"has run for {(now - (attempt.started_at or now)) / 1000:,.1f} s {where}{doing}")


def _leaving(attempt: Attempt, where: str) -> str:
    until = f"has notice to leave its place by {utc(attempt.deadline_at or 0)} {where}"
    after = "" if attempt.stop_cause is StopCause.BUDGET else "; unless it ends with success, it waits again"
    return f"{until}: {attempt.stop_words}{after}"
