"""Programs that a daemon starts to reach machines (ssh, a bridge): what one says last, and how its end is waited for.

asyncio reports a process's end only once its pipes are read to theirs, so a program whose output nobody reads any more
is never seen to end. Must not know what the programs are for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

_MOST_SAID_BYTES = 16 << 10


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a program that leads a process group, with what it has started in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def drained(stdout: asyncio.StreamReader) -> None:
    """Drop what nobody reads."""
    with contextlib.suppress(OSError):
        while await stdout.read(1 << 16):
            pass


async def tail(stderr: asyncio.StreamReader) -> str:
    """The last that a program says."""
    said = b""
    with contextlib.suppress(OSError):
        while chunk := await stderr.read(1 << 12):
            said = (said + chunk)[-_MOST_SAID_BYTES:]
    return said.decode(errors="replace")


async def ended(process: asyncio.subprocess.Process, within_s: float) -> int:
    """The status of a program that is to end by itself; one that has not ended in time is killed."""
    assert process.stdout is not None
    draining = asyncio.create_task(drained(process.stdout))
    try:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), within_s)
        kill(process)
        return await process.wait()
    finally:
        draining.cancel()
