"""Agents that use a real engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docker_engine import RunningEngine
from tests.unit.agent.container.house import ContainerHouse


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> RunningEngine:
    """The engine of a test: Docker, or what its mark `over_both` says."""
    found = request.getfixturevalue(f"{getattr(request, 'param', 'docker')}_engine")
    assert isinstance(found, RunningEngine)
    return found


@pytest.fixture
def make_house(tmp_path: Path, engine: RunningEngine) -> Iterator[Callable[..., ContainerHouse]]:
    """Starts agents that belong to one test."""
    built: list[ContainerHouse] = []

    def make(**settings: object) -> ContainerHouse:
        root = tmp_path / f"house{len(built)}"
        root.mkdir()
        defaults = {"container_socket": str(engine.socket), "sample_every_s": 0.0}
        built.append(ContainerHouse(root, **{**defaults, **settings}))
        built[-1].launch()
        return built[-1]

    yield make
    for one in built:
        one.close()


@pytest.fixture
def house(make_house: Callable[..., ContainerHouse]) -> ContainerHouse:
    """One agent that a test shares with nobody."""
    return make_house()
