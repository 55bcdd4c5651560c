"""The one CorePort that all services hold: it delegates to this daemon's loop or, while another leads, to a substitute.

Decides nothing but that. Services are made once and outlive every change of the leader. A question that needs the
leader's memory is refused here while another daemon leads, and the HTTP side forwards it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from windfall.aws_api.protocol.errors import ApiError
from windfall.control.events import Command
from windfall.control.ports import CorePort, Store
from windfall.control.queue_shares import QueueShares
from windfall.control.why import Why
from windfall.daemon.loop import ControlLoop, Question
from windfall.jobs.ids import JobId, QueueName
from windfall.store.errors import StoreReplaced, Superseded

T = TypeVar("T")

READERS = 4


class Substitute(Protocol):
    """Answers while this daemon does not lead."""

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Have the leader execute it."""

    def refuse(self) -> Exception:
        """The error for a question that only the leader's memory can answer."""


class StoreReader(Protocol):
    """The part of a gate that reads the store."""

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store, off the event loop."""


class LongReads:
    """Reads the store for answers of many pages, one page at a time for all such answers together.

    Otherwise a few long answers would occupy every reader, and short questions would wait behind their pages.
    """

    def __init__(self, gate: CorePort, turn: asyncio.Semaphore | None = None) -> None:
        self._gate = gate
        self._turn = turn or asyncio.Semaphore(1)

    def over(self, gate: CorePort) -> LongReads:
        """The same for another gate to the same store, sharing the turn with this one."""
        return LongReads(gate, self._turn)

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store when it is this answer's turn."""
        async with self._turn:
            return await self._gate.read(question)


class Gateway:
    """Implements control.ports.CorePort, and lets the state itself be asked, for as long as the daemon lives."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._loop: ControlLoop | None = None
        self._substitute: Substitute | None = None

    def lead(self, loop: ControlLoop) -> None:
        """Let this loop answer from now on."""
        self._loop = loop

    def follow(self, substitute: Substitute) -> None:
        """Let a substitute answer from now on."""
        self._loop, self._substitute = None, substitute

    @property
    def rounds(self) -> int:
        """How many rounds there were since this daemon began to lead."""
        return self._own().rounds

    @property
    def commit_s(self) -> float:
        """How long their commits took in total."""
        return self._own().commit_s

    @property
    def agents_away(self) -> list[str]:
        """Why agents do not answer, one text for each engine whose agents do not."""
        return self._own().agents_away

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Execute a command and return when it is durable; raise Rejected with nothing changed."""
        if self._loop is not None:
            try:
                return await self._loop.execute(command, tenant)
            except StoreReplaced as replaced:
                raise _unavailable(replaced) from None
            except Superseded:
                if self._substitute is None:
                    raise
        assert self._substitute is not None, "asked before anybody could answer"
        return await self._substitute.execute(command, tenant)

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, question, self._store)

    async def why(self, job_id: JobId) -> Why | None:
        """Why a live job is where it is."""
        return await self._asked(lambda loop: loop.why(job_id))

    async def queue_snapshot(self, queue: QueueName) -> list[tuple[JobId, int]]:
        """The first waiting jobs of a queue, in dispatch order."""
        return await self._asked(lambda loop: loop.queue_snapshot(queue))

    async def shares(self, queue: QueueName) -> QueueShares | None:
        """How much of a queue's capacity each of its shares uses."""
        return await self._asked(lambda loop: loop.shares(queue))

    async def inspect(self, question: Question) -> Any:
        """Ask the state itself; answered after the round, when what it saw is durable."""
        return await self._asked(lambda loop: loop.inspect(question))

    async def _asked(self, ask: Callable[[ControlLoop], Awaitable[T]]) -> T:
        try:
            return await ask(self._own())
        except StoreReplaced as replaced:
            raise _unavailable(replaced) from None
        except Superseded:
            return await ask(self._own())  # Another daemon leads by now, or this one does again.

    def _own(self) -> ControlLoop:
        if self._loop is not None:
            return self._loop
        assert self._substitute is not None, "asked before anybody could answer"
        raise self._substitute.refuse()

    def close(self) -> None:
        """Shut the threads down."""
        self._readers.shutdown(wait=True)


def _unavailable(replaced: StoreReplaced) -> ApiError:
    return ApiError(
        "ServiceUnavailable",
        f"Nothing was changed: {replaced}. Windfall stops; put the store back and start it again.",
        503,
    )
