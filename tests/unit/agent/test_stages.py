"""What leads an attempt from stage to stage, and what the journal brings back of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agent.stories import story_of
from windfall.agent.messages import Exited, Lost, Start
from windfall.agent.records import (
    Accepted,
    Begun,
    BegunAnew,
    Departed,
    Ended,
    Hosted,
    Intended,
    Known,
    Launching,
    Losing,
    Noticed,
    NotStarted,
    Record,
    Spawned,
    Spawning,
    Starting,
    Stopping,
    Told,
)
from windfall.agent.stages import GONE, MOVES, RUNS, UNSTARTED, Stage, Story

INTENDED = Intended("t", "task", "/log", [], 64, 1.0, sandboxed=False, at=1)
START = Start("t", "task", [], {}, None, "/log", 1.0, 64, [])
EXITED = Exited("t", 0, None, 1, 2, "process")
RECORDS: dict[type[Record], Known] = {
    type(record): record
    for record in (
        Accepted(START),
        Launching("t", 80, 2),
        Starting(),
        NotStarted(),
        BegunAnew(),
        Spawning("t", 7),
        Spawned("t", 4711, 7, 3, "process"),
        Hosted("t", 4712, 8, sandboxed=False),
        Noticed("t", 4, 9, "taken away"),
        Told("t", [(4711, 7)]),
        Losing("t"),
        Stopping(),
        Begun(5, 4713),
        Departed(EXITED),
        Ended(EXITED),
    )
}
IN_MEMORY = (Starting, NotStarted, BegunAnew, Stopping, Begun)
#: One way to each stage.
WAYS: dict[Stage, tuple[type[Record], ...]] = {
    Stage.ACCEPTED: (),
    Stage.STAGING_IN: (Accepted,),
    Stage.READY: (Accepted, Launching),
    Stage.STARTING: (Accepted, Launching, Starting),
    Stage.RUNNING: (Accepted, Launching, Starting, Spawned),
    Stage.NOTICED: (Accepted, Launching, Starting, Spawned, Noticed),
    Stage.ENDING: (Accepted, Launching, Starting, Spawned, Stopping),
    Stage.STAGING_OUT: (Accepted, Launching, Starting, Spawned, Departed),
    Stage.ENDED: (Accepted, Launching, Starting, Spawned, Departed, Ended),
}


def along(*kinds: type[Record]) -> Story:
    return story_of(INTENDED, *(RECORDS[kind] for kind in kinds))


@pytest.mark.parametrize("stage", Stage)
def test_every_move_of_the_table_is_made(stage: Stage):
    assert along(*WAYS[stage]).stage is stage
    for kind, leads_to in MOVES[stage].items():
        assert along(*WAYS[stage], kind).stage is leads_to, kind


def test_every_stage_is_of_one_sort():
    sorts = [UNSTARTED, {Stage.STARTING}, RUNS, GONE]
    assert sorted(stage for sort in sorts for stage in sort) == list(Stage)
    assert MOVES.keys() == set(Stage)


def test_a_plain_process_is_not_staged():
    assert along(Starting, Spawned, Ended).stage is Stage.ENDED
    assert along(Starting, NotStarted, Starting, Spawned).stage is Stage.RUNNING


def test_what_is_asked_during_the_start_counts_as_soon_as_it_runs():
    assert along(Starting, Noticed).stage is Stage.STARTING
    assert along(Starting, Noticed, Spawned).stage is Stage.NOTICED
    assert along(Starting, Stopping, Spawned).stage is Stage.ENDING
    assert along(Starting, Noticed, Stopping, Spawned).stage is Stage.ENDING


def test_another_keeper_of_a_container_does_not_start_it_again():
    assert along(Starting, Spawned, Starting, Spawned).stage is Stage.RUNNING


def test_the_first_end_stands():
    story = along(Starting, Spawned, Departed, Ended)
    story.add(Departed(Lost("t", 9)))
    story.add(Ended(Lost("t", 9)))
    assert (story.stage, story.departed, story.result) == (Stage.ENDED, EXITED, EXITED)


def test_what_is_begun_anew_forgets_how_it_was_begun():
    story = along(Accepted, Launching, Spawning, BegunAnew)
    assert (story.stage, story.launching, story.spawning) == (Stage.STAGING_IN, None, None)


def test_a_pid_is_worth_more_than_the_lines_that_are_lost():
    assert along(Accepted, Spawned).stage is Stage.RUNNING
    assert along(Accepted, Departed).stage is Stage.STAGING_OUT


@given(st.lists(st.sampled_from([kind for kind in RECORDS if kind not in IN_MEMORY])))
def test_what_is_written_again_says_the_same(kinds: list[type[Record]]):
    story = along(*kinds)
    first, *others = story.records()
    assert isinstance(first, Intended)
    again = story_of(first, *others)
    assert again.stage is story.stage
    assert again.records() == story.records()
