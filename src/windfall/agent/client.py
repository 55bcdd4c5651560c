"""The daemon's end of the stream to an agent.

Decides nothing about attempts: it carries messages. Batches are kept together, because one commit per
batch is what makes both sides fast.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence

from windfall.agent.errors import AgentRejected, AgentUnreachable
from windfall.agent.line_reader import LineReader
from windfall.agent.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    Hello,
    Inventory,
    Message,
    Rejected,
    ToDaemon,
    decode_for_daemon,
    encode,
    misfit,
)
from windfall.agent.reach import Reach

_CHUNK_BYTES = 1 << 20
#: No line of an agent is longer: an inventory of 10,000 attempts has 2 MB. One of another machine may say anything.
_LINE_BYTES_MAX = 32 << 20
#: What is kept at most for an agent that takes nothing.
_UNSENT_BYTES_MAX = 64 << 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
#: The end of the year 9999, and the last epoch that a store can have.
_LAST_MOMENT, _LAST_EPOCH = 253_402_300_799_999, (1 << 63) - 2
#: Longer than an agent needs that looks for a container engine which hangs.
_GREET_WITHIN_S = 60.0
_GONE = "the agent closed the connection; see agent.log beside its socket"


def clock_ms() -> int:
    """The daemon's clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def one_line(said: str) -> str:
    """What another machine says, as one line for people: it may be anything."""
    return _CONTROL.sub(" ", said)[:500]


class AgentClock:
    """How far an agent's clock is ahead of the daemon's."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def measure(self, asked_at: int, said_at: int, heard_at: int) -> None:
        """Take in what the agent's clock said at some moment between two looks at ours; 0, or nonsense, says nothing.

        What is known stays as long as it can be true: on one host, where both clocks are one, that is 0 for ever, and a
        slow answer does not blur what a quick one has shown.
        """
        if not 0 < said_at <= _LAST_MOMENT:
            return
        low, high = said_at - heard_at, said_at - asked_at
        if not low <= self.ahead_ms <= high:
            self.ahead_ms = (low + high) // 2


class AgentConnection:
    """A greeted connection; iterate it for batches of messages until the agent goes away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, epoch: int) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = LineReader(_LINE_BYTES_MAX)
        self._epoch = epoch
        self._early: list[ToDaemon] = []
        self.clock = AgentClock()
        self.inventory: Inventory

    def write(self, messages: Sequence[Message]) -> None:
        """Send messages without waiting: what the agent has not yet taken is kept in memory, up to a limit.

        Nothing is sent to an agent that is gone: the end of the iteration over the connection shows that. One that asks
        and never reads the answers is cut off: what still matters follows from state at its next connection.
        """
        # Asked each time, because the event loops differ: uvloop raises where asyncio's own lets the bytes go.
        if self._writer.is_closing():
            return
        self._writer.write(encode(messages))
        if self._writer.transport.get_write_buffer_size() > _UNSENT_BYTES_MAX:
            self._writer.transport.abort()

    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages, waiting only while the agent is far behind; raises AgentUnreachable if it is gone."""
        if not messages:
            return
        self.write(messages)
        try:
            await self._writer.drain()
        except OSError:
            raise AgentUnreachable(_GONE) from None

    async def greet(self) -> Inventory:
        """Say which daemon this is and hear what the machine has; raises AgentRejected for an old epoch."""
        asked_at = clock_ms()
        await self.send([Hello(self._epoch, PROTOCOL, OLDEST_PROTOCOL)])
        batch = await self._receive()
        if not batch:
            raise AgentUnreachable(_GONE)
        first = batch[0]
        if isinstance(first, Rejected):
            reason = one_line(first.reason)
            if first.incompatible:
                raise AgentUnreachable(reason)
            if not 0 <= first.epoch <= _LAST_EPOCH:
                raise AgentUnreachable("the agent refuses this daemon for an epoch that cannot be")
            raise AgentRejected(reason, first.epoch)
        if not isinstance(first, Inventory):
            raise AgentUnreachable(f"expected an Inventory from the agent, got {type(first).__name__}")
        if (trouble := misfit(first, f"the agent (pid {first.agent_pid})", "this daemon")) is not None:
            raise AgentUnreachable(trouble)
        self.clock.measure(asked_at, first.now, clock_ms())
        self.inventory = first
        self._early = batch[1:]
        return first

    async def __aiter__(self) -> AsyncIterator[list[ToDaemon]]:
        """Yield batches of messages as they arrive; ends when the connection does."""
        if self._early:
            batch, self._early = self._early, []
            yield batch
        while batch := await self._receive():
            yield batch

    async def _receive(self) -> list[ToDaemon]:
        while True:
            try:
                chunk = await self._reader.read(_CHUNK_BYTES)
            except OSError:
                return []
            if not chunk:
                return []
            lines = self._lines.feed(chunk)
            if lines:
                return list(decode_for_daemon(lines))

    def abort(self) -> None:
        """Let nothing more through, in either direction; who iterates it sees it end."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End the connection; the agent and its attempts go on."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


async def connect(reach: Reach, epoch: int, within_s: float = _GREET_WITHIN_S) -> AgentConnection:
    """Connect to an agent and greet it; `inventory` is set on what is returned."""
    reader, writer = await reach.dial()
    connection = AgentConnection(reader, writer, epoch)
    try:
        async with asyncio.timeout(within_s):
            await connection.greet()
    except TimeoutError:
        writer.close()
        raise AgentUnreachable(
            f"the agent took the connection and has not answered for {within_s:g} s; is its process stopped?"
        ) from None
    except BaseException:
        writer.close()
        raise
    return connection
