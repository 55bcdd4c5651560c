"""Reading through the gateway: long answers leave room for short ones."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from windfall.daemon.gateway import READERS, Gateway, LongReads


def test_long_answers_leave_readers_to_short_questions():
    store: Any = object()
    gateway = Gateway(store)
    long_reads = LongReads(gateway)
    begun, go_on = threading.Event(), threading.Event()
    at_once: list[int] = []
    reading = 0

    def page(_: Any) -> None:
        nonlocal reading
        reading += 1
        at_once.append(reading)
        begun.set()
        go_on.wait(30)
        reading -= 1

    async def ask() -> None:
        pages = [asyncio.create_task(long_reads.read(page)) for _ in range(3 * READERS)]
        await asyncio.to_thread(begun.wait, 30)
        short = await asyncio.wait_for(gateway.read(lambda store: store), 120)
        assert short is store
        go_on.set()
        await asyncio.gather(*pages)

    try:
        asyncio.run(ask())
    finally:
        go_on.set()
        gateway.close()
    assert at_once == [1] * (3 * READERS)
