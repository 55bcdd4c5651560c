"""Thousands of wrong requests to every operation: none is a fault of ours, and a refused one changes nothing.

Part of the requests are right ones with several things wrong at once, made from botocore's models; the rest is drawn at
random from the shapes alone. A failure names its seed and number and replays exactly.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.wire.mutations import Mutation, mutations
from tests.wire.samples import a_furnished_world, samples
from tests.wire.world import RELAY, World, model_of
from windfall.control.rebuild import rebuild
from windfall.control.state import Rules
from windfall.daemon.time_zones import zone_named

TEXTS = [
    "",
    "a",
    "a" * 300,
    "*",
    "NO_SUCH",
    "日本",
    "../..",
    "s3://b/k",
    "arn:aws:batch:::job/x",
    "1",
    "\u202e",
    "%00",
]
NUMBERS = [0, 1, -1, 2**31, 2**63, -(2**63), 1.5, 1e308]
DEPTH = 5


@pytest.mark.parametrize(
    ("mutated", "drawn"),
    [
        (2_000, 500),
        pytest.param(29_000, 7_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id="whole"),
    ],
)
def test_no_request_is_a_fault_of_ours_and_a_refused_one_changes_nothing(mutated, drawn, tmp_path):
    asyncio.run(_attack(tmp_path, mutated, drawn, random.Random(20_261_116)))


async def _attack(directory: Any, mutated: int, drawn: int, random_: random.Random) -> None:
    async with a_furnished_world(directory) as (world, ids):
        right = {name: sample.params for name, sample in samples(ids).items()}
        every = sorted(right)
        wrong = {name: _wrong_forms(name, right[name]) for name in every}
        for number in range(mutated):
            service, operation = name = every[number % len(every)]
            await _ask(world, service, operation, _several(random_, wrong[name], right[name]), number)
        for number in range(drawn):
            service, operation = every[number % len(every)]
            shape = model_of(service).operation_model(operation).input_shape
            await _ask(world, service, operation, _drawn(random_, shape), mutated + number)
        # Whatever was let in can be read back, and a daemon can start with it.
        assert rebuild(world.store.load(), Rules(zones=zone_named)).jobs.keys() <= world_jobs()


def world_jobs() -> Any:
    """The live jobs of the present world."""
    assert RELAY.loop is not None
    return RELAY.loop._state.jobs.keys()


async def _ask(world: World, service: str, operation: str, params: Any, number: int) -> None:
    # Time goes on meanwhile, and what was due then is written too: a request that changes something does so again.
    for _ in range(2):
        before = world.store.commits
        answer = await world.ask(service, operation, params)
        what = f"request {number}: {service}:{operation} {str(params)[:400]}: {answer}"
        assert answer.status < 500, what
        if answer.status < 300 or world.store.commits == before:
            return
    pytest.fail(f"refused and changed something, twice: {what}")


def _wrong_forms(name: tuple[str, str], right: dict[str, Any]) -> list[Mutation]:
    service, operation = name
    shape = model_of(service).operation_model(operation).input_shape
    return list(mutations(shape, right, frozenset()))


def _several(random_: random.Random, wrong: list[Mutation], right: dict[str, Any]) -> Any:
    """A right request with members from one to three wrong ones."""
    params: Any = dict(right)
    for mutation in random_.sample(wrong, min(len(wrong), random_.randint(1, 3))):
        if not isinstance(mutation.params, dict):
            return mutation.params
        changed = [key for key in mutation.params if mutation.params[key] != right.get(key)]
        params |= {key: mutation.params[key] for key in changed}
    return params


def _drawn(random_: random.Random, shape: Any, depth: int = 0) -> Any:
    """A value of about the right shape."""
    kind = shape.type_name
    if random_.random() < 0.03:
        return random_.choice([None, "text", 7, [], {}, True, [[]]])
    if kind == "structure":
        if depth > DEPTH:
            return {}
        return {
            name: _drawn(random_, member, depth + 1)
            for name, member in shape.members.items()
            if name in shape.required_members or random_.random() < 0.4
        }
    if kind == "list":
        return [_drawn(random_, shape.member, depth + 1) for _ in range(random_.choice([0, 1, 1, 2, 30]))]
    if kind == "map":
        return {random_.choice(TEXTS): _drawn(random_, shape.value, depth + 1) for _ in range(2)}
    if kind in ("integer", "long", "float", "double", "timestamp"):
        return random_.choice(NUMBERS)
    if kind == "boolean":
        return random_.choice([True, False])
    return random_.choice(shape.metadata.get("enum") or TEXTS)
