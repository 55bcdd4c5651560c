"""Look-ahead: short jobs are sent to their agent before their place is free.

Decides who may stand by for whose place (standby.py): only a job of the same group, while no other group waits,
so that nobody is overtaken who would have had the next turn. How long jobs take is learnt from those that ended.
"""

from __future__ import annotations

from windfall.capacity.machines import InstanceState
from windfall.control.backlog import Group, key_in_queue
from windfall.control.events import AttemptExited
from windfall.control.instructions import StopAttempt
from windfall.control.placing import place
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.ids import QueueName
from windfall.jobs.job import Job, JobKind
from windfall.scheduling.snapshot import ORDINARY, Placement

#: What a machine's facts say of an agent that keeps standbys.
KEEPS_STANDBYS = "keeps_standbys"
#: How long it takes until a place that is free is filled by asking: this much work is worth having at hand.
_ROUND_TRIP_MS = 10.0
_MOST_BEHIND_ONE = 8
#: How many times as long as the longest that has one, a standby waits before it is asked back.
_PATIENCE = 4
#: With this many places there is always another one to be filled meanwhile.
_MANY = 512


def look_ahead(state: State, round_: Round) -> list[AttemptExited]:
    """Put waiting jobs behind short ones that run; the answer is the attempts that could not even be asked for."""
    refused: list[AttemptExited] = []
    longest_ms = state.rules.scheduling.look_ahead_ms
    if not longest_ms or not 0 < len(state.attempts) <= _MANY or (group := _only_group(state)) is None:
        return refused
    queue, waiting = group
    leaders = [
        job for job in state.attempts.values() if _may_have_standby(state, job, queue, longest_ms, round_.now)
    ]
    for job in leaders:
        assert job.attempt is not None
        length = state.lengths[queue, job.submission.definition]
        wanted = min(_MOST_BEHIND_ONE, 1 + int(_ROUND_TRIP_MS / max(1.0, length)))
        last, behind = job.attempt.token, 0
        while (standby := state.standbys.get(last)) is not None:
            last, behind = standby, behind + 1
        for _ in range(wanted - behind):
            following = _next(state, waiting, job)
            if following is None:
                return refused
            placement = Placement(queue, following.id, job.attempt.instance)
            last, report = place(state, placement, round_, behind=last)
            refused += [report] if report is not None else []
    return refused


def _only_group(state: State) -> tuple[QueueName, Group] | None:
    """The jobs that wait, if they are all equal and nothing but their order says when they start."""
    if state.left_places or state.reservations:
        return None
    waiting = (
        (queue, key, group) for queue, groups in state.backlog.queues.items() for key, group in groups.items()
    )
    # No more than two are looked at: there may be a hundred thousand.
    first, second = next(waiting, None), next(waiting, None)
    if first is None or second is not None:
        return None
    queue, (shape, scheduling_class), group = first
    plain = scheduling_class == ORDINARY and not shape.resources.gpus
    return (queue, group) if plain and state.queues[queue].policy is None else None


def call_back(state: State, round_: Round) -> None:
    """Ask those back that have waited for long: the one before them is not as short as others were.

    One that begins at this very moment goes on, so that nothing depends on whether this arrives.
    """
    patience_ms = _PATIENCE * state.rules.scheduling.look_ahead_ms
    for token in state.standbys.values():
        attempt = state.attempts[token].attempt
        if attempt is not None and round_.now - attempt.placed_at >= patience_ms:
            round_.instructions.append(StopAttempt(token, attempt.instance, 0.0, if_unbegun=True))


def _may_have_standby(state: State, job: Job, queue: QueueName, longest_ms: int, now: int) -> bool:
    attempt = job.attempt
    if attempt is None or attempt.behind is not None or attempt.stop_cause is not None:
        return False
    if job.submission.queue != queue or job.submission.nodes is not None:
        return False
    expected_ms = state.lengths.get((queue, job.submission.definition), longest_ms)
    if expected_ms >= longest_ms or now - (attempt.started_at or attempt.placed_at) >= longest_ms:
        return False
    instance = state.instances.get(attempt.instance)
    if instance is None or instance.state is not InstanceState.READY or instance.machine is None:
        return False
    return KEEPS_STANDBYS in state.machines[instance.machine].facts


def _next(state: State, group: Group, leader: Job) -> Job | None:
    """The first job that waits, if it can stand in for the one that runs."""
    waiting = next(iter(group), None) if group.count else None
    if waiting is None:
        return None
    job = state.jobs[waiting.job_id]
    submission = job.submission
    plain = submission.kind is JobKind.BATCH and submission.staging is None and submission.worker is None
    return job if plain and key_in_queue(job) == key_in_queue(leader) else None
