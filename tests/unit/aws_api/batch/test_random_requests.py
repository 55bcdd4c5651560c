"""Requests drawn at random from the model, against the real reactor and store: each is answered or refused.

A fault of ours would show as another exception than ApiError. The seed is in the test's id, so that a failure
repeats.
"""

from __future__ import annotations

import random
from typing import Any

import botocore.session
import pytest

from tests.unit.aws_api.batch.fakes import ARN, JOB_ID, NOW, World
from tests.unit.aws_api.core_gate import CoreGate
from windfall.aws_api.batch.service import OPERATIONS
from windfall.aws_api.protocol.errors import ApiError
from windfall.store.opening import open_store

MODEL = botocore.session.get_session().get_service_model("batch")
TEXTS = [
    "",
    "a",
    "env",
    "queue",
    "echo",
    "echo:1",
    JOB_ID,
    f"{JOB_ID}:1",
    f"{JOB_ID}:²",
    "x:99999",
    "1",
    "0.25",
    "-1",
    "٣",
]
TEXTS += [
    f"{ARN}:{kind}/env" for kind in ("compute-environment", "job-queue", "job-definition", "job", "other")
]
TEXTS += [
    "arn:",
    "arn:aws:batch:::job/",
    "*",
    "a*",
    "Ref::x",
    "Ref::",
    "é\n",
    "a" * 300,
    "'; drop table jobs; --",
    "\u2028",
]
NUMBERS = [-(2**31), -1, 0, 1, 2, 59, 60, 100, 10_000, 2**31 - 1]
#: Members that are drawn nearly always, so that requests get past the first check.
LIKELY = {"jobName", "jobQueue", "jobDefinition", "containerProperties", "computeResources", "image"}
LIKELY |= {"resourceRequirements", "computeEnvironmentOrder"}


def draw(shape: Any, choice: random.Random, depth: int = 0) -> Any:
    """A value that fits the type of a shape, and often nothing else."""
    kind = shape.type_name
    if kind == "structure":
        return {
            name: draw(member, choice, depth + 1)
            for name, member in shape.members.items()
            if name in shape.required_members or choice.random() < (0.9 if name in LIKELY else 0.25)
        }
    if kind == "list":
        return [draw(shape.member, choice, depth + 1) for _ in range(choice.choice([0, 1, 1, 2, 4]))]
    if kind == "map":
        return {
            choice.choice(TEXTS): draw(shape.value, choice, depth + 1) for _ in range(choice.choice([1, 2]))
        }
    if kind == "boolean":
        return choice.random() < 0.5
    if kind in ("float", "double"):
        return choice.choice(NUMBERS) / 4
    if kind in ("integer", "long"):
        return choice.choice(NUMBERS)
    return choice.choice(shape.enum or TEXTS)


@pytest.fixture
def world(tmp_path):
    store = open_store(str(tmp_path / "windfall.db"))
    world = World(CoreGate(store, NOW))
    client = world.client()
    client.create_compute_environment(
        computeEnvironmentName="env", type="MANAGED", computeResources={"type": "EC2", "maxvCpus": 4}
    )
    client.create_job_queue(
        jobQueueName="queue", priority=1, computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "env"}]
    )
    container = {"image": "x", "vcpus": 1, "memory": 64}
    client.register_job_definition(jobDefinitionName="echo", type="container", containerProperties=container)
    client.submit_job(jobName="a", jobQueue="queue", jobDefinition="echo", arrayProperties={"size": 5})
    yield world
    store.close()


@pytest.mark.parametrize("seed", range(5))
def test_every_request_is_answered_or_refused(world, seed):
    choice = random.Random(seed)
    outcomes: list[int] = []
    modelled = [name for name in OPERATIONS if "{" not in MODEL.operation_model(name).http["requestUri"]]
    for _ in range(200):
        operation = choice.choice(modelled)
        params = draw(MODEL.operation_model(operation).input_shape, choice)
        try:
            world.call(operation, **params)
            outcomes.append(200)
        except ApiError as error:
            outcomes.append(error.status)
    assert set(outcomes) == {200, 400}
