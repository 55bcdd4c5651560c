"""What only the simulated engine does: real processes die with the instance that they were on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.test_engine import ENDS, World
from windfall.control.events import AttemptStarted, InstanceLost, InterruptionNoticed


@pytest.fixture
def play() -> Iterator[Callable[[dict[str, str], Callable[[World], Awaitable[None]]], None]]:
    """Runs a story on a market with these tags."""
    root = Path(tempfile.mkdtemp(prefix="windfall-engine-"))

    def run(tags: dict[str, str], story: Callable[[World], Awaitable[None]]) -> None:
        async def whole() -> None:
            world = World("simulated", root)
            world.environment = replace(world.environment, tags=tags)
            world.begin()
            try:
                await story(world)
            finally:
                await world.close()

        asyncio.run(whole())

    yield run
    shutil.rmtree(root, ignore_errors=True)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def a_process(world: World, place: str, token: str = "a#1") -> int:
    """A process that never ends by itself and does not listen."""
    file = world.root / token
    world.start(token, place, f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.05; done")
    await world.first(AttemptStarted, token)
    await world.until_file(token, "\n")
    return int(file.read_text())


SUDDEN = {"windfall:interrupt-at": "3", "windfall:sudden": "1"}


def test_a_sudden_loss_kills_first_and_is_told_once(play):
    async def story(world: World) -> None:
        place = await world.place()
        pids = [await a_process(world, place, token) for token in ("a#1", "b#1")]
        lost = await world.first(InstanceLost)
        assert lost.instance == place
        assert not any(alive(pid) for pid in pids)
        assert not world.heard(ENDS)
        assert not world.heard(InterruptionNoticed)

    play(SUDDEN, story)


def test_what_ignores_its_notice_is_killed_at_the_deadline(play):
    async def story(world: World) -> None:
        place = await world.place()
        pid = await a_process(world, place)
        noticed = await world.first(InterruptionNoticed)
        assert noticed.instance == place
        assert not world.heard(InstanceLost)
        await world.first(InstanceLost)
        assert not alive(pid)
        assert not world.heard(ENDS)

    play({"windfall:interrupt-at": "1", "windfall:notice-s": "1"}, story)


def test_an_agent_killed_while_hosts_go_is_asked_again(play):
    async def story(world: World) -> None:
        place = await world.place()
        pid = await a_process(world, place)
        os.kill(world.agent_pid, signal.SIGKILL)
        await world.first(InstanceLost)
        assert not alive(pid)
        assert not world.heard(ENDS)

    play(SUDDEN, story)


def test_an_instance_whose_time_came_while_the_daemon_was_away_goes_when_it_is_back(play):
    async def story(world: World) -> None:
        place = await world.place()
        pid = await a_process(world, place)
        await world.end()
        launched = world.instances[place]
        launched.launched_at -= 10_000  # as if it had been away for long
        world.begin()
        lost = await world.first(InstanceLost)
        assert lost.instance == place
        assert not alive(pid)
        assert not world.heard(ENDS)

    play(SUDDEN, story)
