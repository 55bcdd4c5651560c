"""Programs that reach machines end for the daemon also when nobody reads them; with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.waiting import wait_until
from windfall.engines.programs import ended, tail
from windfall.engines.ray.bridge_client import BridgeSettings, RayBridge
from windfall.engines.ray.doors import Door

DEADLINE_S = 60.0
#: Far more than asyncio reads ahead, and a child that has the same pipes.
_TALKATIVE = "echo oh >&2; (cat /dev/zero) & cat /dev/zero"


def test_a_program_whose_output_nobody_reads_is_ended():
    async def play() -> tuple[int, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", _TALKATIVE, stdout=pipe, stderr=pipe, limit=1 << 12, start_new_session=True
        )
        assert process.stderr is not None
        said = asyncio.create_task(tail(process.stderr))
        return await ended(process, 0.1), await said

    assert asyncio.run(asyncio.wait_for(play(), DEADLINE_S)) == (-signal.SIGKILL, "oh\n")


def test_a_bridge_that_says_a_line_without_end_is_given_up():
    hello = '{\\"is\\":\\"hello\\",\\"ray\\":\\"2.60.0\\",\\"address\\":\\"a:1\\"}'

    async def play() -> str:
        settings = BridgeSettings(f"""sh -c "echo '{hello}'; exec cat /dev/zero" """)
        bridge = RayBridge(settings, lambda _line: None)
        task = asyncio.create_task(bridge.run())
        try:
            await bridge.is_troubled.wait()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return bridge.trouble or ""

    assert "a line that is too long" in asyncio.run(asyncio.wait_for(play(), DEADLINE_S))


def test_a_door_says_how_a_command_ended_that_left_something_behind(tmp_path: Path):
    left = tmp_path / "left"

    async def play() -> tuple[bytes, int | None, str] | None:
        door = Door()
        command = f"(sleep 1000 >/dev/null & echo $! > {left}); echo why >&2; exit 3"
        await door.open("bridge", 1, command)
        (opened,) = door.streams.values()
        try:
            return await door.poll("bridge", 1, 0)
        finally:
            os.kill(int(left.read_text()), signal.SIGKILL)
            await opened.saying

    assert asyncio.run(asyncio.wait_for(play(), DEADLINE_S)) == (b"", 3, "why\n")


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("closed_by", ["its bridge", "another bridge"])
def test_a_command_that_a_door_closes_leaves_no_pipe_open(closed_by: str):
    async def play() -> None:
        door = Door()
        before = _open_files()
        await door.open("bridge", 1, "exec cat /dev/zero")
        await door.poll("bridge", 1, 0)
        if closed_by == "its bridge":
            await door.close("bridge", 1)
        else:
            await door.open("other", 2, "exec true")
            await door.poll("other", 2, 0)
        await asyncio.to_thread(wait_until, lambda: _open_files() <= before, "all pipes are closed")
        assert door.watching is not None
        door.watching.cancel()

    asyncio.run(asyncio.wait_for(play(), DEADLINE_S))
