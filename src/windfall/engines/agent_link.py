"""Keeps one agent process alive on this host and a connection to it, for whichever engine runs its attempts there.

Decides when an agent is started, greeted, replaced and let go. Must not know instances: what the agent says is handed
on, its inventory first. The agent outlives the daemon and the connection. While there is none, what is written is let
go: everything that still matters follows from state when the agent connects again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from windfall.agent import messages
from windfall.agent.client import AgentConnection, connect, start_detached
from windfall.agent.errors import AgentError, AgentRejected
from windfall.agent.settings import AgentSettings
from windfall.engines.translation import ENDED

log = logging.getLogger(__name__)

RECONNECT_S = 0.2

#: Takes what an agent has, and the results that it repeats at a connection.
OnConnected = Callable[[messages.Inventory, list[messages.Result]], None]
OnMessage = Callable[[messages.ToDaemon], None]


class AgentLink:
    """One agent on this host, for as long as somebody wants it."""

    def __init__(
        self, agent: AgentSettings, epoch: int, on_connected: OnConnected, on_message: OnMessage
    ) -> None:
        self._agent = agent
        self._epoch = epoch
        self._on_connected = on_connected
        self._on_message = on_message
        self._connection: AgentConnection | None = None
        self._closing = False
        #: Whether the epoch comes with a lease: a higher one is then another daemon's, and is not outbid.
        self.leased = False
        #: No agent is started before this is set.
        self.wanted = asyncio.Event()
        #: Set while an agent is connected that has said what it has.
        self.connected = asyncio.Event()

    def write(self, told: Sequence[messages.Message]) -> None:
        """Tell the agent, if one is connected."""
        if told and self._connection is not None:
            self._connection.write(told)

    async def run(self) -> None:
        """Keep a connection to the agent, starting one when none answers, until told to close."""
        await self.wanted.wait()
        while not self._closing:
            connection: AgentConnection | None = None
            try:
                socket = await start_detached(self._agent)
                connection = await connect(socket, self._epoch)
                if self._is_outdated(connection.inventory) and not _live(connection.inventory):
                    await _retire(connection)
                else:
                    self._connection = connection
                    await self._listen(connection)
            except AgentRejected as rejected:
                if self.leased:
                    raise
                # Only one daemon can hold this data directory, so a higher epoch is an older clock of our own.
                self._epoch = rejected.epoch + 1
            except AgentError as error:
                log.warning("the agent does not answer (%s); trying again", error)
            finally:
                self._connection = None
                self.connected.clear()
                if connection is not None:
                    await connection.close()
            if not self._closing:
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self, connection: AgentConnection) -> None:
        """Hand on what the agent says; the results that it repeats at first belong to its inventory."""
        inventory = self._with_warning(connection.inventory)
        owed = {status.token for status in inventory.attempts if status.state in ENDED}
        results: list[messages.Result] = []
        if not owed:
            self._introduce(inventory, results)
        async for batch in connection:
            for message in batch:
                if owed and isinstance(message, messages.Result) and message.token in owed:
                    results.append(message)
                    owed.discard(message.token)
                    if not owed:
                        self._introduce(inventory, results)
                    continue
                self._on_message(message)

    def _introduce(self, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        self._on_connected(inventory, results)
        self.connected.set()

    def _is_outdated(self, inventory: messages.Inventory) -> bool:
        """Whether the agent was started with other settings, or by another version, than ours."""
        return inventory.settings != self._agent.digest

    def _with_warning(self, inventory: messages.Inventory) -> messages.Inventory:
        if not self._is_outdated(inventory):
            return inventory
        warning = (
            f"{_live(inventory)} jobs still run under the settings of an earlier start, which stay in force;"
            " start Windfall again when they have ended to use the new ones"
        )
        return msgspec.structs.replace(inventory, warnings=[*inventory.warnings, warning])

    async def shut_down(self, *, kill: bool) -> None:
        """End the agent, with its attempts if `kill`; without it they run on and are adopted by the next one."""
        self.let_go()
        if self._connection is None:
            return
        try:
            await self._connection.send([messages.Shutdown(kill)])
        except AgentError as error:
            log.warning("the agent was gone when it was told to end (%s); its jobs run on", error)

    def let_go(self) -> None:
        """Leave the agent to itself."""
        self._closing = True
        self.wanted.set()


def _live(inventory: messages.Inventory) -> int:
    return sum(status.state not in ENDED for status in inventory.attempts)


async def _retire(connection: AgentConnection) -> None:
    """Let an agent that has nothing to do end; the next one reads its journal."""
    await connection.send([messages.Shutdown(kill=False)])
    async for _ in connection:
        continue
