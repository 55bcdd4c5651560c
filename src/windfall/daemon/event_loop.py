"""The event loop of the daemon: one that can always be closed, and waits that end when the daemon is stopped.

Decides nothing about what the daemon does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

Settled = TypeVar("Settled")


def run_to_its_end(work: Coroutine[Any, Any, int]) -> int:
    """Run the daemon on an event loop that can be closed even when no file can be opened any more."""
    # Uvloop opens two sockets whenever it starts to run, also when it is closed.
    spare = socket.socketpair()
    with asyncio.Runner(loop_factory=_event_loop) as runner:
        try:
            return runner.run(work)
        finally:
            for end in spare:
                end.close()


def _event_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


async def unless_stopped(work: asyncio.Future[Settled], stopping: asyncio.Task[Any]) -> Settled | None:
    """The result of the work; None, with the work cancelled, if the daemon is stopped first."""
    await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        return work.result()
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    return None
