"""The state table: every legal move is made, every other raises with the job's story and changes nothing."""

from __future__ import annotations

import pytest

from windfall.jobs.errors import IllegalMove
from windfall.jobs.ids import DefinitionKey, JobId, QueueName
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import ONCE
from windfall.jobs.states import JOB_MOVES, MOVES, PLACED, TERMINAL, JobState

ALL = [(old, new) for old in JobState for new in JobState]


def a_job_in(state: JobState) -> Job:
    submission = Submission("train", QueueName("queue"), DefinitionKey("work:1"), Resources(1, 1), ONCE)
    return Job(JobId("1f-2e"), submission, state, 0)


@pytest.mark.parametrize(("old", "new"), [pair for pair in ALL if pair in MOVES])
def test_a_legal_move_is_made(old, new):
    job = a_job_in(old)
    job.move(new)
    assert job.state is new


@pytest.mark.parametrize(("old", "new"), [pair for pair in ALL if pair not in MOVES])
def test_an_illegal_move_tells_the_story_and_changes_nothing(old, new):
    job = a_job_in(old)
    with pytest.raises(
        IllegalMove, match=rf"{old} -> {new} is not in the table.*1f-2e \(train\).*tries: none"
    ):
        job.move(new)
    assert job.state is old


def test_nothing_leaves_an_end_and_everything_else_can_reach_one():
    assert not [old for old, _ in MOVES if old in TERMINAL]
    for state in set(JobState) - TERMINAL:
        assert (state, JobState.FAILED) in MOVES


def test_only_placed_jobs_succeed_except_arrays():
    assert {old for old, new in MOVES if new is JobState.SUCCEEDED} == {JobState.PENDING, JobState.RUNNING}
    assert {JobState.STARTING, JobState.RUNNING} == PLACED


def test_the_diagram_has_every_move_once():
    lines = JOB_MOVES.diagram().splitlines()
    for (old, new), cause in MOVES.items():
        assert sum(line.strip().startswith(f"{old} --> {new}:") for line in lines) == 1, cause
    assert all(line.count(":") <= 1 for line in lines)
