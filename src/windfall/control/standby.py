"""Attempts on standby: they wait at their agent for the place of another one, and places are passed on among them.

A standby has its attempt, its token and its order like any other, and stands behind one that has a place. It begins
there when that one ends, without a round trip in between; until then it holds nothing. The agent passes places on by
the same rule, so that both know who has which. Must not know who may stand by: look_ahead.py decides that.
"""

from __future__ import annotations

from windfall.capacity.machines import Hold
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import AttemptToken
from windfall.jobs.job import Job
from windfall.jobs.resources import NOTHING


def hold_of(job: Job, attempt: Attempt) -> Hold:
    """What an attempt holds: its job's needs, or nothing yet."""
    if attempt.behind is not None:
        return Hold(attempt.instance, NOTHING, ())
    return Hold(attempt.instance, job.needs, attempt.gpu_ids)


def pass_on(state: State, ended: Attempt, round_: Round) -> None:
    """An attempt has ended: the one behind it gets its place, or moves up where it was a standby itself."""
    standby = state.standbys.pop(ended.token, None)
    if ended.behind is not None:
        del state.standbys[ended.behind]
        ended.placed_at = max(ended.placed_at, ended.stopped_at or 0)  # It has held nothing that costs.
    if standby is None:
        return
    job = state.attempts[standby]
    attempt = job.attempt
    assert attempt is not None
    attempt.behind = ended.behind
    round_.changes.jobs[job.id] = job
    if attempt.behind is not None:
        state.standbys[attempt.behind] = standby
        return
    attempt.placed_at = max(attempt.placed_at, round_.now)
    instance = state.instances.get(attempt.instance)
    if instance is not None:
        state.occupancy.give_back(standby, instance, round_.now)
        state.occupancy.take(standby, hold_of(job, attempt), instance)


def standbys_of(state: State, token: AttemptToken) -> list[Job]:
    """The jobs behind an attempt, the next one first."""
    jobs = []
    while (standby := state.standbys.get(token)) is not None:
        jobs.append(state.attempts[standby])
        token = standby
    return jobs


def depth_of(state: State, token: AttemptToken) -> int:
    """How many stand before an attempt for the same place."""
    depth = 0
    while (attempt := state.attempts[token].attempt) is not None and attempt.behind is not None:
        token, depth = attempt.behind, depth + 1
    return depth
