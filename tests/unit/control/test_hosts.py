"""Which hosts can be listed, and that what is listed is kept and followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TestWorld, a_busy_world
from windfall.capacity.hosts import Host
from windfall.control.commands.hosts import AddHost, DrainHost, RemoveHost
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.store.records import declarations_of, encoded

GPU1 = Host(
    name="gpu1",
    destination="alice@gpu1",
    python="/usr/bin/python3",
    base="/home/user/.windfall",
    root="/home/user/.windfall/agents/d/gpu1",
    labels={"gpu": "a100"},
    added_at=5,
)


@pytest.fixture
def world() -> TestWorld:
    return a_busy_world()


def test_a_host_is_listed_drained_and_forgotten(world: TestWorld) -> None:
    assert world.happens(AddHost(GPU1)) == GPU1
    assert world.happens(DrainHost("gpu1")).draining
    # Added again, with other labels: it keeps its drain and the time at which it was added.
    again = world.happens(AddHost(replace(GPU1, labels={}, added_at=9)))
    assert (again.draining, again.added_at, again.labels) == (True, 5, {})
    assert not world.happens(DrainHost("gpu1", draining=False)).draining
    world.happens(RemoveHost("gpu1"))
    assert world.state.hosts == {}


def test_what_cannot_be_listed_changes_nothing(world: TestWorld) -> None:
    world.happens(AddHost(GPU1))
    with pytest.raises(Conflict, match="is alice@gpu1 already"):
        world.happens(AddHost(replace(GPU1, destination="bob@gpu1")))
    with pytest.raises(Invalid, match="is not a label"):
        world.happens(AddHost(replace(GPU1, name="gpu2", labels={"Gpu!": "a"})))
    for command in (DrainHost("gpu9"), RemoveHost("gpu9")):
        with pytest.raises(NotFound, match="windfall hosts list"):
            world.happens(command)
    assert world.state.hosts == {"gpu1": GPU1}


def test_the_store_keeps_it_whole() -> None:
    assert declarations_of(Host).decoded(encoded(GPU1)) == GPU1
