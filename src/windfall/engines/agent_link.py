"""Keeps one agent process alive and a connection to it, for whichever engine runs its attempts there.

Decides when an agent is started, greeted, replaced and let go. Must not know instances: what the agent says is handed
on, its inventory first. The agent outlives the daemon and the connection. While there is none, what is written is let
go: everything that still matters follows from state when the agent connects again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from windfall.agent import messages
from windfall.agent.client import AgentConnection, clock_ms, connect
from windfall.agent.errors import AgentError, AgentRejected, AgentUnfit, AgentUnreachable
from windfall.agent.reach import Reach
from windfall.engines.provisioning import Provisioner
from windfall.engines.translation import ENDED, in_its_time, in_our_time
from windfall.jobs.storage import StorageAccess

log = logging.getLogger(__name__)

#: A larger difference of clocks is a warning.
CLOCK_WARN_MS = 1_000


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts for an unresponsive agent, in seconds."""

    #: Between two tries to reach one, at first and at most.
    again_s: float = 0.2
    again_most_s: float = 5.0
    #: A trouble that lasts is reported again this often.
    tell_again_s: float = 600.0
    #: How often one that says nothing is asked whether it is there, and after how long without a word it is reported.
    ping_every_s: float = 5.0
    silent_s: float = 60.0
    #: After how long without a word `windfall why` says so.
    quiet_s: float = 15.0
    #: For one that is told to end and has nothing to do.
    retire_s: float = 60.0
    #: After how long without a word its attempts go on elsewhere; 0 where they never do.
    lose_after_s: float = 0.0


#: Takes what an agent has, and the results that it repeats at a connection.
OnConnected = Callable[[messages.Inventory, list[messages.Result]], None]
OnMessage = Callable[[messages.ToDaemon], None]


