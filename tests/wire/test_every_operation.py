"""Each operation of each service: done when asked rightly, refused by the right code and with nothing changed when not.

The wrong requests are made from botocore's own models (mutations.py), so every member of every operation has its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.wire.mutations import mutations
from tests.wire.samples import a_furnished_world, samples
from tests.wire.world import ADMIN, World, all_services, model_of
from windfall.aws_api.protocol.service import Caller, Role

#: What a service answers to a request that its model does not allow.
WRONG_FORM = {
    "batch": {"ClientException", "SerializationException"},
    "scheduler": {"ValidationException", "SerializationException"},
    "sagemaker": {"ValidationException", "SerializationException"},
    "logs": {"InvalidParameterException", "SerializationException"},
    "cloudwatch": {"ValidationException", "SerializationException", "InvalidParameterValue"},
}
#: Enumerations and patterns that are wider here than in the model, on purpose.
LENIENT = {
    "batch": frozenset({"EvaluateOnExit.action"}),
    "sagemaker": frozenset({"ResourceConfig.InstanceType"}),
}
#: For the form alone: ids are not looked up.
NO_IDS = dict.fromkeys(("job", "service_job", "share", "spare_share"), "x")
EVERY = sorted(samples(NO_IDS))
NAMES = ["-".join(pair) for pair in EVERY]
STRANGE = [
    "",
    " ",
    "日本語 ünïcödé 🎲",
    "a" * 70_000,
    "../../etc/passwd",
    "'; DROP TABLE jobs; --",
    "<b>&amp;",
]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_the_samples_speak_of_every_operation_that_is_served(tmp_path):
    services = all_services(tmp_path)
    assert {(name, op) for name, service in services.items() for op in service.operations} == set(EVERY)


def test_batch_and_scheduler_are_served_whole():
    for service in ("batch", "scheduler"):
        assert {op for name, op in EVERY if name == service} == set(model_of(service).operation_names)


@pytest.mark.parametrize(("service", "operation"), EVERY, ids=NAMES)
def test_a_wrong_form_is_refused_and_changes_nothing(service, operation, tmp_path):
    async def test() -> None:
        async with a_furnished_world(tmp_path) as (world, ids):
            right = samples(ids)[service, operation].params
            shape = model_of(service).operation_model(operation).input_shape
            before, faults, tried = world.store.commits, [], 0
            for mutation in mutations(shape, right, LENIENT.get(service, frozenset())):
                answer = await world.ask(service, operation, mutation.params)
                tried += 1
                if answer.status != 400 or answer.code not in WRONG_FORM[service]:
                    faults.append(f"{mutation.label}: {answer.status} {answer.code} {str(answer.body)[:100]}")
            assert not faults, f"{len(faults)} of {tried}:\n" + "\n".join(faults[:20])
            assert world.store.commits == before, "a request that was refused has changed something"
            assert tried or all(member.serialization.get("location") for member in shape.members.values())

    run(test())


@pytest.mark.parametrize(("service", "operation"), EVERY, ids=NAMES)
def test_a_right_request_is_done_with_members_that_nobody_knows_and_by_the_right_role_alone(
    service, operation, tmp_path
):
    async def test() -> None:
        async with a_furnished_world(tmp_path) as (world, ids):
            sample = samples(ids)[service, operation]
            await _refused_to_lower_roles(world, service, operation, sample.params)
            await _survives_strange_texts(world, service, operation, sample.params)
        async with a_furnished_world(tmp_path) as (world, ids):
            sample = samples(ids)[service, operation]
            unknown = {**sample.params, "windfallNobodyKnowsThis": {"a": [1, "ü"]}}
            answer = await world.ask(service, operation, unknown)
            assert answer.code == sample.code, answer
            assert answer.status == 200 if not sample.code else 400 <= answer.status < 500

    run(test())


async def _refused_to_lower_roles(world: World, service: str, operation: str, params: Any) -> None:
    needed = world.services[service].operations[operation]
    for role in (role for role in Role if role < needed):
        before = world.store.commits
        answer = await world.ask(service, operation, params, Caller(ADMIN.access_key_id, role, "default"))
        assert (answer.status, answer.code) == (403, "AccessDeniedException"), answer
        assert world.store.commits == before


async def _survives_strange_texts(world: World, service: str, operation: str, params: Any) -> None:
    """Whatever a text says, the answer is a success or a refusal, and a refusal changes nothing."""
    for name, value in params.items():
        for text in STRANGE if isinstance(value, str) else ():
            before = world.store.commits
            answer = await world.ask(service, operation, {**params, name: text})
            assert answer.status < 500, f"{name} = {text[:40]!r}: {answer}"
            assert answer.status < 300 or world.store.commits == before, f"{name} = {text[:40]!r}: {answer}"
