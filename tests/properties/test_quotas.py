"""What holds for quota shares in every interleaving, over the real planner and reactor.

Limits are never exceeded, lent capacity returns when its owner has jobs, and nobody is preempted in vain: whoever
others had to leave for starts when they have left.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import TestWorld
from tests.unit.control.quota_worlds import a_quota_world, a_share, a_shared_job
from windfall.capacity.policies import CapacityLimit, QuotaShare, Sharing
from windfall.control import events
from windfall.control.commands.policies import UpdateQuotaShare
from windfall.control.instructions import InterruptAttempt
from windfall.control.quota_shares import quota_views
from windfall.control.why import why
from windfall.jobs.attempts import PREEMPTIONS
from windfall.jobs.ids import AttemptToken, JobId, QueueName
from windfall.jobs.states import RUNNABLE
from windfall.scheduling.quota_gate import in_units
from windfall.scheduling.quotas import Quotas, Verdict

GPUS, VCPUS = 6, 16
QUEUE = QueueName("shared")
SHARES = ("a", "b", "c")


def random_shares(rng: Random) -> list[QuotaShare]:
    """Three shares that divide the GPUs, and perhaps the vCPUs, between them."""
    cuts = sorted(rng.randint(0, GPUS) for _ in range(2))
    sizes = (cuts[0], cuts[1] - cuts[0], GPUS - cuts[1])
    with_vcpus = rng.random() < 0.4
    found = []
    for name, gpus in zip(SHARES, sizes, strict=True):
        sharing = rng.choice([Sharing.RESERVE, Sharing.LEND, *[Sharing.LEND_AND_BORROW] * 3])
        borrow = rng.choice([-1, -1, 0, 50, 200]) if sharing is Sharing.LEND_AND_BORROW else -1
        limits = {"GPU": gpus, **({"VCPU": rng.choice([2, 4, 8])} if with_vcpus else {})}
        found.append(a_share(name, sharing, borrow, within=rng.random() < 0.4, **limits))
    return found


class Life:
    """A random life of a queue with quota shares on one host, checked after every round."""

    def __init__(self, seed: int, *, largest: int = 3, updates: bool = False) -> None:
        self.rng = Random(seed)
        self.largest, self.updates = largest, updates
        self.world: TestWorld = a_quota_world(*random_shares(self.rng), vcpus=VCPUS, gpus=GPUS, notice_s=10.0)
        self.number = 0
        #: For each job that others were asked to leave for: who has not left, and when the first was asked.
        self.awaited: dict[JobId, set[AttemptToken]] = {}
        self.asked_at: dict[JobId, int] = {}
        self.preempted = 0

    def lives(self, steps: int) -> Life:
        for _ in range(steps):
            self.world.now += self.rng.choice([100, 1_000, 5_000])
            self.step()
        return self

    def step(self) -> None:
        """One thing happens, after all have left whose notice is over."""
        for token in self.leaving():
            attempt = self.world.state.attempts[token].attempt
            assert attempt is not None
            if (attempt.deadline_at or 0) <= self.world.now:
                self.round(events.AttemptExited(token, self.world.now, 137, None, self.world.now))
        choice = self.rng.random()
        live = sorted(self.world.state.attempts)
        if choice < 0.45 or not live:
            self.submits()
        elif choice < 0.55:
            self.round(events.AttemptStarted(self.rng.choice(live), self.world.now))
        elif choice < 0.9:
            token = self.rng.choice(self.leaving() or live)
            code = self.rng.choice([0, 0, 1, 143])
            self.round(events.AttemptExited(token, self.world.now, code, None, self.world.now))
        elif choice < 0.95:
            self.world.restarted()
            self.round(events.TimePassed())
        elif self.updates:
            # Whoever changes the limits may take back what others were asked to leave for.
            self.awaited.clear()
            self.asked_at.clear()
            limits = (CapacityLimit("GPU", self.rng.randint(0, GPUS)),)
            self.round(UpdateQuotaShare(f"shared/{self.rng.choice(SHARES)}", limits=limits))
        else:
            self.round(events.TimePassed())

    def submits(self, share: str | None = None) -> None:
        self.number += 1
        job = a_shared_job(f"j{self.number}", share or self.rng.choice(SHARES), self.rng.choice([0, 0, 5]))
        job = job.gpus(self.rng.randint(1, self.largest)).vcpus(self.rng.choice([1, 1, 2]))
        if self.rng.random() < 0.2:
            job = job.array(self.rng.randint(2, 5))
        self.round(job)

    def leaving(self) -> list[AttemptToken]:
        return sorted(
            token
            for token, job in self.world.state.attempts.items()
            if job.attempt is not None and job.attempt.stop_cause is not None
        )

    def round(self, event: object) -> None:
        self.world.happens(event)
        for notice in self.world.asked_for(InterruptAttempt):
            attempt = self.world.state.attempts[notice.token].attempt
            assert attempt is not None
            assert attempt.stop_cause in PREEMPTIONS
            self.preempted += 1
            for_job = JobId(notice.words.split()[1])
            self.awaited.setdefault(for_job, set()).add(notice.token)
            self.asked_at.setdefault(for_job, self.world.now)
        self.check_nothing_in_vain()
        if not self.updates:
            self.check_limits()

    def quotas(self) -> Quotas:
        view = quota_views(self.world.state)[QUEUE]
        return Quotas(view.shares, view.used)

    def check_limits(self) -> None:
        quotas = self.quotas()
        for share in SHARES:
            for unit, held in quotas.used(share).items():
                assert held <= quotas.ceiling(share, unit) + 1e-6, (share, unit, held)
        for unit in ("GPU", "VCPU"):
            assert quotas.borrowed(unit) <= quotas.lendable(unit) + 1e-6, unit

    def check_nothing_in_vain(self) -> None:
        """Once all have left who were asked to, those have started who they were asked for.

        Places are interchangeable: one may start where another one's victim was, if that one's place comes as well. And
        a job may start in place of one just like it that came after it. A victim that ends with success lost nothing.
        """
        if self.leaving():
            return
        for job_id, tokens in self.awaited.items():
            lost = [token for token in tokens if self.was_preempted(token)]
            assert not lost or self.has_started(job_id), f"{job_id} did not start after {lost} left for it"
        self.awaited.clear()
        self.asked_at.clear()

    def was_preempted(self, token: AttemptToken) -> bool:
        job = self.world.store.jobs[JobId(token.rpartition("#")[0])]
        return any(attempt.preempted for attempt in job.attempts if attempt.token == token)

    def has_started(self, job_id: JobId) -> bool:
        asked = self.world.store.jobs[job_id].submission
        alike = (asked.share, asked.priority, asked.resources)
        for job in self.world.store.jobs.values():
            one = job.submission
            if (one.share, one.priority, one.resources) == alike and any(
                attempt.placed_at >= self.asked_at[job_id] for attempt in job.attempts
            ):
                return True
        return False

    def all_leave(self) -> None:
        """All leave who are asked to, until nobody is asked any more."""
        for _ in range(60):
            tokens = self.leaving()
            if not tokens:
                self.round(events.TimePassed())
                tokens = self.leaving()
            if not tokens:
                return
            for token in tokens:
                self.round(events.AttemptExited(token, self.world.now, 143, None, self.world.now))
        pytest.fail("jobs of the queue ask one another to leave without end")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
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
        assert (verdict is Verdict.ADMITTED) == (not lacks)
        if verdict is Verdict.ADMITTED:
            quotas.note(share, amounts)
            held.append((share, amounts))
            assert quotas.never(share, amounts) is None
        for unit in ("GPU", "VCPU"):
            assert quotas.borrowed(unit) <= quotas.lendable(unit) + 1e-6
            assert all(quotas.used(one).get(unit, 0) <= quotas.ceiling(one, unit) + 1e-6 for one in SHARES)
