"""Fair share over the real reactor and scheduler with a clock that moves by hand: in the long run each share has had
capacity in proportion to 1/weight, vCPUs and GPUs alike, whatever the lengths of its jobs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_job
from tests.fair_worlds import PassingTime, a_fair_world, a_policy, fills, held
from windfall.control.snapshots import make_snapshot
from windfall.control.why import why
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.states import RUNNABLE
from windfall.scheduling.dispatch_order import dispatch_order
from windfall.scheduling.fair_share import NONE, amount_of

WEIGHTS = [
    {"one": 1.0, "two": 1.0},
    {"one": 0.5, "two": 1.0, "three": 1.0},
    {"one": 1.0, "two": 4.0},
    {"one": 0.25, "two": 0.5, "three": 1.0},
]


def expected(weights: dict[str, float]) -> dict[str, float]:
    """The part of the capacity that each share should have."""
    whole = sum(1 / weight for weight in weights.values())
    return {share: 1 / weight / whole for share, weight in weights.items()}


def parts(used: dict[str, float]) -> dict[str, float]:
    whole = sum(used.values())
    return {share: amount / whole for share, amount in used.items()}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_vcpus_converge_to_the_weights(weights, seed):
    world = a_fair_world(a_policy(**weights), vcpus=16)
    fills(world, *weights)
    passing = PassingTime(world, seed, longest_s=200)
    passing.measure(30, 30)
    passing.measure(160, 30)
    assert parts(passing.vcpu_s) == pytest.approx(expected(weights), abs=0.04)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("weights", WEIGHTS[:3])
def test_gpus_converge_to_the_weights_though_vcpus_are_plenty(weights, seed):
    world = a_fair_world(a_policy(**weights), vcpus=128, gpus=16, max_vcpus=128)
    for number, share in enumerate(weights):
        # One share asks for many more vCPUs beside its GPUs: GPUs are what is scarce, and what counts.
        fills(world, share, vcpus=1 + number * 3, gpus=1)
    passing = PassingTime(world, seed, longest_s=200)
    passing.measure(30, 30)
    passing.measure(160, 30)
    assert parts(passing.gpu_s) == pytest.approx(expected(weights), abs=0.05)


@pytest.mark.parametrize("seed", [1, 2])
def test_shares_with_large_and_small_jobs_get_the_same(seed):
    world = a_fair_world(vcpus=16)
    fills(world, "small", vcpus=1)
    fills(world, "large", vcpus=4)
    passing = PassingTime(world, seed, longest_s=200)
    passing.measure(30, 30)
    passing.measure(160, 30)
    assert parts(passing.vcpu_s)["large"] == pytest.approx(0.5, abs=0.06)


def test_a_prefix_keeps_its_weight_however_many_shares_it_has():
    world = a_fair_world(a_policy(team_=1.0, solo=1.0), vcpus=16)
    fills(world, "team1", "team2", "team3", "solo")
    passing = PassingTime(world, 5, longest_s=200)
    passing.measure(30, 30)
    passing.measure(160, 30)
    had = parts(passing.vcpu_s)
    assert had["solo"] == pytest.approx(0.5, abs=0.05)
    assert had["team1"] == pytest.approx(1 / 6, abs=0.05)


def test_usage_survives_restarts():
    world = a_fair_world(a_policy(one=1.0, two=3.0), vcpus=16)
    fills(world, "one", "two")
    passing = PassingTime(world, 7, longest_s=200)
    passing.measure(30, 30)
    passing.vcpu_s.clear()
    for _ in range(16):
        for _ in range(10):
            passing.step(30)
        world.restarted()
    assert parts(passing.vcpu_s) == pytest.approx({"one": 0.75, "two": 0.25}, abs=0.04)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "array", "end", "end", "time", "restart"]), st.integers(0, 99)
    ),
    max_size=50,
)


@settings(max_examples=40, deadline=None)
@given(OPERATIONS, st.sampled_from([0, 30, 75]))
def test_whatever_happens_meters_agree_with_attempts_and_the_reservation_holds(operations, reservation):
    world = a_fair_world(a_policy(reservation=reservation, a=0.5, b_=2.0), vcpus=8, gpus=2)
    queue, count = QueueName("queue"), 0
    for operation, number in operations:
        share = ("a", "b1", "b2", "c")[number % 4]
        before = {token: job.submission.share for token, job in world.state.attempts.items()}
        if operation in ("submit", "array"):
            count += 1
            job = a_job(f"j{count}").under(share, number % 3).vcpus(1 + number % 3).gpus(number % 2)
            world.submits(job.array(2 + number % 5) if operation == "array" else job)
        elif operation == "end" and world.state.attempts:
            running = sorted(job.id for job in world.state.attempts.values())
            world.exits(running[number % len(running)])
        elif operation == "time":
            world.later(number * 20_000)
        elif operation == "restart":
            world.restarted()
        usable = None
        for view in make_snapshot(world.state, world.state.offers, world.now).queues:
            assert view.fair_share is not None
            usable = view.fair_share.usable
            order = dispatch_order(view, 1_000)
            assert sorted(one for one, _ in order) == sorted(
                entry.job_id for group in view.groups for entry in group.entries
            )
        totals = dict.fromkeys(("a", "b1", "b2", "c"), NONE)
        for job in world.state.attempts.values():
            totals[job.submission.share or ""] += amount_of(job.needs)
        for name, meter in world.state.shares.of(queue).items():
            assert held(world, name) == totals[name]
            assert meter.average.vcpus <= 8 + 1e-6
        started = [job for token, job in world.state.attempts.items() if token not in before]
        whole = sum((amount.vcpus for amount in totals.values()), 0.0)
        if started and usable is not None:
            assert whole <= usable.vcpus + 1e-6
        for job in world.state.jobs.values():
            if job.state is RUNNABLE and not job.is_array:
                answer = why(world.state, JobId(job.id), world.state.offers, world.now)
                assert answer is not None
                assert answer.reasons
