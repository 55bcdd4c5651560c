"""The local engine: keeps one agent alive on this host, tells it what to do and reports what it says.

The agent outlives the daemon and the connection. While there is none, instructions are let go: everything that still
matters follows from state when the agent connects again (see control.reporting.on_agent_connected).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from windfall.agent import messages
from windfall.agent.client import AgentConnection, connect, start_detached
from windfall.agent.errors import AgentError, AgentRejected
from windfall.agent.settings import AgentSettings
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import Machine, Offer
from windfall.control.events import InstanceReady
from windfall.control.instructions import Instruction, LaunchInstance
from windfall.control.ports import Sink
from windfall.engines.local.translation import to_connected, to_messages, to_report
from windfall.jobs.ids import InstanceId

log = logging.getLogger(__name__)

INSTANCE_TYPE = "local"
RECONNECT_S = 0.2
_LIVE = ("starting", "running")


def _live(inventory: messages.Inventory) -> int:
    return sum(status.state in _LIVE for status in inventory.attempts)


async def _retire(connection: AgentConnection) -> None:
    """Let an agent that has nothing to do end; the next one reads its journal."""
    await connection.send([messages.Shutdown(kill=False)])
    async for _ in connection:
        continue


class LocalEngine:
    """Every compute environment gets a share of this host."""

    name = "local"

    def __init__(self, sink: Sink, agent: AgentSettings, logs: Path, epoch: int) -> None:
        self._sink = sink
        self._agent = agent
        self._logs = logs
        self._epoch = epoch
        self._connection: AgentConnection | None = None
        self._launching: list[InstanceId] = []
        self.machine: Machine | None = None
        #: Set once an agent has said what it has.
        self.connected = asyncio.Event()
        self._closing = False

    def offers(self, _environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """This host, if its agent has answered."""
        if self.machine is None:
            return ()
        return (Offer(INSTANCE_TYPE, self.machine.total, 1, self.machine.id),)

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Tell the agent; a launch is done as soon as the agent has described the host."""
        self._launching += [i.instance for i in instructions if isinstance(i, LaunchInstance)]
        self._report_ready()
        if self._connection is not None:
            told = to_messages(instructions, self._logs)
            if told:
                self._connection.write(told)

    def _report_ready(self) -> None:
        if self.machine is not None:
            for instance in self._launching:
                self._sink(InstanceReady(instance, self.machine))
            self._launching.clear()

    async def run(self) -> None:
        """Keep a connection to the agent, starting one when none answers, until told to close."""
        while not self._closing:
            try:
                socket = await start_detached(self._agent)
                connection = await connect(socket, self._epoch)
                if self._is_outdated(connection.inventory) and not _live(connection.inventory):
                    await _retire(connection)
                else:
                    self._connection = connection
                    await self._listen(connection)
            except AgentRejected as rejected:
                # Only one daemon can hold this data directory, so a higher epoch is an older clock of our own.
                self._epoch = rejected.epoch + 1
            except AgentError as error:
                log.warning("the agent does not answer (%s); trying again", error)
            finally:
                self._connection = None
                self.connected.clear()
            if not self._closing:
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self, connection: AgentConnection) -> None:
        """Report what the agent says; the results that it repeats at first belong to its inventory."""
        inventory = self._with_warning(connection.inventory)
        owed = {status.token for status in inventory.attempts if status.state not in _LIVE}
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
                report = to_report(message)
                if report is not None:
                    self._sink(report)

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

    def _introduce(self, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        connected = to_connected(inventory, results)
        self.machine = connected.machine
        self._sink(connected)
        self._report_ready()
        self.connected.set()

    async def shut_down_agent(self, *, kill: bool) -> None:
        """End the agent, with its attempts if `kill`; without it they run on and are adopted by the next one."""
        self._closing = True
        if self._connection is not None:
            await self._connection.send([messages.Shutdown(kill)])

    def let_go(self) -> None:
        """Leave the agent to itself."""
        self._closing = True
