"""The nodes of live multi-node jobs: which jobs they are, which of them wait, and when one may start.

A multi-node job stands for its main node: its own attempts are the main node's. Every other node is a job of its own,
made with its first place. It ends with the gang and is tried again with it; between, its own end moves nothing. Must
not know why anything ends.
"""

from __future__ import annotations

from windfall.control.round import Round
from windfall.control.state import State
from windfall.control.state_changes import tell_of
from windfall.jobs.attempts import Attempt, GangEnd, StopCause
from windfall.jobs.ids import node_id
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, SUCCEEDED, JobState

#: Why a whole job is stopped, whatever its nodes make of that.
STOPPED = frozenset({StopCause.TERMINATED, StopCause.TIMED_OUT, StopCause.RUN_TIME, StopCause.WAIT_TIME})


def nodes_of(state: State, gang: Job) -> list[Job]:
    """The nodes of a gang that have had a place, without the main one."""
    nodes = gang.submission.nodes
    if nodes is None:
        return []
    jobs = (state.jobs.get(node_id(gang.id, number)) for number in nodes.others)
    return [node for node in jobs if node is not None]


def members(state: State, job: Job) -> list[Job]:
    """All that stop together with a job: itself, or the whole gang that it is or belongs to."""
    if job.submission.nodes is None:
        return [job]
    gang = gang_of(state, job)
    return [gang, *nodes_of(state, gang)]


def gang_of(state: State, job: Job) -> Job:
    """The multi-node job that a node belongs to; any other job itself."""
    return state.jobs[job.parent] if job.is_node and job.parent is not None else job


def leaves_alone(job: Job) -> bool:
    """Whether only this job's own place goes when it is taken away: it is not a node, or it is one that is replaced."""
    return job.submission.nodes is None or (job.is_node and job.submission.replaces_lost_nodes)


def waits_for_main(state: State, job: Job) -> bool:
    """Whether a node has its place, but must not start before its main node runs."""
    nodes = job.submission.nodes
    if not job.is_node or nodes is None or nodes.peers:
        return False
    main = gang_of(state, job).attempt
    return main is None or main.started_at is None


def made_node(state: State, gang: Job, number: int, round_: Round) -> Job:
    """A node's own record, made if it has never had a place."""
    existing = state.jobs.get(node_id(gang.id, number))
    if existing is not None:
        return existing
    node = Job(
        node_id(gang.id, number),
        gang.submission,
        RUNNABLE,
        gang.created_at,
        parent=gang.id,
        index=number,
        order=gang.order,
        runnable_at=gang.runnable_at,
    )
    tell_of(state, node)
    state.jobs[node.id] = round_.changes.jobs[node.id] = node
    return node


def current_try(state: State, job: Job) -> Attempt | None:
    """The try of a job that is under way; of a gang of peers the whole one, while any node runs and none is stopped."""
    nodes = job.submission.nodes
    if nodes is None or not nodes.peers:
        return job.attempt
    live = [member.attempt for member in members(state, job) if member.attempt is not None]
    stopping = [attempt for attempt in live if attempt.stop_cause is not None]
    if not live or stopping or all(attempt.exited_at is not None for attempt in live):
        return next(iter(stopping or live), None)
    return job.tries[-1]


def end_of_peers(state: State, gang: Job) -> GangEnd:
    """How a try of a gang of peers ended, all of whose nodes have: as the first that did not end well by itself.

    One that was asked to stop for the whole job's sake comes before all others, and those that were stopped because
    another had failed decide nothing.
    """
    ended = [(member.node or 0, member.attempts[-1]) for member in members(state, gang) if member.attempts]

    def rank(pair: tuple[int, Attempt]) -> tuple[int, int, int]:
        node, attempt = pair
        if attempt.stop_cause in STOPPED:
            weight = 0
        elif attempt.succeeded:
            weight = 3
        else:
            weight = 2 if attempt.stop_cause is StopCause.PEER_FAILED else 1
        return weight, attempt.stopped_at or 0, node

    node, last = min(ended, key=rank)
    exits = [attempt.exited_at for _, attempt in ended if attempt.exited_at is not None]
    return GangEnd(
        node,
        last.instance,
        stopped_at=max(attempt.stopped_at or 0 for _, attempt in ended),
        exited_at=max(exits, default=None),
        exit_code=last.exit_code,
        reason=last.reason,
        status_reason=last.status_reason,
        stop_at=last.stop_at,
        stop_cause=last.stop_cause,
        stop_words=last.stop_words,
        failure=last.failure,
        diagnosis=last.diagnosis,
    )


def give_number(state: State, gang: Job) -> None:
    """Give a gang that has its places the smallest number that no other live one has."""
    live = (gang_of(state, job) for job in state.attempts.values() if job.submission.nodes is not None)
    taken = {other.gang_number for other in live if other.gang_number is not None}
    gang.gang_number = next(number for number in range(len(taken) + 1) if number not in taken)


def hold_back(state: State, gang: Job) -> None:
    """Let no node wait for a place by itself any more: the gang is about to end, or to wait as a whole."""
    for node in nodes_of(state, gang):
        if node.state is RUNNABLE:
            state.backlog.remove(node)


def may_wait_alone(state: State, node: Job) -> bool:
    """Whether a RUNNABLE node waits for a place by itself, rather than with its gang."""
    main = gang_of(state, node).attempt
    return main is not None and main.stop_cause is None


def return_nodes(state: State, gang: Job, round_: Round) -> None:
    """Have all nodes wait with their gang, which is tried again."""
    gang.gang_number = None
    for node in nodes_of(state, gang):
        node.gpu_memory_floor_mib = gang.gpu_memory_floor_mib
        if node.state is not RUNNABLE:
            node.move(RUNNABLE)
            round_.changes.jobs[node.id] = node


def outcome(node: Job, of_gang: JobState) -> JobState:
    """How a node ends with its gang: as its own last try did; one that was stopped for the main one's end, as that."""
    last = node.attempts[-1] if node.attempts else None
    if last is None or last.stopped_at is None or node.state is not RUNNING:
        return FAILED
    if last.stop_cause is StopCause.MAIN_ENDED:
        return of_gang
    return SUCCEEDED if last.succeeded else FAILED
