"""What `make bench-spot` compares with: the optimum against all there is to try, the published policies by hand."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from bench.spot.__main__ import zone_sets
from bench.spot.cells import bills
from bench.spot.omniscient import least_cost
from bench.spot.policies import Greedy, LooseUniformProgress, UniformProgress
from bench.spot.simulator import Situation, Task, run_task
from bench.spot.traces import Trace, synthetic_traces, track

from windfall.deadlines.policy import JobMode
from windfall.deadlines.solving import SpotAction


class Scripted:
    """Does what it was told to, tick by tick."""

    def __init__(self, actions):
        self._actions = iter(actions)

    def __call__(self, situation):
        return next(self._actions, SpotAction.ON_DEMAND)


def pool_of(*zones: str):
    return track(
        "pool",
        [Trace(str(number), tuple(letter == "u" for letter in zone)) for number, zone in enumerate(zones)],
    )


@pytest.mark.parametrize("changeover", [1, 3, 6])
def test_the_optimum_is_the_best_of_all_that_can_be_done(changeover):
    draw = Random(changeover)
    for _ in range(12):
        pool = pool_of("".join(draw.choice("uud") for _ in range(10)))
        task = Task(draw.randint(4, 14), draw.randint(24, 30), changeover, 0, 0.3)
        outcomes = (
            run_task(pool, 0, task, Scripted(actions), lambda: changeover)
            for actions in product(SpotAction, repeat=6)
        )
        best = min(outcome.cost for outcome in outcomes if not outcome.missed)
        assert least_cost(pool, 0, task) == pytest.approx(best)


def test_the_optimum_of_a_pool_uses_any_zone():
    pool = pool_of("uudddddd", "dduuuuuu")
    # Two ticks here, then the other zone: a changeover each.
    task = Task(15, 25, 1, 1, 0.5)
    assert least_cost(pool, 0, task) == pytest.approx(0.5 * (15 + 2))
    assert least_cost(pool_of("uudddddd"), 0, task) > least_cost(pool, 0, task)


def test_greedy_waits_until_the_last_moment():
    pool = pool_of("d" * 12)
    # Slack is 20 units; it waits while a changeover and a tick fit: at 20, 15, 10, and pays from 5 on.
    outcome = run_task(pool, 0, Task(20, 40, 2, 2, 0.3), Greedy(), lambda: 2)
    assert (outcome.cost, outcome.missed) == (22, False)
    late = run_task(pool_of("dddduuuuuuuu"), 0, Task(20, 40, 2, 2, 0.3), Greedy(), lambda: 2)
    assert late.cost == 22  # on demand to the end, although spot has come


def test_uniform_progress_pays_when_behind_and_returns_with_a_lead():
    policy = UniformProgress()
    task = Task(20, 40, 2, 2, 0.3)
    assert policy(Situation(task, 0, 20, JobMode.NONE, False, 0)) is SpotAction.WAIT
    assert policy(Situation(task, 5, 20, JobMode.NONE, False, 0)) is SpotAction.ON_DEMAND
    # Expected at 10 + 2 x 2 units: 7 done.
    assert policy(Situation(task, 10, 14, JobMode.ON_DEMAND, True, 0)) is SpotAction.ON_DEMAND
    assert policy(Situation(task, 10, 13, JobMode.ON_DEMAND, True, 0)) is SpotAction.SPOT
    assert policy(Situation(task, 10, 13, JobMode.ON_DEMAND, False, 0)) is SpotAction.ON_DEMAND


def test_the_loose_variant_is_greedy_first():
    policy = LooseUniformProgress()
    task = Task(20, 60, 2, 2, 0.3)
    assert policy(Situation(task, 5, 20, JobMode.NONE, False, 0)) is SpotAction.WAIT
    # 20 of 25 left: tight from here on, and steady progress is counted from here.
    assert policy(Situation(task, 35, 20, JobMode.NONE, False, 0)) is SpotAction.WAIT
    assert policy(Situation(task, 40, 20, JobMode.NONE, False, 0)) is SpotAction.ON_DEMAND


def test_windfalls_policy_is_between_the_optimum_and_uniform_progress():
    zone = synthetic_traces(seed=15, zones=1, days=14)
    made = bills("synthetic", zone, 0.3, 12, (1.25,))
    assert made
    assert not any(bill.missed for bill in made)
    greedy, uniform, loose, own, least = (
        sum(column) for column in zip(*(bill.costs for bill in made), strict=True)
    )
    assert least < own < uniform
    assert all(min(bill.costs) == bill.costs[-1] for bill in made)
    assert min(greedy, loose) > least


def test_a_directory_without_traces_is_said(tmp_path):
    with pytest.raises(SystemExit, match="has no traces"):
        zone_sets(tmp_path)
