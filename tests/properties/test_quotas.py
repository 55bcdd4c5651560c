"""What holds for quota shares in every interleaving, over the real planner and reactor.

Limits are never exceeded, lent capacity returns when its owner has jobs, and nobody is preempted in vain: whoever
others had to leave for starts when they have left.
"""

from __future__ import annotations

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.properties.quota_lives import SHARES, VCPUS, Life, random_shares
from windfall.control.why import why
from windfall.jobs.states import RUNNABLE
from windfall.scheduling.quota_gate import in_units
from windfall.scheduling.quotas import Quotas, QuotaVerdict


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
@example(170983)  # A restart between the first who leaves for a child of an array and the last.
def test_limits_are_never_exceeded_and_nobody_leaves_in_vain(seed):
    life = Life(seed).lives(45)
    life.all_leave()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_nobody_leaves_in_vain_when_limits_change_meanwhile(seed):
    life = Life(seed, updates=True)
    life.lives(40)
    life.all_leave()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_lent_capacity_returns_when_its_owner_has_jobs(seed):
    """With jobs of one GPU each, no owner waits while others hold more than their own."""
    life = Life(seed, largest=1).lives(40)
    for share in SHARES:
        life.submits(share)
    life.all_leave()
    quotas = life.quotas()
    above = {share for share in SHARES if "GPU" in quotas.above(share)}
    for job in life.world.state.jobs.values():
        share = job.submission.share
        if job.state is not RUNNABLE or job.is_array or share is None or not above - {share}:
            continue
        amounts = in_units(job.needs)
        fits_vcpus = job.needs.vcpus <= VCPUS - sum(
            one.needs.vcpus for one in life.world.state.attempts.values()
        )
        assert not (fits_vcpus and quotas.entitles(share, amounts)), job.story()


def test_the_random_lives_do_preempt():
    assert sum(Life(seed).lives(45).preempted for seed in range(12)) > 20


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_whoever_waits_is_told_why(seed):
    life = Life(seed).lives(30)
    for job_id, job in life.world.state.jobs.items():
        if job.state is RUNNABLE:
            answer = why(life.world.state, job_id, life.world.state.offers, life.world.now)
            assert answer is not None
            assert answer.reasons
            assert not any(code in ("STARTS_NEXT", "UNDETERMINED") for code, _ in answer.reasons), (
                answer.reasons
            )


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_what_the_arithmetic_admits_never_breaks_its_own_rules(seed):
    rng = Random(seed)
    quotas, held = Quotas(random_shares(rng)), []
    for _ in range(60):
        share, amounts = rng.choice(SHARES), {"GPU": rng.randint(0, 3), "VCPU": rng.choice([0.25, 1, 4])}
        if held and rng.random() < 0.4:
            quotas.note(*held.pop(rng.randrange(len(held))), -1)
            continue
        lacks = quotas.missing(share, amounts)
        verdict = quotas.verdict(share, amounts)
        assert (verdict is QuotaVerdict.ADMITTED) == (not lacks)
        if verdict is QuotaVerdict.ADMITTED:
            quotas.note(share, amounts)
            held.append((share, amounts))
            assert quotas.never(share, amounts) is None
        for unit in ("GPU", "VCPU"):
            assert quotas.borrowed(unit) <= quotas.lendable(unit) + 1e-6
            assert all(quotas.used(one).get(unit, 0) <= quotas.ceiling(one, unit) + 1e-6 for one in SHARES)
