"""Consumable resources in the simulated world: who wants tokens, who changes totals, and what must hold of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.store import BrokenPromise
from windfall.capacity.consumables import ConsumableResource
from windfall.control.commands.consumables import (
    CreateConsumableResource,
    DeleteConsumableResource,
    QuantityOperation,
    UpdateConsumableResource,
)
from windfall.control.state import State
from windfall.jobs.ids import JobId
from windfall.jobs.states import PLACED

if TYPE_CHECKING:
    from tests.simulation.clients import Clients

RESOURCES = (
    ConsumableResource("licence", 3),
    ConsumableResource("seat", 2),
    ConsumableResource("coupon", 6, replenishable=False),
)
#: Enough for all that a world can use up.
PLENTY = 100_000
WANTED: tuple[tuple[tuple[str, int], ...], ...] = (
    (("licence", 1),),
    (("licence", 3),),
    (("licence", 2), ("seat", 1)),
    (("seat", 1),),
    (("coupon", 1),),
    (("seat", 2), ("coupon", 2)),
)


def wanted_tokens(rng: random.Random) -> tuple[tuple[str, int], ...] | None:
    """What a job asks for; most ask for nothing."""
    return rng.choice(WANTED) if rng.random() < 0.25 else None


def declare_tokens(clients: Clients) -> None:
    """All resources exist, with as many tokens as somebody may want at once."""
    for resource in RESOURCES:
        clients.call(CreateConsumableResource(resource))
        total = resource.total if resource.replenishable else PLENTY
        clients.call(UpdateConsumableResource(resource.name, QuantityOperation.SET, total))


def change_tokens(clients: Clients) -> None:
    """Somebody changes a total, or deletes a resource that may be needed."""
    rng = clients.rng
    name = rng.choice(RESOURCES).name
    clients.world.disturbances += 1
    if rng.random() < 0.1:
        clients.call(DeleteConsumableResource(name))
        return
    token = rng.choice((None, "again"))
    clients.call(
        UpdateConsumableResource(name, rng.choice(list(QuantityOperation)), rng.choice((0, 1, 2, 4)), token)
    )


def check_tokens(state: State) -> None:
    """Who has a place has its tokens, and what is counted is what live jobs hold."""
    held: dict[str, dict[JobId, int]] = {name: {} for name in state.consumables}
    for job in state.jobs.values():
        if not job.submission.consumables:
            continue
        if job.state in PLACED and not (job.holds_consumables or job.is_node):
            raise BrokenPromise(f"runs without its tokens: {job.story()}")
        if job.holds_consumables:
            for name, count in job.submission.consumables:
                held[name][job.id] = count
    for name, resource in state.consumables.items():
        if held[name] != state.token_holders.get(name, {}):
            raise BrokenPromise(
                f"{name} is held by {held[name]}, counted are {state.token_holders.get(name)}"
            )
        if resource.in_use != sum(held[name].values()):
            raise BrokenPromise(f"{resource} and these hold it: {held[name]}")


class TokenWatch:
    """Sees that nobody is given a token that is not there."""

    def __init__(self) -> None:
        self._holders: dict[str, set[JobId]] = {}

    def begin(self, state: State) -> None:
        """A daemon has just read the store: who holds what there is not its doing."""
        self._holders = {name: set(holders) for name, holders in state.token_holders.items()}

    def look(self, state: State) -> None:
        """After a round: whoever holds tokens now and did not before found enough of them."""
        for name, holders in state.token_holders.items():
            new = set(holders) - self._holders.get(name, set())
            resource = state.consumables.get(name)
            if new and (resource is None or resource.consumed + resource.in_use > resource.total):
                raise BrokenPromise(f"{sorted(new)} were given tokens of {resource}, held by {holders}")
        self.begin(state)
