"""The local engine: this host is the machine, and one agent on it starts the attempts of every environment.

Decides what is offered and when an instance is ready. What keeps the agent alive is in engines/agent_link.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.settings import AgentSettings
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import Machine, Offer
from windfall.capacity.market_tags import market_tags_of
from windfall.control.events import DevicesChanged, InstanceReady
from windfall.control.instructions import Instruction, LaunchInstance
from windfall.control.ports import Holdings, Sink
from windfall.engines.agent_link import AgentLink
from windfall.engines.local.translation import to_machine, with_devices
from windfall.engines.translation import to_connected, to_messages, to_report
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import InstanceId

INSTANCE_TYPE = "local"


class LocalEngine:
    """Every compute environment gets a share of this host."""

    name = "local"

    def __init__(
        self, sink: Sink, agent: AgentSettings, files: AttemptDirectory, epoch: int, *, leased: bool = False
    ) -> None:
        self._sink = sink
        self.files = files
        self._link = AgentLink(agent, epoch, self._introduce, self._hear)
        self._link.leased = leased
        self._link.wanted.set()
        self._launching: list[InstanceId] = []
        self.machine: Machine | None = None

    @property
    def connected(self) -> asyncio.Event:
        """Set while an agent is connected that has said what it has."""
        return self._link.connected

    @property
    def unfit(self) -> asyncio.Event:
        """Set while agents end as soon as they are started."""
        return self._link.unfit

    @property
    def trouble(self) -> str | None:
        """What keeps the agent from being reached, if something does."""
        return self._link.trouble

    @property
    def away(self) -> str | None:
        """Why the agent does not do what it is told; None while it answers."""
        return self._link.away

    def check(self, environment: ComputeEnvironment) -> None:
        """Refuse tags of a market that this host does not have, rather than let them do nothing."""
        if named := market_tags_of(environment.tags):
            raise Invalid(
                f"{', '.join(named)} is for the simulated market, and {environment.name} would run on this host;"
                " add the tag windfall:engine=simulated, or leave it out"
            )

    def adopt(self, _holdings: Holdings) -> None:
        """Nothing to take over: shares of this host exist as long as the core says so."""

    def offers(self, _environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """This host, if its agent has answered."""
        if self.machine is None:
            return ()
        return (Offer(INSTANCE_TYPE, self.machine.total, 1, self.machine.id),)

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Tell the agent; a launch is done as soon as the agent has described the host."""
        self._launching += [i.instance for i in instructions if isinstance(i, LaunchInstance)]
        self._report_ready()
        self._link.write(to_messages(instructions, self.files.log_path))

    def _report_ready(self) -> None:
        if self.machine is not None:
            for instance in self._launching:
                self._sink(InstanceReady(instance, self.machine))
            self._launching.clear()

    def _introduce(self, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        self.machine = to_machine(inventory)
        self._sink(to_connected(self.machine, inventory, results))
        self._report_ready()

    def _hear(self, message: messages.ToDaemon) -> None:
        if isinstance(message, messages.Devices) and self.machine is not None:
            self.machine = with_devices(self.machine, message)
            self._sink(DevicesChanged(self.machine.id, self.machine.gpus))
            return
        report = to_report(message)
        if report is not None:
            self._sink(report)

    async def run(self) -> None:
        """Keep the agent alive until told to close."""
        await self._link.run()

    async def shut_down_agent(self, *, kill: bool) -> None:
        """End the agent, with its attempts if `kill`; without it they run on and are adopted by the next one."""
        await self._link.shut_down(kill=kill)

    def let_go(self) -> None:
        """Leave the agent to itself."""
        self._link.let_go()
