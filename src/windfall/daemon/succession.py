"""One of several daemons on one store: watches the lease, leads while it holds it, and follows otherwise.

Decides when this daemon starts and stops leading. The process and its HTTP server survive every change. While another
one leads, commands are written to the store, where the leader, even a new one, executes each once; questions that only
the leader's memory can answer are refused, and the HTTP side forwards such a request. Must not know how the lease is
kept, nor what leading consists of.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from windfall.agent.errors import AgentRejected
from windfall.aws_api.protocol.errors import AnsweredElsewhereError, ApiError
from windfall.capacity.machines import Machine, own_machine
from windfall.control.events import Command
from windfall.daemon.gateway import Gateway
from windfall.daemon.leading import DaemonContext, Leading, load_state
from windfall.jobs.errors import Rejected
from windfall.store.coordination import Coordination, ForwardedCommand, Inbox, Lead, Presence
from windfall.store.errors import CommitFailed, DamagedRecord, StoreError, StoreReplaced, Superseded

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How often the lease is checked and renewed within its length.
LOOKS_PER_LEASE = 4
#: How long a stopping daemon waits for an unresponsive database, beyond the stop grace of its jobs.
END_S = 30.0


class Succession:
    """This daemon among the others."""

    def __init__(self, context: DaemonContext, coordination: Coordination, gate: Gateway) -> None:
        self._context = context
        self._leadership, self._inbox = coordination.leadership, coordination.inbox
        self._gate = gate
        self._following = Following(coordination.inbox)
        gate.follow(self._following)
        self._presence = Presence(uuid.uuid4().hex, "", os.getpid())
        self.leading: Leading | None = None
        self._machine: Machine | None = None
        self._lead = Lead(0, "", "", expired=True)
        self._term: asyncio.Task[None] | None = None
        #: Agents may have seen a higher epoch than the lease's.
        self._epoch_min = 0
        self._settled = asyncio.Event()
        self._lease_changed, self._inbox_changed = asyncio.Event(), asyncio.Event()
        self._ended = threading.Event()
        #: Holds the lock that shows others that this daemon lives.
        self._alive_fd = -1
        self._lease_thread = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._inbox_thread = ThreadPoolExecutor(1, thread_name_prefix="inbox")
        self._tasks: list[asyncio.Task[None]] = []

    # What the daemon asks --------------------------------------------------------------------------------

    def begin(self, url: str) -> list[asyncio.Task[None]]:
        """Join; returns the tasks that must not end by themselves."""
        self._presence = Presence(self._presence.name, url, self._presence.pid)
        directory = self._context.directory
        self._alive_fd = directory.add_address(self._presence.name, url)
        if directory.read_address() not in directory.other_addresses():
            # The leader's address is that of another directory; commands that begin here ask this daemon.
            directory.write_address(url)
        self._leadership.join(self._presence, self._context.settings.lease_s)
        loop = asyncio.get_running_loop()

        def on_notification(about: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(
                    (self._lease_changed if about == "leadership" else self._inbox_changed).set
                )

        listener = threading.Thread(
            target=self._inbox.listen,
            args=(on_notification, self._ended.is_set),
            name="notifications",
            daemon=True,
        )
        listener.start()
        self._tasks = [
            asyncio.create_task(self._watch(), name="lease watcher"),
            asyncio.create_task(self._read_inbox(), name="inbox reader"),
        ]
        return self._tasks

    async def settle(self) -> Machine | None:
        """Wait until this daemon leads and knows its host (returned), or follows another one (None)."""
        while True:
            settled = asyncio.create_task(self._settled.wait())
            await asyncio.wait([settled, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            settled.cancel()
            for task in self._tasks:
                if task.done():
                    task.result()
            if self.leading is None:
                return None
            try:
                return await self.leading.first_contact()
            except (Superseded, AgentRejected):
                self._settled.clear()  # It did not last; wait for the next leader.

    @property
    def machine(self) -> Machine | None:
        """This host, as its agent last described it to this daemon or to the leader (through the store)."""
        return self._machine if self.leading is None else self.leading.host or self._machine

    @property
    def leader(self) -> str | None:
        """The leader's address; None while there is no leader."""
        if self.leading is not None:
            return self._presence.address
        return None if self._lead.is_free else self._lead.address

    async def daemons(self) -> list[tuple[Presence, bool]]:
        """All live daemons of this store."""
        seen = await self._on_lease_thread(self._leadership.daemons)
        return [
            (presence, leads)
            for presence, leads in seen
            if not self._context.directory.is_gone(presence.name)
        ]

    async def end(self, *, kill: bool) -> None:
        """Stop: give up the lease, if this daemon leads, so that another one can lead at once."""
        self._ended.set()
        for task in self._tasks:
            task.cancel()
        leading, self.leading = self.leading, None
        if self._term is not None:
            self._term.cancel()
        if leading is not None:
            others = [presence for presence, _ in await self._others()]
            try:
                async with asyncio.timeout(self._context.settings.stop_grace_s + END_S):
                    await leading.end(kill=kill, keep_agents=bool(others))
            except (Superseded, TimeoutError):
                await leading.let_go()  # Another daemon leads, or the database does not answer.
        await self._on_lease_thread(self._leadership.release)
        await self._on_lease_thread(self._leadership.leave)
        self._context.directory.remove_address(self._presence.name)
        os.close(self._alive_fd)
        self._following.close()
        for pool in (self._lease_thread, self._inbox_thread):
            pool.shutdown(wait=True)

    async def _others(self) -> list[tuple[Presence, bool]]:
        try:
            return [it for it in await self.daemons() if it[0].name != self._presence.name]
        except StoreError:
            return []

    # The lease -------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        every_s, trouble = self._context.settings.lease_s / LOOKS_PER_LEASE, ""
        while True:
            try:
                await self._look()
                trouble = ""
            except Superseded:
                if self.leading is not None:
                    self.leading.loop.supersede()  # It ends by itself and writes nothing more.
            except StoreReplaced:
                raise  # Nothing that this daemon knows applies to the other store.
            except StoreError as error:
                if trouble != str(error):
                    trouble = str(error)
                    log.warning("the lease cannot be read: %s; trying again", trouble.strip())
            if self._term is not None and self._term.done():
                term, self._term = self._term, None
                term.result()  # A fault, unless it was another daemon that ended it.
            self._lease_changed.clear()
            try:
                async with asyncio.timeout(every_s):
                    await self._lease_changed.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        """Renew the lease if it is ours; take it if it is free."""
        if self._term is not None:
            await self._on_lease_thread(self._leadership.confirm)
        before, self._lead = self._lead, await self._on_lease_thread(self._leadership.look)
        if self._term is not None:
            return
        # The lease of a dead leader of this directory can be taken at once; any other's must expire.
        gone = self._lead.holder if self._context.directory.is_gone(self._lead.holder) else ""
        if self._lead.is_free or gone:
            epoch = await self._on_lease_thread(lambda: self._leadership.take(self._epoch_min, gone))
            if epoch is not None:
                self._term = asyncio.create_task(self._lead_for_a_term(epoch), name="term of leading")
            return
        if self._lead.epoch != before.epoch:
            log.warning("the daemon at %s leads, this one follows", self._lead.address)
        machines = await asyncio.to_thread(self._context.store.machines)
        self._machine = own_machine(machines)
        self._settled.set()

    async def _lead_for_a_term(self, epoch: int) -> None:
        """Lead, from what the store holds, until another daemon does."""
        try:
            running = asyncio.get_running_loop()
            await running.run_in_executor(None, self._context.catch_up)
            state = await running.run_in_executor(None, load_state, self._context)
            leading = Leading(self._context, state, epoch, self._leadership)
            await self._run_term(leading)
        except StoreReplaced:
            raise
        except StoreError as error:
            log.warning("this daemon cannot lead: %s", error)
        await self._on_lease_thread(self._leadership.release)
        self._lease_changed.set()

    async def _run_term(self, leading: Leading) -> None:
        watched = leading.start()
        self.leading = leading
        self._gate.lead(leading.loop)
        try:
            self._context.directory.write_address(self._presence.address)
        except OSError as trouble:
            # Commands then ask any daemon, which forwards to the leader.
            log.warning("the leader's address cannot be written: %s", trouble)
        log.warning(
            "this daemon, at %s, leads now; unfinished jobs: %d", self._presence.address, leading.live_jobs
        )
        self._settled.set()
        self._inbox_changed.set()
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        self.leading = None
        self._gate.follow(self._following)
        ended = [task.exception() for task in watched if task.done() and not task.cancelled()]
        await leading.step_down()
        for error in ended:
            if isinstance(error, AgentRejected):
                self._epoch_min = error.epoch + 1
            elif error is not None and not isinstance(error, Superseded):
                raise error
        log.warning("this daemon no longer leads; its jobs go on under the next leader")

    # Forwarded commands ----------------------------------------------------------------------------------

    async def _read_inbox(self) -> None:
        while True:
            await self._inbox_changed.wait()
            self._inbox_changed.clear()
            leading = self.leading
            if leading is not None:
                try:
                    commands = await asyncio.get_running_loop().run_in_executor(
                        self._inbox_thread, self._inbox.commands
                    )
                except StoreError:
                    continue  # The next look is soon.
                leading.loop.take_forwarded(commands)
            await self._following.fetch()

    async def _on_lease_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._lease_thread, work)


#: Under the time that AWS clients wait for an answer.
PATIENCE_S = 55.0
_AGAIN_S = 0.2


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