class AgentLink:
    """One agent, for as long as somebody wants it."""

    def __init__(
        self,
        reach: Reach,
        epoch: int,
        on_connected: OnConnected,
        on_message: OnMessage,
        patience: Patience = Patience(),  # noqa: B008 (frozen: nobody can change what others get)
        *,
        leased: bool = False,
        is_afar: bool = False,
        provisioner: Provisioner | None = None,
    ) -> None:
        """A higher epoch than one that comes with a lease is another daemon's, and is not outbid.

        The word of an agent on another machine (`is_afar`) does not depose a daemon: the store has the lease.
        """
        self._reach = reach
        self._patience = patience
        self._troubles = _Troubles(patience)
        self._epoch = epoch
        self._on_connected = on_connected
        self._on_message = on_message
        self._connection: AgentConnection | None = None
        self._closing = False
        self._running: asyncio.Task[None] | None = None
        #: When the agent was asked for its clock, until it answers.
        self._pinged_at: int | None = None
        #: When the last Pong was sent, by a clock of the agent that only the agent reads.
        self._sent_ms = 0
        #: When the agent was last heard, on the monotonic clock; until then, since when it is waited for.
        self._heard_s = time.monotonic()
        #: Whose agent it is, for people.
        self.whose = "the agent"
        self._leased, self._is_afar = leased, is_afar
        #: What the machine is sent that shares no disk with the daemon.
        self._provisioner = provisioner
        #: No agent is started before this is set.
        self.wanted = asyncio.Event()
        #: Set while an agent is connected that has said what it has.
        self.connected = asyncio.Event()
        #: What kept the last one from being reached, until one is.
        self.trouble: str | None = None
        #: Set while agents end as soon as they are started.
        self.unfit = asyncio.Event()

    @property
    def silent_s(self) -> float:
        """For how long nothing was heard of the agent, whether or not there is a connection."""
        return time.monotonic() - self._heard_s

    @property
    def away(self) -> str | None:
        """Why the agent does not do what it is told, for people; None while it answers, or while nobody wants one."""
        if not self.wanted.is_set():
            return None
        if self._connection is None or not self.connected.is_set():
            if self.trouble:
                return f"{self.whose} does not answer: {self.trouble}"
            return f"{self.whose} is being started"
        quiet_s = self.silent_s
        if quiet_s < self._patience.quiet_s:
            return None
        pid = self._connection.inventory.agent_pid
        return (
            f"{self.whose} (pid {pid}) has not answered for {quiet_s:.0f} s, and jobs are neither started nor stopped;"
            f" is its process stopped (kill -CONT {pid})?"
        )

    async def settle(self, *, or_unfit: bool) -> None:
        """Wait until the agent has said what it has; with `or_unfit`, or until agents end as soon as they start."""
        if self.connected.is_set():
            return
        waits = [asyncio.create_task(self.connected.wait())]
        if or_unfit:
            waits.append(asyncio.create_task(self.unfit.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def write(self, sent: Sequence[messages.Message]) -> None:
        """Tell the agent, if one is connected."""
        if sent and self._connection is not None:
            if self._provisioner is not None:
                sent = self._provisioner.accompanied(sent)
            if ahead_ms := self._connection.clock.ahead_ms:
                sent = [in_its_time(message, ahead_ms) for message in sent]
            self._connection.write(sent)

    def expect(self, storage: Mapping[str, StorageAccess]) -> None:
        """Know what attempts there may use of object storage, so that their credentials are renewed."""
        if self._provisioner is not None:
            for token, access in storage.items():
                self._provisioner.expect(token, access)

    def provide(self) -> None:
        """Send the agent what has changed of what it is provided with."""
        if self._provisioner is not None and self._connection is not None and self.connected.is_set():
            self._connection.write(self._provisioner.renewed())

    def renew(self) -> None:
        """Break the connection, if there is one, so that the agent has to introduce itself anew."""
        if self._connection is not None:
            self._connection.abort()

    async def run(self) -> None:
        """Keep a connection to the agent, starting one when none answers, until told to close."""
        self._running = asyncio.current_task()
        await self.wanted.wait()
        while not self._closing:
            connection: AgentConnection | None = None
            try:
                await self._reach.bring_up()
                connection = await connect(self._reach, self._epoch)
                if self._is_outdated(connection.inventory) and not _live(connection.inventory):
                    await self._retire(connection)
                else:
                    self._connection = connection
                    await self._listen(connection)
                    self._troubles.ended()
            except AgentRejected as rejected:
                if not self._leased:
                    # Only one daemon can hold this data directory, so a higher epoch is an older clock of our own.
                    self._epoch = rejected.epoch + 1
                elif self._is_afar:
                    self._note(
                        f"it refuses this daemon ({rejected}); if no other daemon leads, remove the machine"
                        " and add it again"
                    )
                else:
                    raise
            except AgentError as error:
                self._note(str(error))
                if isinstance(error, AgentUnfit):
                    self.unfit.set()
            finally:
                self._connection = None
                self.connected.clear()
                if connection is not None:
                    await connection.close()
            if not self._closing:
                await asyncio.sleep(self._troubles.wait_s)

    def _note(self, trouble: str) -> None:
        self.trouble = trouble
        self._troubles.note(f"{self.whose} does not answer ({trouble})")

    async def _listen(self, connection: AgentConnection) -> None:
        """Hand on what the agent says, until it goes."""
        self._pinged_at = None
        watching = asyncio.create_task(self._watch(connection), name="agent watch")
        try:
            await self._hear_all(connection)
        finally:
            watching.cancel()

    async def _watch(self, connection: AgentConnection) -> None:
        """Ask an agent that says nothing whether it is there, and report one that does not answer.

        It is not replaced: its process lives, with the jobs below it, and a second one could not have its directory.
        """
        self._heard_s = time.monotonic()
        #: When it was last heard before it was reported.
        silent_since_s: float | None = None
        while True:
            await asyncio.sleep(self._patience.ping_every_s)
            if silent_since_s is not None and self._heard_s != silent_since_s:
                silent_since_s = None
                log.warning("%s answers again", self.whose)
            silent_s = time.monotonic() - self._heard_s
            if silent_since_s is None and silent_s >= self._patience.silent_s:
                silent_since_s = self._heard_s
                pid = connection.inventory.agent_pid
                log.warning(
                    "%s (pid %d) has not answered for %.0f s, so that jobs are neither started nor stopped;"
                    " is its process stopped (kill -CONT %d), or the disk of %s full?",
                    self.whose,
                    pid,
                    silent_s,
                    pid,
                    self._reach.place,
                )
            if silent_since_s is None:
                if self._pinged_at is None:
                    self._pinged_at = clock_ms()
                news = self._provisioner.renewed() if self._provisioner is not None else ()
                connection.write([*news, self._ping()])

    def _ping(self) -> messages.Ping:
        return messages.Ping(self._sent_ms, self._patience.lose_after_s)

    async def _hear_all(self, connection: AgentConnection) -> None:
        """Hand on what the agent says; the results that it repeats at first belong to its inventory."""
        inventory = self._with_warnings(connection)
        owed = {status.token for status in inventory.attempts if status.state in ENDED}
        results: list[messages.Result] = []
        if not owed:
            self._introduce(inventory, results)
        async for batch in connection:
            self._heard_s = time.monotonic()
            for said in batch:
                if isinstance(
                    said, messages.Pong
                ):  # It has been heard, and has a clock; that is all that it says.
                    self._sent_ms = said.sent_ms
                    if self._pinged_at is not None:
                        connection.clock.measure(self._pinged_at, said.now, clock_ms())
                        self._pinged_at = None
                    continue
                ahead_ms = connection.clock.ahead_ms
                message = in_our_time(said, ahead_ms) if ahead_ms else said
                if owed and isinstance(message, messages.Result):
                    if message.token in owed:  # else it was repeated on its way
                        results.append(message)
                        owed.discard(message.token)
                    if not owed:
                        self._introduce(inventory, results)
                    continue
                self._on_message(message)

    def _introduce(self, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        self._heard_s = time.monotonic()
        self._sent_ms = inventory.sent_ms
        if self._patience.lose_after_s and self._connection is not None:
            # Before the first order: what it starts may have to end when this is not said again.
            self._connection.write([self._ping()])
        self._on_connected(inventory, results)
        if self._provisioner is not None and self._connection is not None:
            self._connection.write(self._provisioner.at_connection(inventory))
        self._troubles.over(self.whose)
        self.trouble = None
        self.unfit.clear()
        self.connected.set()

    def _is_outdated(self, inventory: messages.Inventory) -> bool:
        """Whether the agent was started with other settings, or by another version, than ours."""
        return inventory.settings != self._reach.digest

    def _with_warnings(self, connection: AgentConnection) -> messages.Inventory:
        """What the agent has, in our time, with what people should know of the agent itself."""
        inventory, warnings, ahead_ms = connection.inventory, [], connection.clock.ahead_ms
        if ahead_ms:
            inventory = in_our_time(inventory, ahead_ms)
        if abs(ahead_ms) >= CLOCK_WARN_MS:
            warnings.append(
                f"the clock of {inventory.hostname} is {abs(ahead_ms) / 1000:.1f} s"
                f" {'ahead of' if ahead_ms > 0 else 'behind'} the daemon's; times of its jobs are corrected, those of"
                " log lines are not: let both synchronise their clocks"
            )
        if self._is_outdated(inventory):
            warnings.append(_outdated(_live(inventory)))
        return msgspec.structs.replace(inventory, warnings=[*inventory.warnings, *warnings])

    async def _retire(self, connection: AgentConnection) -> None:
        """Let an agent that has nothing to do end; the next one reads its journal."""
        await connection.send([messages.Shutdown(kill=False)])
        try:
            async with asyncio.timeout(self._patience.retire_s):
                async for _ in connection:
                    continue
        except TimeoutError:
            pid = connection.inventory.agent_pid
            raise AgentUnreachable(
                f"pid {pid} has other settings and does not end when it is told to"
            ) from None

    async def shut_down(self, *, kill: bool) -> None:
        """End the agent, with its attempts if `kill`; without it they run on and are adopted by the next one."""
        self.let_go()
        if self._connection is None:
            if self._running is not None:
                self._running.cancel()  # An agent that cannot be reached is not waited for.
            return
        try:
            await self._connection.send([messages.Shutdown(kill)])
        except AgentError as error:
            log.warning("%s was gone when it was told to end (%s); its jobs run on", self.whose, error)

    def let_go(self) -> None:
        """Leave the agent to itself."""
        self._closing = True
        self.wanted.set()


class _Troubles:
    """What keeps the link from its agent: told once and now and then, tried again ever less often."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._logged, self._logged_s = "", 0.0
        self._is_over = True
        self.wait_s = patience.again_s

    def note(self, trouble: str) -> None:
        """Something has gone wrong once more."""
        now = time.monotonic()
        if trouble != self._logged or now - self._logged_s >= self._patience.tell_again_s:
            log.warning("%s; trying again", trouble)
            self._logged, self._logged_s, self._is_over = trouble, now, False
        self.wait_s = min(self.wait_s * 2, self._patience.again_most_s)

    def over(self, whose: str) -> None:
        """The agent is there and has said what it has."""
        if not self._is_over:
            self._is_over = True
            log.warning("%s answers again", whose)

    def ended(self) -> None:
        """A connection that was good is over: the next one is tried soon, and whatever is wrong then is told."""
        self._logged = ""
        self.wait_s = self._patience.again_s


def _outdated(live: int) -> str:
    jobs, ended = ("job still runs", "it has") if live == 1 else ("jobs still run", "they have")
    return (
        f"{live} {jobs} under the settings of an earlier start, which stay in force;"
        f" start Windfall again when {ended} ended to use the new ones"
    )


def _live(inventory: messages.Inventory) -> int:
    return sum(status.state not in ENDED for status in inventory.attempts)
