"""How long a job works, as a distribution."""

from __future__ import annotations

import random
from math import exp

import pytest

from windfall.forecast.lengths import Basis, estimate

FIVE, FIFTY, NINETY_FIVE = 0.05, 0.5, 0.95


def test_one_run_says_little_and_many_say_much():
    one, many = estimate([600.0]), estimate([590.0 + number for number in range(21)])
    assert one.at(FIFTY) == pytest.approx(600, rel=0.01)
    assert one.at(FIVE) < 120
    assert one.at(NINETY_FIVE) > 3000
    assert 400 < many.at(FIVE) < many.at(FIFTY) < many.at(NINETY_FIVE) < 900


def test_a_job_that_has_run_for_long_is_one_of_the_long_ones():
    lengths = estimate([100.0] * 30 + [1000.0] * 10)
    assert lengths.at(FIFTY) == pytest.approx(100, rel=0.1)
    assert lengths.at(FIFTY, beyond_s=300) == pytest.approx(1000, rel=0.1)
    assert lengths.at(FIFTY, beyond_s=50_000) > 60_000


def test_lengths_rise_with_their_share():
    for known in (estimate([5.0]), estimate([3.0, 9.0, 4.0]), estimate([float(n) for n in range(1, 60)])):
        points = [known.at(number / 100, 2.0) for number in range(1, 100)]
        assert points == sorted(points)
        assert points[0] >= 2.0


def test_what_was_said_counts_more_than_earlier_runs_and_a_timeout_is_no_estimate():
    said = estimate([60.0], said_s=600.0)
    assert (said.basis, round(said.at(FIFTY))) == (Basis.SAID, 600)
    limited, unknown = estimate([], timeout_s=900), estimate([])
    assert (limited.basis, limited.at(FIFTY), limited.is_known) == (Basis.TIMEOUT, 900.0, False)
    assert (unknown.basis, unknown.at(FIFTY), unknown.is_known) == (Basis.NOTHING, 3600.0, False)


@pytest.mark.parametrize("count", [1, 3, 8, 40])
@pytest.mark.parametrize("spread", [0.2, 0.6])
def test_ranges_hold_as_many_as_they_say(count, spread):
    """Lengths that are log-normal, as many runs as there are, and the next one."""
    rng = random.Random(count * 100 + int(spread * 10))
    inside = 0
    for _ in range(600):
        runs = [exp(6 + spread * rng.gauss(0, 1)) for _ in range(count + 1)]
        known = estimate(runs[1:])
        inside += known.at(FIVE) <= runs[0] <= known.at(NINETY_FIVE)
    # Wider than needed where little is known, never much narrower.
    assert inside / 600 >= 0.86
