"""States of a market, and rates from its history."""

from __future__ import annotations

import pytest

from windfall.deadlines.market import (
    AGES,
    LAST_AGE,
    STATES,
    Counts,
    Stretch,
    index_of,
    is_up,
    older,
    rates_of,
    state_of,
    turned,
)
from windfall.deadlines.public_prior import public_prior


def test_every_state_has_a_number_of_its_own():
    numbers = {
        index_of(up, long_up, long_down, age)
        for up in (False, True)
        for long_up in (False, True)
        for long_down in (False, True)
        for age in range(AGES)
    }
    assert numbers == set(range(STATES))


def test_a_state_grows_older_and_ends_in_the_other_kind():
    state = state_of(up=True, seconds=0, last_up_s=60, last_down_s=60_000)
    assert is_up(state)
    assert is_up(older(state))
    down = turned(state)
    assert not is_up(down)
    # It was short, so the last time up is short; the outage before it is still the last one.
    assert down == state_of(up=False, seconds=0, last_up_s=60, last_down_s=60_000)
    oldest = state_of(up=False, seconds=10**6, last_up_s=60, last_down_s=60)
    assert oldest % AGES == LAST_AGE
    assert older(oldest) == oldest
    assert turned(oldest) == state_of(up=True, seconds=0, last_up_s=60, last_down_s=10**6)


def test_a_history_is_counted_by_the_age_at_its_end():
    counts = Counts()
    counts.add([Stretch(True, 1800), Stretch(False, 600), Stretch(True, 600, ended=False)])
    assert sum(counts.probes) == pytest.approx(5)
    assert sum(counts.ends) == 2
    after_long = index_of(True, True, True, 0)
    assert counts.probes[after_long : after_long + 3] == [1, 1, 1]
    assert counts.ends[after_long : after_long + 3] == [0, 0, 1]


def test_a_zone_that_is_lost_while_another_is_up_is_a_hop_and_no_end():
    counts = Counts()
    counts.add([Stretch(True, 600, hopped=True), Stretch(True, 600, age_s=3000)])
    assert sum(counts.hops) == 1
    assert sum(counts.ends) == 1
    assert counts.hop_ages[3] == 1


def test_own_history_outweighs_the_prior_with_time():
    prior = public_prior()
    alone = rates_of(None, prior)
    state = state_of(up=True, seconds=0, last_up_s=9000, last_down_s=9000)
    calm = Counts()
    for _ in range(2000):
        calm.add([Stretch(True, 600, ended=False)])
    assert rates_of(calm, prior).leaves(state, 600) < 0.1 * alone.leaves(state, 600)


def test_the_public_prior_says_that_old_capacity_is_safer():
    rates = rates_of(None, public_prior())
    young = state_of(up=True, seconds=0, last_up_s=60, last_down_s=60)
    old = state_of(up=True, seconds=86_400, last_up_s=60, last_down_s=60)
    assert rates.leaves(young, 600) > 10 * rates.leaves(old, 600) > 0
