"""A fresh world for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.aws_api.batch.fakes import NOW, World
from tests.unit.aws_api.core_gate import CoreGate
from windfall.store.opening import open_store


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def core_world(tmp_path: Path) -> Iterator[World]:
    """The service over the real reactor and a real store."""
    store = open_store(str(tmp_path / "windfall.db"))
    yield World(CoreGate(store, NOW))
    store.close()


@pytest.fixture
def core_client(core_world: World) -> Any:
    """A client of that, with an environment and a queue."""
    client = core_world.client()
    client.create_compute_environment(
        computeEnvironmentName="env",
        type="MANAGED",
        computeResources={"type": "EC2", "maxvCpus": 8, "subnets": []},
    )
    client.create_job_queue(
        jobQueueName="queue", priority=1, computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "env"}]
    )
    return client
