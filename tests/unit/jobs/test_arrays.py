"""The child table against a naive model that keeps one state per child."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.invariants import check_table
from windfall.jobs.arrays import REST_MOVES, ChildTable
from windfall.jobs.errors import IllegalMove
from windfall.jobs.states import FAILED, JOB_MOVES, PENDING, RUNNABLE, RUNNING, SUCCEEDED, TERMINAL, JobState

MOVES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 11), st.sampled_from(list(JobState))),
        st.tuples(st.none(), st.sampled_from([PENDING, RUNNABLE, FAILED])),
        st.just(("ask", None)),
    ),
    max_size=30,
)


@given(st.integers(2, 12), st.sampled_from([PENDING, RUNNABLE]), MOVES)
def test_a_table_is_a_list_of_states(size, rest, moves):
    table = ChildTable.of(size, rest)
    naive, recorded = [rest] * size, [False] * size
    for who, state in moves:
        if who == "ask":
            table.next_at_rest()
        elif who is None:
            if state is not rest and (rest, state) not in REST_MOVES.moves:
                with pytest.raises(IllegalMove):
                    table.move_rest(state)
                continue
            table.move_rest(state)
            naive = [old if recorded[i] else state for i, old in enumerate(naive)]
            rest = state
        elif who < size:
            if state is not naive[who] and (naive[who], state) not in JOB_MOVES.moves:
                with pytest.raises(IllegalMove, match=f"child {who} of an array"):
                    table.move(who, state)
                table.load(who, state)
            else:
                table.move(who, state)
            naive[who], recorded[who] = state, True
        assert [table.state(i) for i in range(size)] == naive
    resting = [i for i in range(size) if not recorded[i]]
    check_table(table)
    assert list(table.at_rest()) == resting
    assert table.next_at_rest() == (resting[0] if resting else None)
    assert table.resting == len(resting)
    assert table.waiting == (len(resting) if rest is RUNNABLE else 0)
    assert table.finished is all(state in TERMINAL for state in naive)
    assert table.failed is (FAILED in naive)


def test_ten_thousand_children_at_rest_take_twenty_kilobytes():
    table = ChildTable.of(10_000, RUNNABLE)
    assert len(table.states) + len(table.recorded) == 20_000
    assert table.summary()["RUNNABLE"] == 10_000


def test_the_summary_has_every_state():
    table = ChildTable.of(3, RUNNABLE)
    table.load(0, RUNNING)
    table.load(1, SUCCEEDED)
    assert list(table.summary()) == [state.value for state in JobState]
    assert [count for count in table.summary().values() if count] == [1, 1, 1]
