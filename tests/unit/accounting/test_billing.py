"""SageMaker's three numbers."""

from __future__ import annotations

import pytest

from tests.unit.accounting.builders import an_attempt, an_interrupted, at
from windfall.accounting.prices import billable_seconds, savings_percent, training_seconds


def test_a_job_without_a_place_has_none_of_them():
    assert training_seconds([], at(0)) is None
    assert billable_seconds([], at(0)) is None
    assert savings_percent(None, None) is None


def test_on_demand_saves_nothing():
    attempts = [an_attempt(placed=10, started=12, stopped=110, exit_code=0)]
    assert training_seconds(attempts, at(500)) == 100
    assert billable_seconds(attempts, at(500)) == 100
    assert savings_percent(100, 100) == 0


def test_spot_is_billed_at_its_share_and_waiting_not_at_all():
    attempts = [
        an_interrupted(placed=0, stopped=600),
        an_interrupted(2, placed=2000, stopped=2274, usd_hour=1.0, on_demand_usd_hour=4.0),
    ]
    assert training_seconds(attempts, at(9000)) == 874
    assert billable_seconds(attempts, at(9000)) == round(600 * 0.3 + 274 * 0.25)
    assert savings_percent(874, 262) == pytest.approx(70.02, abs=0.01)


def test_an_attempt_that_runs_counts_up_to_now():
    assert training_seconds([an_attempt(placed=10)], at(25)) == 15


def test_neither_is_ever_below_one():
    attempts = [an_interrupted(placed=10, stopped=10)]
    assert training_seconds(attempts, at(10)) == 1
    assert billable_seconds(attempts, at(10)) == 1
    backwards = [an_attempt(placed=10, stopped=5)]
    assert training_seconds(backwards, at(10)) == 1
