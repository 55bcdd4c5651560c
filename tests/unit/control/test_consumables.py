"""Consumable resources: who holds how many tokens, from the first place to the end of the job."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_busy_world, a_job
from tests.gang_builders import a_world_of_gangs
from windfall.capacity.consumables import ConsumableResource
from windfall.control import events
from windfall.control.commands.consumables import (
    CreateConsumableResource,
    DeleteConsumableResource,
    QuantityOperation,
    UpdateConsumableResource,
)
from windfall.control.state import CLIENT_TOKEN_MS
from windfall.control.why import why
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import JobId
from windfall.jobs.states import RUNNABLE, STARTING, SUCCEEDED


def a_world_with(total: int, *, replenishable: bool = True, **rules) -> TestWorld:
    world = a_busy_world(**rules)
    world.happens(CreateConsumableResource(ConsumableResource("licence", total, replenishable)))
    return world


def update(world: TestWorld, operation: QuantityOperation, quantity: int, token: str | None = None) -> int:
    return world.happens(UpdateConsumableResource("licence", operation, quantity, token)).total


def kept(world: TestWorld) -> ConsumableResource:
    return world.store.small["declared"][ConsumableResource, "licence"]


def test_a_job_holds_its_tokens_from_starting_to_its_end():
    world = a_world_with(5).submits(a_job("one").wanting(licence=3))
    assert world.state_of("one") is STARTING
    assert (kept(world).in_use, kept(world).free) == (3, 2)
    world.starts("one")
    assert kept(world).in_use == 3
    world.exits("one")
    assert (kept(world).in_use, kept(world).free, kept(world).consumed) == (0, 5, 0)


def test_who_finds_too_few_waits_and_those_behind_pass():
    world = a_world_with(5).submits(
        a_job("one").wanting(licence=4),
        a_job("two").wanting(licence=2),
        a_job("plain"),
        a_job("three").wanting(licence=1),
    )
    assert [world.state_of(name) for name in ("one", "two", "plain", "three")] == [
        STARTING,
        RUNNABLE,
        STARTING,
        STARTING,
    ]
    world.exits("one")
    assert world.state_of("two") is STARTING


def test_tokens_are_kept_over_a_retry_and_nobody_else_gets_them():
    world = a_world_with(1).submits(
        a_job("one").wanting(licence=1).retried(3), a_job("two").wanting(licence=1)
    )
    world.starts("one").exits("one", 1)
    assert len(world.job("one").attempts) == 2
    assert (world.state_of("two"), kept(world).in_use) == (RUNNABLE, 1)
    world.exits("one")
    assert (world.state_of("one"), world.state_of("two")) == (SUCCEEDED, STARTING)


def test_what_does_not_come_back_is_used_up_once_a_job_however_often_it_was_tried():
    world = a_world_with(3, replenishable=False).submits(a_job("one").wanting(licence=2).retried(3))
    world.starts("one").exits("one", 1)
    assert (kept(world).consumed, kept(world).in_use, kept(world).free) == (0, 2, 1)
    world.exits("one")
    assert (kept(world).consumed, kept(world).in_use, kept(world).free) == (2, 0, 1)
    world.submits(a_job("two").wanting(licence=2))
    assert world.state_of("two") is RUNNABLE
    assert update(world, QuantityOperation.ADD, 1) == 4
    assert world.state_of("two") is STARTING


def test_children_of_an_array_hold_tokens_one_by_one():
    world = a_world_with(2).submits(a_job("many").array(5).wanting(licence=1))
    assert kept(world).in_use == 2
    assert world.states_of("many").count(STARTING) == 2
    world.exits("many:0")
    assert world.states_of("many")[:3] == [SUCCEEDED, STARTING, STARTING]


def test_a_total_below_what_is_in_use_takes_nothing_away_and_shrinks_as_jobs_end():
    world = a_world_with(5).submits(a_job("one").wanting(licence=3), a_job("two").wanting(licence=2))
    assert update(world, QuantityOperation.REMOVE, 4) == 1
    assert (kept(world).in_use, kept(world).free, kept(world).shown_total) == (5, 0, 5)
    world.exits("one")
    assert (kept(world).in_use, kept(world).free, kept(world).shown_total) == (2, 0, 2)
    world.exits("two")
    assert (kept(world).in_use, kept(world).free, kept(world).shown_total) == (0, 1, 1)


def test_an_update_that_is_sent_again_happens_once():
    world = a_world_with(1)
    assert update(world, QuantityOperation.ADD, 2, "again") == 3
    assert update(world, QuantityOperation.ADD, 2, "again") == 3
    assert update(world, QuantityOperation.ADD, 5, "again") == 8, "another payload is another request"
    world.restarted()
    assert update(world, QuantityOperation.ADD, 2, "again") == 8
    world.now += CLIENT_TOKEN_MS
    assert update(world, QuantityOperation.ADD, 2, "again") == 10
    assert update(world, QuantityOperation.SET, 4) == 4
    assert update(world, QuantityOperation.SET, 4) == 4


@pytest.mark.parametrize(
    ("operation", "quantity", "text"),
    [
        (QuantityOperation.REMOVE, 2, "has a total of 1, so 2 cannot be removed"),
        (QuantityOperation.ADD, -1, "use REMOVE"),
        (QuantityOperation.SET, 2**60, "must be between 0 and"),
    ],
)
def test_a_total_that_cannot_be_is_refused(operation, quantity, text):
    world = a_world_with(1)
    with pytest.raises(Invalid, match=text):
        update(world, operation, quantity)
    assert kept(world).total == 1


def test_a_resource_that_live_jobs_need_cannot_be_deleted():
    world = a_world_with(1).submits(a_job("one").wanting(licence=1), a_job("two").wanting(licence=1))
    with pytest.raises(
        Conflict, match=r"2 jobs that have not ended need licence \(one, two\); terminate them"
    ):
        world.happens(DeleteConsumableResource("licence"))
    world.exits("one")
    world.exits("two")
    world.happens(DeleteConsumableResource("licence"))
    assert world.state.consumables == {}
    assert world.restarted().state.consumables == {}
    with pytest.raises(NotFound):
        world.happens(DeleteConsumableResource("licence"))


def test_what_a_job_may_ask_for():
    world = a_world_with(1)
    with pytest.raises(Conflict, match="already exists"):
        world.happens(CreateConsumableResource(ConsumableResource("licence", 1)))
    with pytest.raises(NotFound, match="Consumable resource seat does not exist; create it first"):
        world.happens(a_job("one").wanting(seat=1))
    with pytest.raises(Invalid, match="at least 1"):
        world.happens(a_job("one").wanting(licence=0))
    with pytest.raises(Invalid, match="at most 5"):
        world.happens(a_job("one").wanting(a=1, b=1, c=1, d=1, e=1, f=1))


def test_a_restart_knows_again_who_holds_what():
    world = a_world_with(3).submits(a_job("one").wanting(licence=2), a_job("two").wanting(licence=2))
    world.restarted()
    assert world.state.token_holders == {"licence": {"one": 2}}
    world.connected(running=("one",))
    assert world.state_of("two") is RUNNABLE
    world.exits("one")
    assert world.state_of("two") is STARTING


def test_the_end_of_a_job_that_was_never_placed_gives_nothing_back():
    world = a_world_with(1).submits(a_job("one").wanting(licence=1), a_job("two").wanting(licence=1))
    world.happens(events.TerminateJob(JobId("two"), "no"))
    assert kept(world).in_use == 1
    assert world.state.token_holders == {"licence": {"one": 1}}


def test_who_waits_is_told_the_numbers_and_who_holds_them():
    world = a_world_with(5).submits(a_job("one").wanting(licence=4), a_job("two").wanting(licence=3))
    answer = why(world.state, JobId("two"), {}, world.now)
    assert answer is not None
    assert answer.reasons[0] == (
        "CONSUMABLE_RESOURCE_TAKEN",
        "wants 3 of licence, 1 of 5 free; held by one (4)",
    )
    world.submits(a_job("huge").wanting(licence=9))
    answer = why(world.state, JobId("huge"), {}, world.now)
    assert answer is not None
    assert "it never starts: raise the total with update-consumable-resource" in answer.reasons[0][1]


def test_who_lacks_tokens_is_not_told_that_other_capacity_would_do():
    world = a_world_with(0).submits(a_job("large").vcpus(500).wanting(licence=1))
    answer = why(world.state, JobId("large"), {}, world.now)
    assert answer is not None
    assert {"ASKS_TOO_MUCH", "CONSUMABLE_RESOURCE_TAKEN"} <= {code for code, _ in answer.reasons}
    assert answer.changes == []


def test_a_job_that_wants_many_is_not_starved_by_those_that_want_few():
    world = a_world_with(3)
    world.submits(*(a_job(f"small-{n}").wanting(licence=1) for n in range(3)))
    world.submits(a_job("large").wanting(licence=3))
    world.now += 61_000
    world.submits(*(a_job(f"late-{n}").wanting(licence=1) for n in range(3)))
    for n in range(3):
        world.exits(f"small-{n}")
    assert world.state_of("large") is STARTING
    assert [world.state_of(f"late-{n}") for n in range(3)] == [RUNNABLE] * 3
    world.exits("large")
    assert [world.state_of(f"late-{n}") for n in range(3)] == [STARTING] * 3


def test_tags_of_a_resource():
    world = a_world_with(1)
    world.happens(events.TagResource("consumable-resource", "licence", add={"team": "vision"}))
    assert kept(world).tags == {"team": "vision"}


def test_a_gang_holds_its_tokens_once_for_all_its_nodes_and_over_its_tries():
    world = a_world_of_gangs()
    world.happens(CreateConsumableResource(ConsumableResource("licence", 4)))
    world.submits(a_job("a", definition="gang").wanting(licence=3).retried(2))
    assert (kept(world).in_use, world.state.token_holders) == (3, {"licence": {"a": 3}})
    world.starts("a").starts("a#1", "a#2").exits("a", 1)
    world.exits("a#1", 143).exits("a#2", 143)
    assert (world.state_of("a"), kept(world).in_use) == (STARTING, 3)
    world.restarted()
    assert world.state.token_holders == {"licence": {"a": 3}}
    world.connected(running=("a",)).starts("a#1", "a#2").exits("a")
    world.exits("a#1", 143).exits("a#2", 143)
    assert (world.state_of("a"), kept(world).in_use) == (SUCCEEDED, 0)
