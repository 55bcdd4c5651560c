"""How a daemon executes commands while another one leads: it writes them to the store and waits for the reply.

The leader, even a new one, executes each once. Questions that only the leader's memory can answer are refused, and the
HTTP side forwards such a request to the leader. Must not know who leads.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from windfall.aws_api.protocol.errors import AnsweredElsewhereError, ApiError
from windfall.control.events import Command
from windfall.jobs.errors import Rejected
from windfall.store.coordination import ForwardedCommand, Inbox
from windfall.store.errors import CommitFailed, DamagedRecord

#: Under the time that AWS clients wait for an answer.
PATIENCE_S = 55.0
_AGAIN_S = 0.2

T = TypeVar("T")


class Following:
    """Forwards this daemon's commands to the leader."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="forward")

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Have the leader execute a command; raises Rejected as the leader would."""
        forwarded = ForwardedCommand(str(uuid.uuid4()), command, tenant)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[forwarded.id] = future
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._send(forwarded)
                reply = await future
        except TimeoutError:
            raise _unanswered() from None
        finally:
            del self._waiting[forwarded.id]
        if isinstance(reply, Rejected):
            raise reply
        return reply

    async def _send(self, forwarded: ForwardedCommand) -> None:
        """Send it until it is written; its id keeps it from being there twice."""
        while True:
            try:
                return await self._off(lambda: self._inbox.send(forwarded))
            except CommitFailed:
                await asyncio.sleep(_AGAIN_S)

    def refuse(self) -> Exception:
        """The error for a question that only the leader's memory can answer."""
        return AnsweredElsewhereError()

    async def fetch(self) -> None:
        """Hand the replies that have arrived to their callers."""
        if not self._waiting:
            return
        ids = list(self._waiting)
        try:
            replies = await self._off(lambda: self._inbox.replies(ids))
        except (CommitFailed, DamagedRecord):
            return  # The next fetch is soon.
        for command_id, reply in replies.items():
            future = self._waiting.get(command_id)
            if future is not None and not future.done():
                future.set_result(reply)

    async def _off(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    def close(self) -> None:
        """Shut the thread down."""
        self._writer.shutdown(wait=False)


def _unanswered() -> ApiError:
    return ApiError(
        "ServiceUnavailable",
        f"No Windfall daemon has answered for {PATIENCE_S:g} s. The request is stored and is executed when one leads;"
        " check whether it was before you send it again.",
        503,
    )
