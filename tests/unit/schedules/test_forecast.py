"""The forecast: how long runs took, whether the next one fits, and how much that is worth."""

from __future__ import annotations

import pytest

from windfall.schedules.forecast import Certainty, ForecastVerdict, durations_ms, forecast
from windfall.schedules.schedule import Tick, TickOutcome

HOUR = 3_600_000
TOMORROW = [24 * HOUR, 48 * HOUR]


@pytest.mark.parametrize(
    ("hours", "due", "verdict", "in_time"),
    [
        ([2, 3, 4], TOMORROW, ForecastVerdict.FITS, 3),
        ([24] * 10, TOMORROW, ForecastVerdict.FITS, 10),
        ([2] * 8 + [30, 30], TOMORROW, ForecastVerdict.TIGHT, 8),
        ([2] * 9 + [30], TOMORROW, ForecastVerdict.FITS, 9),
        ([30, 30, 2], TOMORROW, ForecastVerdict.OVERRUNS, 1),
        ([2], [24 * HOUR], ForecastVerdict.UNBOUNDED, 1),
        ([2], [], ForecastVerdict.UNKNOWN, 1),
        ([], TOMORROW, ForecastVerdict.UNKNOWN, 0),
    ],
)
def test_the_next_run_is_judged_by_the_ones_before(hours, due, verdict, in_time):
    made = forecast([hour * HOUR for hour in hours], due)
    assert (made.verdict, made.in_time, made.runs) == (verdict, in_time, len(hours))


def test_median_and_ninth_decile_are_durations_that_were():
    made = forecast([hour * HOUR for hour in (1, 2, 3, 4, 5, 6, 7, 8, 9, 100)], TOMORROW)
    assert (made.median_ms, made.p90_ms, made.room_ms) == (5 * HOUR, 9 * HOUR, 24 * HOUR)


@pytest.mark.parametrize(
    ("runs", "certainty"),
    [(0, Certainty.NONE), (1, Certainty.LOW), (4, Certainty.LOW), (5, Certainty.FAIR), (20, Certainty.GOOD)],
)
def test_few_runs_are_worth_little(runs, certainty):
    made = forecast([HOUR] * runs, TOMORROW)
    assert made.certainty is certainty
    assert made.chance == ((runs + 1) / (runs + 2) if runs else None)


def test_only_runs_that_succeeded_say_how_long_one_takes():
    def a_run(**fields: object) -> Tick:
        return Tick("s", 0, 0, TickOutcome.STARTED, run="j", done_at=1_000, **fields)

    ticks = [
        a_run(run_ended_at=5_000, run_succeeded=True),
        a_run(run_ended_at=2_000, run_succeeded=False),
        a_run(),
        Tick("s", 0, 0, TickOutcome.SKIPPED),
    ]
    assert durations_ms(ticks) == [4_000]
