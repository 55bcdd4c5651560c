"""Random lives of a queue with quota shares, over the real planner and reactor, checked after every round."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.builders import TestWorld
from tests.gang_builders import a_container, a_gang_definition
from tests.simulation.gangs import check_gangs
from tests.unit.control.quota_worlds import a_quota_world, a_share, a_shared_job
from windfall.capacity.policies import CapacityLimit, QuotaShare, SharingStrategy
from windfall.control import events
from windfall.control.commands.policies import UpdateQuotaShare
from windfall.control.gangs import waits_for_main
from windfall.control.instructions import InterruptAttempt
from windfall.control.quota_shares import quota_views
from windfall.jobs.attempts import PREEMPTIONS
from windfall.jobs.definitions import NodeRange
from windfall.jobs.ids import AttemptToken, JobId, QueueName
from windfall.scheduling.quotas import Quotas

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
        sharing = rng.choice(
            [SharingStrategy.RESERVE, SharingStrategy.LEND, *[SharingStrategy.LEND_AND_BORROW] * 3]
        )
        borrow = rng.choice([-1, -1, 0, 50, 200]) if sharing is SharingStrategy.LEND_AND_BORROW else -1
        limits = {"GPU": gpus, **({"VCPU": rng.choice([2, 4, 8])} if with_vcpus else {})}
        found.append(a_share(name, sharing, borrow, within=rng.random() < 0.4, **limits))
    return found


#: Multi-node jobs of one GPU a node, and one whose main node wants more.
GANGS = (
    a_gang_definition("pair", 2, 0, NodeRange(0, None, a_container(gpus=1))),
    a_gang_definition("trio", 3, 1, NodeRange(0, None, a_container(gpus=1))),
    a_gang_definition(
        "uneven", 3, 0, NodeRange(0, 0, a_container(2, gpus=2)), NodeRange(1, 2, a_container(vcpus=2))
    ),
)


class Life:
    """A random life of a queue with quota shares on one host; `gangs` is the part of jobs that have several nodes."""

    def __init__(
        self,
        seed: int,
        *shares: QuotaShare,
        largest: int = 3,
        updates: bool = False,
        gangs: float = 0.0,
        vcpus: int = VCPUS,
    ) -> None:
        self.rng = Random(seed)
        self.largest, self.updates, self.gangs = largest, updates, gangs
        declared = shares or random_shares(self.rng)
        self.world: TestWorld = a_quota_world(*declared, vcpus=vcpus, gpus=GPUS, notice_s=10.0)
        for definition in GANGS if gangs else ():
            self.world.happens(events.RegisterJobDefinition(definition))
        self.number = 0
        #: For each job that others were asked to leave for: who has not left, and when the first was asked.
        self.awaited: dict[JobId, set[AttemptToken]] = {}
        self.asked_at: dict[JobId, int] = {}
        self.preempted = 0
        #: How many multi-node jobs others were asked to leave for, and were asked to leave.
        self.seen: Counter[str] = Counter()

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
            token = self.rng.choice(live)
            if not waits_for_main(self.world.state, self.world.state.attempts[token]):
                self.round(events.AttemptStarted(token, self.world.now))
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
        if self.gangs and self.rng.random() < self.gangs:
            self.submits_gang(share)
            return
        self.number += 1
        job = a_shared_job(f"j{self.number}", share or self.rng.choice(SHARES), self.rng.choice([0, 0, 5]))
        job = job.gpus(self.rng.randint(1, self.largest)).vcpus(self.rng.choice([1, 1, 2]))
        if self.rng.random() < 0.2:
            job = job.array(self.rng.randint(2, 5))
        self.round(job)

    def submits_gang(self, share: str | None) -> None:
        self.number += 1
        job = a_shared_job(f"j{self.number}", share or self.rng.choice(SHARES), self.rng.choice([0, 0, 5]))
        job = job.of(self.rng.choice(GANGS).name)
        self.round(job.tagged(replace_lost_nodes="true") if self.rng.random() < 0.3 else job)

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
            self.seen["asked for"] += self.world.store.jobs[for_job].is_gang
            self.seen["asked"] += self.world.state.attempts[notice.token].is_gang
        if self.gangs:
            check_gangs(self.world.state)
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
        node = self.world.store.jobs[job_id]
        if node.is_node and node.parent is not None and self.world.store.jobs[node.parent].attempt is None:
            return True  # Its gang has lost its main node's place meanwhile, and it waits with that.
        asked = node.submission
        same_needs = (asked.share, asked.priority, asked.resources, asked.nodes)
        for job in self.world.store.jobs.values():
            one = job.submission
            if (one.share, one.priority, one.resources, one.nodes) == same_needs and any(
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
