"""Service environments over many plans: limits hold, nothing is preempted in vain, and everybody who can start does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from windfall.capacity.policies import CapacityLimit, QuotaShare, SharingStrategy
from windfall.scheduling.quotas import Quotas
from windfall.scheduling.service_queue import plan_services
from windfall.scheduling.service_views import (
    HoldingService,
    ServicePlan,
    ServiceQueueView,
    ServiceView,
    WaitingService,
    needs_of,
)

KIND = "ml.g5.xlarge"
NAMES = ("a", "b", "c")

shares = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from(SharingStrategy), st.sampled_from((-1, 0, 50, 100)), st.booleans()
    ),
    min_size=1,
    max_size=3,
).map(
    lambda drawn: [
        QuotaShare(name, "queue", (CapacityLimit(KIND, amount),), sharing, borrow, within)
        for name, (amount, sharing, borrow, within) in zip(NAMES, drawn, strict=False)
    ]
)
jobs = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 100)), max_size=12
)


class World:
    """A queue whose jobs start when they are dispatched and leave when they are asked to."""

    def __init__(self, drawn, capacity: int, divided: list[QuotaShare] | None) -> None:
        names = {share.name for share in divided or ()}
        self.limits, self.divided = {KIND: float(capacity)}, divided
        self.loss = {f"j{n}": float(loss) for n, (*_, loss) in enumerate(drawn)}
        self.waiting: dict[str, WaitingService] = {}
        #: Those who have not come yet, the first last.
        self.arriving = [
            WaitingService(f"j{n}", n, needs_of({KIND: size}), priority, share if names else "")
            for n, (size, share, priority, _) in enumerate(drawn)
            if not names or share in names
        ][::-1]
        self.holding: dict[str, HoldingService] = {}

    def arrives(self) -> None:
        if self.arriving:
            job = self.arriving.pop()
            self.waiting[job.id] = job

    def plan(self) -> ServicePlan:
        queue = ServiceQueueView(
            "queue", list(self.waiting.values()), list(self.holding.values()), quota_shares=self.divided
        )
        return plan_services(ServiceView(self.limits, [queue]))

    def do(self, made: ServicePlan) -> None:
        for job_id in made.dispatch:
            job = self.waiting.pop(job_id)
            self.holding[job_id] = HoldingService(
                job_id, job.needs, job.priority, job.share, self.loss[job_id]
            )
        for one in made.preempt:
            self.holding[one.victim] = replace(self.holding[one.victim], leaving=True)
            self.waiting[one.for_job] = replace(self.waiting[one.for_job], promised=True)

    def leave(self, job_id: str, *, again: bool) -> None:
        job = self.holding.pop(job_id)
        if again:
            order = int(job_id.removeprefix("j"))
            self.waiting[job_id] = WaitingService(job_id, order, job.needs, job.priority, job.share)

    def check(self) -> None:
        used: Counter[str] = Counter()
        for job in self.holding.values():
            used[job.share] += job.needs[KIND]
        assert sum(used.values()) <= self.limits[KIND]
        if self.divided is None:
            return
        quotas = Quotas(self.divided, {name: {KIND: amount} for name, amount in used.items()})
        for share in self.divided:
            assert used[share.name] <= quotas.ceiling(share.name, KIND)
        assert quotas.borrowed(KIND) <= quotas.lendable(KIND)


@given(jobs, st.integers(0, 6), st.one_of(st.none(), shares), st.randoms(use_true_random=False))
def test_limits_hold_and_nothing_is_preempted_in_vain(drawn, capacity, divided, random):
    world = World(drawn, capacity, divided)
    for _ in range(40):
        world.arrives()
        made = world.plan()
        assert len(set(made.dispatch)) == len(made.dispatch)
        world.do(made)
        world.check()
        owed = {one.for_job for one in made.preempt}
        event(f"preempted: {bool(owed)}")
        if owed:
            # Those who were asked leave, and wait again; whoever they left for starts, before anybody else is asked.
            for job_id in [job.id for job in world.holding.values() if job.leaving]:
                world.leave(job_id, again=True)
            after = world.plan()
            assert owed <= set(after.dispatch)
            world.do(after)
            world.check()
        if world.holding and (not world.arriving or random.random() < 0.3):
            world.leave(random.choice(sorted(world.holding)), again=False)
    assert all(job in world.plan().never for job in world.waiting) or not world.waiting


@given(jobs, st.integers(0, 6), st.one_of(st.none(), shares))
def test_a_plan_is_stable_once_it_has_been_done(drawn, capacity, divided):
    world = World(drawn, capacity, divided)
    while world.arriving:
        world.arrives()
    world.do(world.plan())
    again = world.plan()
    assert (again.dispatch, again.preempt) == ([], [])
