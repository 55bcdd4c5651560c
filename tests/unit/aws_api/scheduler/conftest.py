"""A fresh world for every test, and the client that speaks to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.aws_api.scheduler.world import World, the_client


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def client(world) -> Any:
    return the_client()
