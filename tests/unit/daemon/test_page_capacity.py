"""What the page asks about capacity: the disk, the agents that are away, and all machines with their newest sample."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job
from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.page_capacity import PageCapacity
from windfall.jobs.tenants import View

CALL = Call("windfall", "Machines", {}, Caller("KEY", Role.READ, "default"), "r", "1", 0)


class Place:
    """A world with a machine, and the page's questions about it."""

    def __init__(self, root: Path) -> None:
        self.world = a_busy_world().submits(a_job("a")).starts("a")
        self.view = View("default", sees_all=True)
        away = SimpleNamespace(agents_away=["the agent of gpu1 does not answer"])
        gate: Any = self
        gateway: Any = away
        self.page = PageCapacity(gate, gateway, AttemptDirectory(root), root, lambda: 77)

    async def inspect(self, question: Any) -> Any:
        return question(self.world.state, {}, self.world.now)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_disk_is_that_of_the_data_directory(place: Place, tmp_path: Path):
    trouble = place.page.host_trouble()
    assert trouble.disk_total == shutil.disk_usage(tmp_path).total
    assert trouble.agents_away == ("the agent of gpu1 does not answer",)


def test_an_agent_that_is_away_is_an_alarm(place: Place):
    assert "gpu1" in str(asyncio.run(place.page.alarms(CALL)))


def test_all_machines_are_listed_without_a_sample_too(place: Place):
    answer = asyncio.run(place.page.machines(CALL))
    assert answer["at"] == 77
    assert [machine["id"] for machine in answer["machines"]] == [str(it) for it in place.world.state.machines]
