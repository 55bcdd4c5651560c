"""The table against cases that can be worked out by hand, and the shield against everything."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.deadlines.market import AGES, STATES, Counts, MarketRates, is_up, rates_of, state_of
from windfall.deadlines.policy import (
    DecidedBy,
    Decision,
    JobMode,
    Situation,
    cost_of_deadline,
    decide,
    expected_cost,
)
from windfall.deadlines.public_prior import public_prior
from windfall.deadlines.solving import PolicyTable, PolicyTerms, SpotAction, solve

UP = state_of(up=True, seconds=0, last_up_s=60, last_down_s=60)
OLD_UP = state_of(up=True, seconds=90_000, last_up_s=60, last_down_s=60)
DOWN = state_of(up=False, seconds=0, last_up_s=60, last_down_s=60)


def a_market(ending: float) -> MarketRates:
    return MarketRates([ending] * STATES, [0.0] * STATES, [1 / AGES] * AGES)


def small_terms(changeover_s: float = 600.0) -> PolicyTerms:
    return PolicyTerms(
        changeover_s=changeover_s, shield_s=changeover_s, spot_price=0.3, work_ticks=24, slack_ticks=48
    )


@cache
def a_table() -> PolicyTable:
    return solve(rates_of(None, public_prior()), small_terms())


def test_a_market_that_never_changes_costs_what_one_works_out():
    table = solve(a_market(0.0), small_terms())
    # Two hours of work and ten minutes of changeover, on spot where it is there and on demand where it never comes.
    assert expected_cost(table, UP, 7200, 7200) == pytest.approx(0.3 * (2 + 1 / 6), rel=1e-4)
    assert expected_cost(table, DOWN, 7200, 7200) == pytest.approx(2 + 1 / 6, rel=1e-4)
    assert decide(table, Situation(7200, 7200, JobMode.NONE, UP)).action is SpotAction.SPOT
    assert decide(table, Situation(7200, 7200, JobMode.NONE, DOWN)).action is not SpotAction.SPOT


def test_slack_is_never_worth_less_than_nothing():
    table = a_table()
    for state in (UP, DOWN, OLD_UP):
        costs = [expected_cost(table, state, 7200, slack) for slack in range(1200, 24_000, 600)]
        assert all(later <= earlier + 1e-6 for earlier, later in itertools.pairwise(costs))
        assert cost_of_deadline(table, state, 7200, 1800) > cost_of_deadline(table, state, 7200, 20_000) >= 0


def test_a_loose_deadline_waits_and_a_tight_one_pays():
    table = a_table()
    assert decide(table, Situation(7200, 20_000, JobMode.NONE, DOWN)) == Decision(
        SpotAction.WAIT, DecidedBy.CHEAPEST
    )
    assert decide(table, Situation(7200, 1100, JobMode.NONE, DOWN)) == Decision(
        SpotAction.ON_DEMAND, DecidedBy.SHIELD
    )
    assert decide(table, Situation(7200, 100, JobMode.NONE, DOWN)) == Decision(
        SpotAction.ON_DEMAND, DecidedBy.TOO_LATE
    )


def test_a_job_on_demand_goes_back_when_capacity_is_calm_and_time_allows():
    table = a_table()
    assert decide(table, Situation(14_400, 20_000, JobMode.ON_DEMAND, OLD_UP)).action is SpotAction.SPOT
    assert decide(table, Situation(14_400, 1100, JobMode.ON_DEMAND, OLD_UP)).action is SpotAction.ON_DEMAND
    assert decide(table, Situation(14_400, 20_000, JobMode.ON_DEMAND, DOWN)).action is SpotAction.ON_DEMAND


def test_a_job_on_spot_leaves_when_its_slack_is_used_up_and_a_move_still_helps():
    table = a_table()
    assert decide(table, Situation(7200, 600, JobMode.SPOT, UP)).action is SpotAction.SPOT
    late = solve(
        a_market(0.0),
        PolicyTerms(changeover_s=300, shield_s=900, spot_price=0.3, work_ticks=4, slack_ticks=8),
    )
    assert decide(late, Situation(7200, 600, JobMode.SPOT, UP)) == Decision(
        SpotAction.ON_DEMAND, DecidedBy.SHIELD
    )
    assert decide(late, Situation(7200, 100, JobMode.SPOT, UP)) == Decision(
        SpotAction.SPOT, DecidedBy.TOO_LATE
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.booleans(), min_size=60, max_size=60),
    st.integers(2, 20),
    st.integers(0, 15),
    st.lists(st.integers(1, 600), min_size=60, max_size=60),
    st.binary(min_size=STATES, max_size=STATES),
)
def test_no_table_misses_a_deadline_that_can_be_kept(
    availability, work_ticks, slack_ticks, changeovers, noise
):
    """A table of nonsense, a market of any kind, changeovers of any length up to the shield's."""
    actions = bytes(byte % 3 for byte in noise)
    flags = bytes(byte % 2 for byte in noise)
    columns = len(a_table().slacks)
    table = PolicyTable(
        small_terms(), a_table().slacks, [actions * columns], [flags * columns], a_table().costs
    )
    work, left_s = float(work_ticks * 600), work_ticks * 600.0 + 600 + slack_ticks * 600
    mode, starting, lengths = JobMode.NONE, 0.0, iter(changeovers)
    for up in availability:
        state = UP if up else DOWN
        if mode is JobMode.SPOT and not up:
            mode = JobMode.NONE
        action = decide(table, Situation(work, left_s - work, mode, state)).action
        assert action is not SpotAction.SPOT or is_up(state)
        wanted = (JobMode.NONE, JobMode.SPOT, JobMode.ON_DEMAND)[action]
        if wanted is not mode:
            mode, starting = wanted, float(next(lengths))
        if mode is not JobMode.NONE:
            used = min(600.0, starting)
            starting -= used
            if work <= 600 - used:
                assert used + work <= left_s
                return
            work -= 600 - used
        left_s -= 600
    raise AssertionError("the job was never done")


def test_an_empty_history_is_the_prior():
    assert rates_of(Counts(), public_prior()) == rates_of(None, public_prior())
