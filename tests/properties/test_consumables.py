"""Tokens are never over-issued and never lost, whatever happens in whatever order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import TestWorld, a_busy_world, a_job, a_machine
from tests.simulation.invariants import check_backlog, check_occupancy
from tests.simulation.tokens import RESOURCES, TokenWatch, check_tokens
from windfall.capacity.consumables import ConsumableResource
from windfall.control import events
from windfall.control.commands.consumables import (
    CreateConsumableResource,
    DeleteConsumableResource,
    QuantityOperation,
    UpdateConsumableResource,
)
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId
from windfall.jobs.states import RUNNABLE
from windfall.jobs.storage import StorageLayout

HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "single",
                "single",
                "array",
                "kept",
                "starts",
                "starts",
                "exits",
                "exits",
                "fails",
                "lost",
                "terminate",
                "cancel",
                "interrupt",
                "set",
                "add",
                "remove",
                "delete",
                "restart",
                "time",
            ]
        ),
        st.integers(0, 40),
        st.integers(1, 3),
    ),
    min_size=12,
    max_size=45,
)


class Life:
    """A daemon with three consumable resources, to which things happen."""

    def __init__(self) -> None:
        self.world: TestWorld = a_busy_world(
            a_machine(vcpus=6), storage=StorageLayout("s3://bucket"), notice_s=5.0
        )
        self.world.with_environment("spot")
        self.world.happens(*(CreateConsumableResource(resource) for resource in RESOURCES))
        self.ids = ["first"]
        self.watch = TokenWatch()

    def does(self, what: str, number: int, count: int) -> None:
        """One thing happens, and nothing was given away that was not there."""
        self.world.now += 900
        used_before = {name: it.consumed for name, it in self.world.state.consumables.items()}
        try:
            if what == "restart":
                self.world.restarted()
                self.watch.begin(self.world.state)
                self.world.ready()
            else:
                self.world.happens(self.event(what, number, count))
        except Rejected:
            pass
        state = self.world.state
        check_tokens(state)
        check_occupancy(state)
        check_backlog(state)
        self.watch.look(state)
        for name, resource in state.consumables.items():
            assert resource.consumed >= used_before.get(name, 0), "what is used up stays used up"
            assert not (resource.replenishable and resource.consumed)
            stored = self.world.store.small["declared"][ConsumableResource, name]
            assert (stored.in_use, stored.total, stored.consumed) == (
                resource.in_use,
                resource.total,
                resource.consumed,
            ), "readers see what memory has"

    def event(self, what: str, number: int, count: int) -> Any:
        resource = RESOURCES[number % 3].name
        if what in ("single", "array", "kept"):
            job_id = f"job-{len(self.ids)}"
            self.ids.append(job_id)
            other = RESOURCES[(number + 1) % 3].name
            tokens = {resource: count} | ({other: 1} if number % 2 else {})
            job = a_job(job_id, queue="spot" if number % 3 else "queue").wanting(**tokens).retried(count)
            return (
                job.array(3) if what == "array" else job.tagged(checkpoint="true") if what == "kept" else job
            )
        placed = list(self.world.state.attempts)
        token = placed[number % len(placed)] if placed else events.AttemptToken("nobody#1")
        job_id, now = JobId(self.ids[number % len(self.ids)]), self.world.now
        return {
            "starts": events.AttemptStarted(token, now),
            "exits": events.AttemptExited(token, now, 0, None, now),
            "fails": events.AttemptExited(token, now, 1, None, now),
            "lost": events.AttemptLost(token, now),
            "terminate": events.TerminateJob(job_id, "no"),
            "cancel": events.CancelJob(job_id, "no"),
            "interrupt": events.InterruptJob(job_id, 2.0),
            "set": UpdateConsumableResource(resource, QuantityOperation.SET, count),
            "add": UpdateConsumableResource(resource, QuantityOperation.ADD, count, f"t{number}"),
            "remove": UpdateConsumableResource(resource, QuantityOperation.REMOVE, count),
            "delete": DeleteConsumableResource(resource),
            "time": events.TimePassed(),
        }[what]


@settings(max_examples=60, deadline=None)
@given(happenings=HAPPENINGS)
def test_no_token_is_given_twice_over_any_interleaving(happenings):
    life = Life()
    for what, number, count in happenings:
        life.does(what, number, count)


@settings(max_examples=30, deadline=None)
@given(happenings=HAPPENINGS)
def test_all_tokens_are_back_when_all_jobs_have_ended(happenings):
    life = Life()
    for what, number, count in happenings:
        life.does(what, number, count)
    state = life.world.state
    for job in [job for job in state.jobs.values() if job.parent is None]:
        life.world.happens(events.TerminateJob(job.id, "enough"))
    for token in list(state.attempts):
        life.world.happens(events.AttemptExited(token, life.world.now, 143, None, life.world.now))
    assert not state.jobs
    assert not any(state.token_holders.values())
    assert all(resource.in_use == 0 for resource in state.consumables.values())


@settings(max_examples=60, deadline=None)
@given(wants=st.lists(st.integers(1, 4), min_size=1, max_size=12), total=st.integers(1, 4))
def test_nobody_waits_who_could_start(wants, total):
    """With room for all and time passing, only those wait whose tokens are taken, kept for others, or too many."""
    world = a_busy_world(a_machine(vcpus=64))
    world.happens(CreateConsumableResource(ConsumableResource("licence", total)))
    world.submits(*(a_job(f"job-{n}").wanting(licence=want) for n, want in enumerate(wants)))
    possible = {f"job-{n}" for n, want in enumerate(wants) if want <= total}
    for _ in range(len(wants) + 1):
        world.later(70_000)
        placed = [token.partition("#")[0] for token in world.state.attempts]
        for job_id in placed:
            world.exits(job_id)
            possible.discard(job_id)
    assert possible == set(), "whoever can have its tokens has run"
    assert all(job.state is RUNNABLE for job in world.state.jobs.values())
