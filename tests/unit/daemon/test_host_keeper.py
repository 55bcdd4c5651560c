"""The engine of hosts follows the list of hosts, whatever changes in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.fleets import PlayedReach
from windfall.agent.attempt_files import AttemptDirectory
from windfall.capacity.hosts import Host
from windfall.daemon.host_keeper import HostKeeper
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.standing import Provider


class Place:
    """A keeper over the real engine, and a list that a test changes."""

    def __init__(self, root: Path) -> None:
        self.listed: dict[str, Host] = {}
        self.reached: list[Host] = []
        self.engine = FleetEngine(lambda _: None, AttemptDirectory(root), 1)
        self.keeper = HostKeeper(self.engine, lambda: self.listed, self._reach)

    def _reach(self, host: Host) -> Any:
        self.reached.append(host)
        return PlayedReach(None)  # type: ignore[arg-type]  # nobody speaks over it

    def has(self, *hosts: Host) -> None:
        self.listed = {host.name: host for host in hosts}
        self.keeper.follow()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


GPU1 = Host(
    name="gpu1",
    destination="gpu1",
    python="python3",
    base="/base",
    root="/base/agents/x/gpu1",
    labels={"gpu": "a100"},
)


def test_a_host_that_is_listed_is_added_once(place: Place):
    place.has(GPU1)
    place.keeper.follow()
    assert place.reached == [GPU1]
    member = place.keeper.member("gpu1")
    assert member is not None
    assert member.labels == {"gpu": "a100"}
    assert place.keeper.member("gpu2") is None
    assert place.keeper.trouble_of("gpu2") is None


def test_new_labels_keep_the_line_and_a_new_place_makes_another(place: Place):
    place.has(GPU1)
    place.has(replace(GPU1, labels={"gpu": "h100"}))
    assert len(place.reached) == 1
    assert place.engine.member("gpu1").labels == {"gpu": "h100"}
    place.has(replace(GPU1, destination="alice@gpu1"))
    assert [host.destination for host in place.reached] == ["gpu1", "alice@gpu1"]


def test_a_host_is_drained_and_resumed_also_by_the_next_daemon(place: Place):
    place.has(replace(GPU1, draining=True))
    assert place.engine.member("gpu1").provider is Provider.DRAINING
    place.has(GPU1)
    assert place.engine.member("gpu1").provider is Provider.LISTED
    place.has(replace(GPU1, draining=True))
    assert place.engine.member("gpu1").provider is Provider.DRAINING


def test_a_host_that_is_no_longer_listed_is_let_go(place: Place):
    async def story() -> None:
        place.has(GPU1)
        place.has()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(story())
    with pytest.raises(KeyError):
        place.engine.member("gpu1")
