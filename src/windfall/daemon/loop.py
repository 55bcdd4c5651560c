"""The one loop that changes state: drain what is waiting, react, commit once, then answer and act.

Durable, then visible: no caller is answered and no engine is told anything before the round's changes are on disk. A
commit that fails (a full disk, a database that went away) is retried until it works, and everything waits for it. Any
other failure ends the daemon, and a restart begins from the store. Knows nothing of HTTP or of processes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from windfall.backoff import Backoff, FailureLog, Pauses
from windfall.control.changes import Changes
from windfall.control.events import (
    AttemptExited,
    AttemptProgressed,
    AttemptStarted,
    Command,
    Event,
    IsolationChanged,
    Report,
)
from windfall.control.instructions import Instruction
from windfall.control.ports import Engine, Store
from windfall.control.queue_shares import QueueShares, queue_shares
from windfall.control.reactor import TICK_MS, react
from windfall.control.round import Round
from windfall.control.service_dispatch import front_of_service_queue
from windfall.control.snapshots import Offers, make_snapshot
from windfall.control.state import State
from windfall.control.timekeeping import next_due
from windfall.control.why import Why, why
from windfall.daemon.routing import Routing
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId, QueueName, split_child
from windfall.jobs.states import RUNNABLE, RUNNING, STARTING
from windfall.scheduling.dispatch_order import dispatch_order
from windfall.scheduling.quota_gate import QuotaGate
from windfall.store.coordination import ForwardedCommand, Lease
from windfall.store.errors import CommitFailed, StoreError, StoreReplaced, Superseded
from windfall.store.forwarded_commands import encoded_reply

T = TypeVar("T")

log = logging.getLogger(__name__)

TICK_S = TICK_MS / 1000
#: The most events in one round, so that a flood cannot make a commit endless.
ROUND_MAX = 4_000
QUEUE_SNAPSHOT_MAX = 100

#: A report that nothing waits for may wait this long for another one, so that one commit serves both.
LAZY_S = 0.01
#: After a round with many reports the next will have many too: it is worth waiting this long for them.
GATHER_S = 0.01
BUSY_REPORTS = 8

#: States in which a job waits for an engine, or runs on one.
_ENGINES_TURN = (RUNNABLE, STARTING, RUNNING)
_LAZY = AttemptStarted | AttemptProgressed | IsolationChanged

#: How long to wait before a failed commit is tried again, in seconds, and how often the same failure is logged.
COMMIT_AGAIN, LOG_AGAIN_S = Pauses(0.1, 5.0), 60.0

Question = Callable[[State, Offers, int], Any]
#: What was asked, where the answer goes (a caller of this process, or a follower), and the tenant it is for.
Asked = tuple[Event | Question, asyncio.Future[Any] | ForwardedCommand | None, str | None]
#: How many forwarded commands are remembered, so that one that is read again is not executed twice.
FORWARDED_REMEMBERED = 20_000


class ControlLoop:
    """Owns the state. Implements control.ports.CorePort for the wire, and is the engines' sink."""

    def __init__(
        self,
        state: State,
        store: Store,
        engines: Mapping[str, Engine],
        clock_ms: Callable[[], int],
        on_purged: Callable[[Sequence[str]], None],
        tenants: Callable[[], tuple[str, ...]],
        lease: Lease | None = None,
    ) -> None:
        """`lease` says whether this daemon still leads; None where no other can."""
        self._state = state
        self._store = store
        self._routing = Routing(engines)
        #: What carries out the instructions that are not for an engine, by their type.
        self.post_commit_tasks = self._routing.post_commit_tasks
        #: Why an engine, by its name, does not respond; None while it does.
        self.away: Callable[[str], str | None] = lambda _: None
        #: Called when a round has committed events for the outside.
        self.on_events_committed: Callable[[], None] | None = None
        self._clock_ms = clock_ms
        self._on_purged = on_purged
        self._tenants = tenants
        self._lease = lease
        self._superseded = False
        #: Why the loop has ended for good; None while it runs.
        self._over: StoreError | None = None
        self._forwarded_ids: dict[str, None] = {}
        self._inbound: list[Asked] = []
        self._wake = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="read")
        self._lazy: asyncio.TimerHandle | None = None
        self._busy = False
        #: How many rounds there were, and how long their commits took in total.
        self.rounds, self.commit_s = 0, 0.0
        #: False when the daemon is stopping: nothing new is placed, reports are still written.
        self.placing = True

    # The gate -------------------------------------------------------------------------------------------

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Execute a command and return when it is durable; raise Rejected, or Superseded, with nothing changed.

        For a tenant, resources of other tenants do not exist; None sees all.
        """
        self._routing.check(self._state, command)
        return await self._ask(command, tenant)

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, question, self._store)

    async def why(self, job_id: JobId) -> Why | None:
        """Why a live job is where it is."""

        def look(state: State, offers: Offers, now: int) -> Why | None:
            answer = why(state, job_id, offers, now)
            if answer is None or answer.state not in _ENGINES_TURN:
                return answer
            job = state.jobs.get(answer.job_id) or state.jobs[split_child(answer.job_id)[0]]
            names = self._routing.serving(state, job.submission.queue)
            away = [("agent_away", text) for name in names if (text := self.away(name)) is not None]
            return replace(answer, reasons=[*away, *answer.reasons])

        answer: Why | None = await self._ask(look)
        return answer

    async def queue_snapshot(self, queue: QueueName) -> list[tuple[JobId, int]]:
        """The first waiting jobs of a queue, in dispatch order."""

        def look(state: State, offers: Offers, now: int) -> list[tuple[JobId, int]]:
            if (declared := state.queues.get(queue)) is not None and declared.service_environment is not None:
                return front_of_service_queue(state, queue, now)[:QUEUE_SNAPSHOT_MAX]
            snapshot = make_snapshot(state, offers, now)
            view = next((view for view in snapshot.queues if view.queue.name == queue), None)
            if view is None:
                return []
            first = dispatch_order(view, QUEUE_SNAPSHOT_MAX, QuotaGate(snapshot))
            return [(job_id, waiting.runnable_at) for job_id, waiting in first]

        answer: list[tuple[JobId, int]] = await self._ask(look)
        return answer

    async def shares(self, queue: QueueName) -> QueueShares | None:
        """How much of a queue's capacity each of its shares uses."""
        answer: QueueShares | None = await self._ask(lambda state, _, now: queue_shares(state, queue, now))
        return answer

    @property
    def agents_away(self) -> list[str]:
        """Why agents do not answer, one text for each engine whose agents do not."""
        return [text for name in self._routing.engine_names if (text := self.away(name)) is not None]

    async def inspect(self, question: Question) -> Any:
        """Ask the state itself; answered after the round, when what it saw is durable."""
        return await self._ask(question)

    def report(self, report: Report) -> None:
        """Take an engine's report.

        A start changes nothing for other jobs, and the exit often follows soon. An exit matters only to jobs that wait
        for its place or its result.
        """
        self._inbound.append((report, None, None))
        if not isinstance(report, _LAZY) and (
            not isinstance(report, AttemptExited) or self._state.anybody_waits
        ):
            self._wake.set()
        elif self._lazy is None and not self._wake.is_set():
            self._lazy = asyncio.get_running_loop().call_later(LAZY_S, self._wake.set)

    def take_forwarded(self, commands: Sequence[ForwardedCommand]) -> None:
        """Take commands that followers forwarded; their replies are committed with their changes."""
        for forwarded in commands:
            if forwarded.id not in self._forwarded_ids:
                self._forwarded_ids[forwarded.id] = None
                self._inbound.append((forwarded.command, forwarded, forwarded.tenant))
                self._wake.set()
        if len(self._forwarded_ids) > 2 * FORWARDED_REMEMBERED:
            self._forwarded_ids = dict.fromkeys(list(self._forwarded_ids)[-FORWARDED_REMEMBERED:])

    def supersede(self) -> None:
        """End with Superseded before the next round: another daemon leads."""
        self._superseded = True
        self._wake.set()

    async def _ask(self, item: Event | Question, tenant: str | None = None) -> Any:
        if self._over is not None:
            raise self._over
        future = asyncio.get_running_loop().create_future()
        self._inbound.append((item, future, tenant))
        self._wake.set()
        return await future

    # The loop -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run rounds until cancelled. An exception ends the daemon on purpose."""
        while True:
            await self._wait()
            await self.turn()

    async def _wait(self) -> None:
        if self._wake.is_set():
            # Let handlers that are ready put their commands into this round too.
            await asyncio.sleep(GATHER_S if self._busy else 0)
            return
        now = self._clock_ms()
        due = next_due(self._state)
        wait_s = TICK_S if due is None else min(TICK_S, max(0.0, (due - now) / 1000))
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def turn(self) -> None:
        """One round: react to all that is waiting, commit, answer, act."""
        self._wake.clear()
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        if self._superseded:
            raise Superseded(committed=False)
        batch, self._inbound = self._inbound[:ROUND_MAX], self._inbound[ROUND_MAX:]
        if self._inbound:
            self._wake.set()
        round_ = Round(self._clock_ms())
        replies = self._react(batch, round_)
        self._busy = not replies and len(batch) >= BUSY_REPORTS
        self.rounds += 1
        try:
            await self._make_durable(round_, replies)
        except Superseded as superseded:
            if superseded.committed:
                self._answer(replies)
            else:
                self._inbound = batch + self._inbound  # Nothing of this round has happened.
            raise
        except StoreReplaced as replaced:
            self._inbound = batch + self._inbound
            self.abandon(replaced)
            raise
        self._answer(replies)
        if round_.instructions:
            self._routing.carry_out(self._state, round_.instructions)

    async def _make_durable(
        self, round_: Round, replies: list[tuple[asyncio.Future[Any] | ForwardedCommand, Any]]
    ) -> None:
        for caller, reply in replies:
            if isinstance(caller, ForwardedCommand):
                round_.changes.answers[caller.id] = encoded_reply(reply)
        if round_.changes:
            began = time.perf_counter()
            purged = await self._commit(self._store.commit, round_.changes)
            self.commit_s += time.perf_counter() - began
            if purged:
                self._on_purged(purged)
            if round_.changes.outbox and self.on_events_committed is not None:
                self.on_events_committed()
        elif replies and self._lease is not None and not self._lease.is_sure:
            # An answer from memory would be stale if another daemon leads by now.
            await self._commit(self._lease.confirm)

    def _answer(self, replies: list[tuple[asyncio.Future[Any] | ForwardedCommand, Any]]) -> None:
        for future, reply in replies:
            if isinstance(future, ForwardedCommand) or future.done():
                continue  # answered through the store, or the caller has left
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    async def _commit(self, write: Callable[..., T], *changes: Changes) -> T:
        """Commit the round, and retry on failure: committing the same round twice is harmless."""
        loop, backoff = asyncio.get_running_loop(), Backoff(COMMIT_AGAIN)
        failures = FailureLog(time.monotonic, LOG_AGAIN_S)
        while True:
            try:
                done = await loop.run_in_executor(self._writer, write, *changes)
            except CommitFailed as error:
                if failures.is_news(str(error)):
                    # No traceback: the store's message says what is wrong.
                    log.warning("%s; nothing is answered or started until it can; trying again", error)
                await asyncio.sleep(backoff.failed())
            else:
                if failures.is_over():
                    log.warning("the store can be written again")
                return done

    def _react(
        self, batch: list[Asked], round_: Round
    ) -> list[tuple[asyncio.Future[Any] | ForwardedCommand, Any]]:
        self._state.tenants = self._tenants()
        replies: list[tuple[asyncio.Future[Any] | ForwardedCommand, Any]] = []
        questions: list[tuple[asyncio.Future[Any], Question]] = []
        callers: list[asyncio.Future[Any] | ForwardedCommand | None] = []
        happened: list[tuple[Event, str | None]] = []
        for item, caller, tenant in batch:
            if callable(item):
                if isinstance(caller, asyncio.Future):
                    questions.append((caller, item))
                continue
            if isinstance(caller, ForwardedCommand):
                try:
                    self._routing.check(self._state, caller.command)
                except Rejected as rejected:
                    replies.append((caller, rejected))
                    continue
            callers.append(caller)
            happened.append((item, tenant))
        answers = react(self._state, happened, self._routing.offers, round_, placing=self.placing)
        replies += [
            (caller, answer) for caller, answer in zip(callers, answers, strict=True) if caller is not None
        ]
        for future, question in questions:
            try:
                replies.append((future, question(self._state, self._state.offers, round_.now)))
            except Exception as error:  # noqa: BLE001 (a question changes nothing: only its caller gets the error)
                replies.append((future, error))
        return replies

    def act_after_restart(self, instructions: list[Instruction]) -> None:
        """Give the engines what is theirs, then repeat what was decided before a restart."""
        self._routing.adopt(self._state)
        if instructions:
            self._routing.carry_out(self._state, instructions)

    def abandon(self, why: StoreError | None = None) -> None:
        """Fail everything that still waits: by default with Superseded, because another daemon leads.

        With a reason, later calls fail too.
        """
        self._over = why
        waiting, self._inbound = self._inbound, []
        for _, future, _ in waiting:
            if isinstance(future, asyncio.Future) and not future.done():
                future.set_exception(why or Superseded(committed=False))

    def close(self) -> None:
        """Shut the threads down; nothing is written after this."""
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
