from __future__ import annotations

import pytest

from windfall.checkpoint.errors import WrongUse
from windfall.checkpoint.interval import (
    LONGEST_S,
    SHORTEST_S,
    CostMeter,
    Every,
    SaveCosts,
    best_interval_s,
    parse_every,
)


@pytest.mark.parametrize(
    ("given", "meant"),
    [(50, Every(steps=50)), ("30s", Every(seconds=30)), ("1.5 m", Every(seconds=90)), ("auto", Every())],
)
def test_every_is_steps_a_duration_or_auto(given, meant):
    assert parse_every(given) == meant


@pytest.mark.parametrize("given", [0, -1, True, "", "fast", "30", "0s", None, 2.5])
def test_another_every_says_what_to_give(given):
    with pytest.raises(WrongUse, match="number of steps"):
        parse_every(given)


def test_nothing_measured_means_soon():
    assert best_interval_s(None, 7200, 0.01) == SHORTEST_S


def test_a_cheap_save_is_made_often_and_a_dear_one_rarely():
    cheap = best_interval_s(SaveCosts(0.005, 0.5), 7200, 0.01)
    dear = best_interval_s(SaveCosts(1.0, 30.0), 7200, 0.01)
    assert cheap < dear
    assert best_interval_s(SaveCosts(60.0, 60.0), 7200, 0.01) == LONGEST_S


def test_the_budget_bounds_the_share_of_time():
    costs = SaveCosts(0.5, 1.0, interference=0.0)
    assert costs.stall_s / best_interval_s(costs, 60, 0.01) <= 0.01


def test_more_interruptions_mean_more_saves():
    costs = SaveCosts(0.2, 5.0)
    assert best_interval_s(costs, 3600, 0.05) < best_interval_s(costs, 36000, 0.05)


def test_a_save_is_not_begun_before_the_last_one_is_written():
    assert best_interval_s(SaveCosts(0.0, 100.0, interference=0.0), 60, 1.0) >= 100.0


def test_slower_steps_while_writing_count_as_cost():
    meter = CostMeter()
    assert meter.costs() is None
    meter.saved(0.01, 10.0)
    meter.ran(100, 10.0, writing=False)
    meter.ran(80, 10.0, writing=True)
    costs = meter.costs()
    assert costs is not None
    assert costs.interference == pytest.approx(0.2)
    assert costs.loop_s == pytest.approx(0.01 + 2.0)


def test_too_few_steps_measure_nothing():
    meter = CostMeter()
    meter.saved(0.01, 10.0)
    meter.ran(3, 1.0, writing=False)
    meter.ran(3, 9.0, writing=True)
    assert meter.costs().interference is None
