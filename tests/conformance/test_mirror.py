"""Logs of another machine arrive whole, whatever is killed or cut on the way."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.conformance.test_engine import DEADLINE_S, World
from tests.waiting import wait_until
from windfall.control.events import AttemptExited, AttemptStarted
from windfall.jobs.ids import AttemptToken

Story = Callable[[World], Awaitable[None]]
#: More than can be under way at once.
LINES = 400_000
TEXT = "".join(f"{number}\n" for number in range(1, LINES + 1)).encode()


class Play(Protocol):
    """Plays a story."""

    def __call__(self, story: Story, log_limit_bytes: int = 0) -> None: ...


@pytest.fixture(params=["fleet", "fleet, disturbed"])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    """Runs a story on two machines that do not share their logs with the daemon."""
    root = Path(tempfile.mkdtemp(prefix="windfall-mirror-"))

    def run(story: Story, log_limit_bytes: int = 0) -> None:
        async def whole() -> None:
            world = World(request.param, root)
            world.log_limit_bytes = log_limit_bytes
            world.begin()
            try:
                await asyncio.wait_for(story(world), 2 * DEADLINE_S)
            finally:
                await world.close()

        asyncio.run(whole())

    yield run
    shutil.rmtree(root, ignore_errors=True)


def arrived(world: World, task: str) -> bytes:
    """What the daemon has of a log."""
    log = world.engine.files.log(task)
    return log.read(0, log.size)


def test_a_log_has_arrived_when_the_end_is_told_and_the_machine_keeps_no_copy_once_it_is_forgotten(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start("a#1", place, f"seq 1 {LINES}")
        ended = await world.first(AttemptExited, "a#1")
        assert ended.exit_code == 0
        assert arrived(world, "a-1") == TEXT
        assert (world.root / "own-logs" / "a-1.log").read_bytes() == TEXT
        await world.over("a#1", place)
        await asyncio.to_thread(
            wait_until, lambda: not list((world.root / "own-logs").glob("a-1*")), "the copy removed"
        )
        assert world.engine.files.log("a-1").timed_size == len(TEXT)

    play(story)


def test_lines_arrive_while_the_job_runs(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start(
            "a#1", place, f"echo hello; while [ ! -e {world.root}/go ]; do sleep 0.05; done; echo bye"
        )
        await asyncio.to_thread(wait_until, lambda: arrived(world, "a-1") == b"hello\n", "the first line")
        (world.root / "go").touch()
        await world.over("a#1", place)
        assert arrived(world, "a-1") == b"hello\nbye\n"

    play(story)


def test_a_log_without_end_fills_neither_disk_and_its_ends_arrive_through_a_kill(play):
    limit, lines = 1 << 20, 64 << 10

    async def story(world: World) -> None:
        place = await world.place()
        part = f"yes {'x' * 63} | head -n {lines}"
        world.start("a#1", place, f"echo begun; {part}; touch {world.root}/here; {part}; {part}; echo done")
        await asyncio.to_thread(wait_until, (world.root / "here").exists, "a part of it")
        os.kill(world.agent_pid, signal.SIGKILL)
        ended = await world.over("a#1", place)
        assert ended.token == AttemptToken("a#1")
        text = arrived(world, "a-1")
        assert len(text) == 3 * lines * 64 + len("begun\ndone\n")
        assert text.startswith(b"begun\nxxx")
        assert text.endswith(b"xxx\ndone\n")
        assert b"of output are not kept here" in text
        assert b"\0" not in text
        for directory in ("logs", "own-logs"):
            for copy in (world.root / directory).glob("a-1.log"):
                assert copy.stat().st_blocks * 512 <= limit + (1 << 18)

    play(story, limit)


@pytest.mark.parametrize("seed", range(3))
def test_kills_of_daemon_and_agent_at_any_moment_cost_no_byte(play, seed):
    async def story(world: World) -> None:
        moments = random.Random(seed)
        place = await world.place()
        parts = "; ".join(
            f"seq {begin + 1} {begin + 40_000}; sleep 0.05" for begin in range(0, LINES, 40_000)
        )
        world.start("a#1", place, parts)
        await world.first(AttemptStarted, "a#1")
        for number in range(4):
            wanted = int(len(TEXT) * moments.random() * (number + 1) / 4)
            await asyncio.to_thread(
                wait_until, lambda wanted=wanted: len(arrived(world, "a-1")) >= wanted, "some of the log"
            )
            world.said.clear()
            if moments.random() < 0.5:
                os.kill(world.agent_pid, signal.SIGKILL)
            else:
                await world.end()
                world.begin()
            await world.reconnected()
        ended = await world.over("a#1", place)
        assert ended.token == AttemptToken("a#1")
        assert arrived(world, "a-1") == TEXT

    play(story)
