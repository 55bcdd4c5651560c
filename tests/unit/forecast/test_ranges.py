"""Expected ends with ranges."""

from __future__ import annotations

import random

import pytest
from bench.ends import measure

from tests.builders import a_job, a_machine, a_world
from tests.unit.forecast.worlds import MINUTE_MS, a_full_world, copied
from windfall.forecast.lengths import Basis
from windfall.forecast.playing import Bounds
from windfall.forecast.ranges import expected_ends, stays_s
from windfall.jobs.ids import JobId
from windfall.views import forecasts

ALIKE = {f"job-{number}": [580.0, 600.0, 620.0] * 10 for number in range(4)}


def draws() -> random.Random:
    return random.Random(7)


def test_those_that_run_end_sooner_than_those_that_wait_and_ranges_lie_within_one_another():
    world = a_full_world()
    ranges = expected_ends(draws().random, 40, copied(world, runs=ALIKE))
    running, waiting = ranges.ends[JobId("job-0")], ranges.ends[JobId("job-3")]
    assert running.at - world.now == pytest.approx(9 * MINUTE_MS, rel=0.1)
    assert waiting.at - world.now == pytest.approx(19 * MINUTE_MS, rel=0.1)
    assert waiting.start_at is not None
    assert running.start_at is None
    for each in (running, waiting):
        assert each.most[0] <= each.half[0] <= each.at <= each.half[1] <= each.most[1]
        assert (each.basis, each.runs) == (Basis.EARLIER_RUNS, 30)


def test_few_earlier_runs_give_a_wide_range():
    world = a_full_world(jobs=2)
    runs = {"job-0": [600.0], "job-1": [600.0] * 30}
    ends = expected_ends(draws().random, 60, copied(world, runs=runs)).ends
    widths = {job: end.most[1] - end.most[0] for job, end in ends.items()}
    assert widths[JobId("job-0")] > 10 * widths[JobId("job-1")]


def test_a_length_that_nobody_knows_is_not_claimed_and_makes_others_unsure():
    world = a_full_world()
    ranges = expected_ends(draws().random, 40, copied(world, runs={"job-2": [600.0] * 30}))
    assert set(ranges.unknown) == {"job-0", "job-1", "job-3"}
    assert "nobody said" in ranges.unknown[JobId("job-0")]
    behind = ranges.ends[JobId("job-2")]
    assert behind.most[1] - behind.most[0] > 30 * MINUTE_MS


def test_a_job_that_gets_no_place_has_no_expected_end():
    world = a_world(a_machine(vcpus=4)).declared()
    world.submits(a_job("job-0").gpus(1)).later(MINUTE_MS)
    ranges = expected_ends(draws().random, 20, copied(world, runs=ALIKE))
    assert ranges.ends == {}
    assert "may not get a place" in ranges.unknown[JobId("job-0")]


def test_with_too_few_plays_nothing_is_claimed():
    world, left = a_full_world(), [30]

    def goes_on() -> bool:
        left[0] -= 1
        return left[0] > 0

    ranges = expected_ends(draws().random, 40, copied(world, runs=ALIKE), Bounds(goes_on=goes_on))
    assert ranges.ends == {}
    assert ranges.plays < 20


def test_the_same_numbers_give_the_same_ranges():
    world = a_full_world()
    first, second = (expected_ends(draws().random, 25, copied(world, runs=ALIKE)) for _ in range(2))
    assert first == second


def test_spot_capacity_that_is_old_stays_longer():
    young, old = (
        sorted(stays_s(age, share / 100) or 1e9 for share in range(1, 100)) for age in (0.0, 40_000.0)
    )
    assert young[49] < old[49] / 4


def test_a_caller_is_told_of_wanted_jobs_alone():
    world = a_full_world()
    ranges = expected_ends(draws().random, 25, copied(world, runs={"job-0": ALIKE["job-0"]}))
    answer = forecasts.expected_ends(ranges, {JobId("job-0"), JobId("job-1"), JobId("nobody")})
    assert set(answer["ends"]) == {"job-0"}
    assert set(answer["unknown"]) == {"job-1"}
    assert answer["ends"]["job-0"]["from"] == "30 earlier runs"
    assert forecasts.expected_ends(None, {JobId("job-0")})["ends"] == {}


@pytest.mark.slow
def test_of_a_thousand_ends_nine_of_ten_are_in_their_ranges():
    score = measure(1_000)
    assert 0.85 <= score.share_in_most <= 0.95


def test_a_few_ends_are_in_their_ranges():
    """A small part of the measurement above: enough to see that nothing is broken."""
    score = measure(40, first_seed=1, plays=25)
    assert score.claimed >= 40
    assert score.share_in_most >= 0.6
