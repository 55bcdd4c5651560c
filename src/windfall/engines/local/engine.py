"""The local engine: this host is the machine, and one agent on it starts the attempts of every environment.

Decides what is offered and when an instance is ready. What keeps the agent alive is in engines/agent_link.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.launching import LOG_NAME
from windfall.agent.reach import Reach, Stream
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.labels import refuse_tag
from windfall.capacity.machines import Machine, Offer
from windfall.capacity.market_tags import refuse_market_tags
from windfall.control.events import DevicesChanged, InstanceLost, InstanceReady
from windfall.control.instructions import Instruction, LaunchInstance, TerminateInstance
from windfall.control.ports import Holdings, Sink
from windfall.engines.agent_link import AgentLink
from windfall.engines.translation import (
    machine_of_host,
    to_connected,
    to_messages,
    to_notices,
    to_report,
    with_devices,
)
from windfall.jobs.ids import InstanceId, MachineId

INSTANCE_TYPE = "local"


class LocalEngine:
    """Every compute environment gets a share of this host."""

    name = "local"

    def __init__(
        self, sink: Sink, reach: Reach, files: AttemptDirectory, epoch: int, *, leased: bool = False
    ) -> None:
        self._sink = sink
        self._reach = reach
        self.files = files
        self._link = AgentLink(reach, epoch, self._introduce, self._hear, leased=leased)
        self._link.wanted.set()
        self._launching: list[InstanceId] = []
        self._placed: dict[InstanceId, MachineId] = {}
        self._machine: Machine | None = None
        #: Whether the host itself is about to be taken away.
        self._notice = messages.Noticed()

    @property
    def machines(self) -> tuple[Machine, ...]:
        """This host, once its agent has described it."""
        return () if self._machine is None else (self._machine,)

    @property
    def trouble(self) -> str | None:
        """What keeps the agent from describing this host."""
        if self._machine is not None:
            return None
        return self._link.trouble or f"the agent did not start; its log is {self._reach.place}/{LOG_NAME}"

    @property
    def away(self) -> str | None:
        """Why the agent does not do what it is told, or is told nothing new; None while it answers."""
        if self._link.away is None and self._notice.deadline_at is not None:
            return (
                f"nothing new is placed on this host, which is about to be taken away: {self._notice.words}"
            )
        return self._link.away

    def check(self, environment: ComputeEnvironment) -> None:
        """Refuse tags of a market that this host does not have, rather than let them do nothing."""
        refuse_market_tags(environment.tags, f"{environment.name} would run on this host")
        refuse_tag(environment, self.name)

    def adopt(self, holdings: Holdings) -> None:
        """Remember on which machine each share was: shares exist as long as the core says so and the machine does."""
        self._placed = {
            instance.id: instance.machine for instance in holdings.instances if instance.machine is not None
        }

    def offers(self, _environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """This host, if its agent has answered and nobody is about to take it away."""
        if self._machine is None or self._notice.deadline_at is not None:
            return ()
        return (Offer(INSTANCE_TYPE, self._machine.total, 1, self._machine.id),)

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Tell the agent; a launch is done as soon as the agent has described the host."""
        for instruction in instructions:
            if isinstance(instruction, LaunchInstance):
                self._launching.append(instruction.instance)
            elif isinstance(instruction, TerminateInstance):
                self._placed.pop(instruction.instance, None)
        self._report_ready()
        self._link.write(to_messages(instructions, self.files.log_path))

    def _report_ready(self) -> None:
        if self._machine is None:
            return
        for instance in self._launching:
            self._placed[instance] = self._machine.id
            self._sink(InstanceReady(instance, self._machine))
        if self._launching:
            self._launching.clear()
            self._pass_on_notice()

    def _introduce(self, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        self._machine = machine_of_host(inventory)
        self._notice = messages.Noticed()  # One that is in force is said again.
        self._sink(to_connected(self._machine, inventory, results))
        for instance, machine in list(self._placed.items()):
            if machine != self._machine.id:
                # Its agent was lost with all that it knew, and this one is a stranger to what ran there.
                del self._placed[instance]
                self._sink(InstanceLost(instance))
        self._report_ready()

    def _hear(self, message: messages.ToDaemon) -> None:
        if isinstance(message, messages.Devices) and self._machine is not None:
            self._machine = with_devices(self._machine, message)
            self._sink(DevicesChanged(self._machine.id, self._machine.gpus))
            return
        if isinstance(message, messages.Noticed):
            self._notice = message
            self._pass_on_notice()
            return
        report = to_report(message)
        if report is not None:
            self._sink(report)

    def _pass_on_notice(self) -> None:
        """Tell the shares of this host that it will go, or may go soon."""
        for report in to_notices(self._notice, self._placed):
            self._sink(report)

    async def settle(self, *, or_unfit: bool = False) -> None:
        """Wait until the agent has described this host."""
        await self._link.settle(or_unfit=or_unfit)

    async def dial(self, _instance: InstanceId) -> Stream:
        """A stream to the agent, which has every instance."""
        return await self._reach.dial()

    async def run(self) -> None:
        """Keep the agent alive until told to close."""
        await self._link.run()

    async def shut_down(self, *, kill: bool) -> None:
        """End the agent, with its attempts if `kill`; without it they run on and are adopted by the next one."""
        await self._link.shut_down(kill=kill)

    def let_go(self) -> None:
        """Leave the agent to itself."""
        self._link.let_go()
