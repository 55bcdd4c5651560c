"""Traces that are replayed through the real scheduler, and the form in which they are written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from windfall.capacity.catalog.lookup import CATALOG
from windfall.cli.errors import BadUsage
from windfall.cli.simulate import read_trace
from windfall.forecast.playing import Bounds
from windfall.forecast.replaying import Cluster, Outcome, ReplayPolicy, TracedJob, replay

TYPE = CATALOG.find("g5.12xlarge")
EXAMPLE = Path(__file__).parents[3] / "examples" / "trace.csv"


def replayed(policy: ReplayPolicy, *jobs: TracedJob, machines: int = 1, rounds: int = 10_000) -> Outcome:
    assert TYPE is not None
    cluster = Cluster(type=TYPE, machines=machines, every_s=1.0)
    return replay(jobs, cluster, policy, random.Random(1).random, Bounds(rounds=rounds))


def a_job(submit_s: float, length_s: float = 600.0, user: str = "ann", gpus: int = 4) -> TracedJob:
    return TracedJob(submit_s=submit_s, length_s=length_s, gpus=gpus, user=user)


def test_first_come_first_served_on_one_machine():
    outcome = replayed(ReplayPolicy.FIFO, a_job(0), a_job(0), a_job(0))
    assert (outcome.done, outcome.interruptions, outcome.complete) == (3, 0, True)
    # The machine comes after a minute.
    assert [round(wait / 60) for wait in outcome.waits_s] == [1, 11, 21]
    assert outcome.usd == pytest.approx(3 * 600 / 3600 * (TYPE.on_demand_usd_hour or 0), rel=0.02)
    assert outcome.gpu_use is not None
    assert 0.9 < outcome.gpu_use <= 1


def test_more_machines_let_nobody_wait():
    outcome = replayed(ReplayPolicy.FIFO, a_job(0), a_job(0), a_job(0), machines=10_000)
    assert max(outcome.waits_s) < 70


def test_a_user_with_few_jobs_waits_less_with_shares():
    crowd = [a_job(number) for number in range(6)]
    late = a_job(30, user="bob")
    waits = {
        policy: replayed(policy, *crowd, late).waits_s
        for policy in (ReplayPolicy.FIFO, ReplayPolicy.FAIR_SHARE)
    }
    assert waits[ReplayPolicy.FIFO] != waits[ReplayPolicy.FAIR_SHARE]


def test_spot_capacity_with_deadlines_is_cheaper_and_in_time():
    jobs = [a_job(number * 60, 7200.0) for number in range(5)]
    steady, spot = (
        replayed(policy, *jobs, machines=5) for policy in (ReplayPolicy.FIFO, ReplayPolicy.SPOT_DEADLINE)
    )
    assert (spot.done, spot.late) == (5, 0)
    assert spot.usd is not None
    assert steady.usd is not None
    assert spot.usd < steady.usd


def test_bounds_end_a_replay_and_it_says_so():
    assert not replayed(ReplayPolicy.FIFO, a_job(0), a_job(0), rounds=3).complete


def test_the_example_can_be_read():
    jobs = read_trace(EXAMPLE)
    assert len(jobs) == 400
    assert {job.user for job in jobs} == {"ann", "bob", "cem", "dia"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "column submit_s is missing"),
        ("submit_s,cpus\n1,2\n", "column length_s is missing"),
        ("submit_s,length_s\n", "has no jobs"),
        ("submit_s,length_s\n1,2\nsoon,5\n", "line 3: submit_s must be a number"),
        ("submit_s,length_s\n1,\n", "line 2: submit_s and length_s are needed"),
        ("submit_s,length_s,gpus\n1,5,-1\n", "gpus must be a number from 0"),
        ("submit_s,length_s\n1,nan\n", "length_s must be a number"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused_with_its_line(tmp_path, text, told):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(BadUsage, match=told):
        read_trace(file)


def test_columns_may_be_left_out_and_users_become_names_of_shares(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("submit_s, length_s, user, colour\n1, 5, ann.b, red\n")
    assert read_trace(file) == [TracedJob(submit_s=1, length_s=5, user="annb")]
