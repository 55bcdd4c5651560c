"""The simulated fleet: the real engine over many machines, whose lines to its agents are played.

An engine lives and dies with its daemon. Which machines there are, and which are drained, outlives both, as the
declared hosts of a real daemon do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.agents import a_machine
from tests.simulation.fleet_agents import PREFIX, FleetAgent, Introduction
from tests.simulation.machines import Agent, Engine
from tests.simulation.post_commit_tasks import POST_COMMIT_TASKS
from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.errors import AgentUnreachable
from windfall.agent.reach import Reach, Stream
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import NAME_FACT, Offer
from windfall.control.instructions import Instruction, StartAttempt
from windfall.control.placing import stops_alone
from windfall.control.ports import Holdings, Sink
from windfall.engines.agent_link import AgentLink
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.settings import FleetSettings
from windfall.engines.fleet.standing import Provider, Silence
from windfall.engines.provisioning import SharedStock
from windfall.jobs.ids import AttemptToken, InstanceId, MachineId
from windfall.jobs.resources import Resources

if TYPE_CHECKING:
    from tests.simulation.world import World

SILENCE = Silence(doubt_after_s=2.0, tell_after_s=5.0, lose_after_s=10.0)
LOOK_MS = 1_000
COUNTS = (3, 3, 4, 4, 6, 6, 10, 10, 25, 60, 200)
SIZES = (Resources(4, 8192, 1), Resources(2, 4096, 0), Resources(8, 16384, 1))
#: Nothing is written there: no simulated agent sends a log.
NOWHERE = Path("/nonexistent")


class PlayedReach(Reach):
    """Leads to a played agent."""

    place = "simulated"
    digest = ""

    def __init__(self, agent: FleetAgent) -> None:
        self.agent = agent

    async def bring_up(self) -> None:
        """Played agents are brought up by their world."""

    async def dial(self) -> Stream:
        """Nobody can."""
        raise AgentUnreachable("simulated")


class PlayedLink(AgentLink):
    """The line to one played agent, as the engine sees it."""

    def __init__(self, agent: FleetAgent) -> None:
        super().__init__(PlayedReach(agent), 1, lambda *_: None, lambda *_: None)
        self.agent = agent
        self._heard_at = agent.world.now

    @property
    def silent_s(self) -> float:
        """For how long nothing was heard; one that is connected answers pings."""
        if self.agent.answers:
            self._heard_at = self.agent.world.now
            self.agent.was_heard(SILENCE.lose_after_s)
        return (self.agent.world.now - self._heard_at) / 1000

    def write(self, sent: Sequence[messages.Message]) -> None:
        """Send messages on their way."""
        for message in sent:
            self.agent.down(message)  # type: ignore[arg-type]  # these agents take messages

    def renew(self) -> None:
        """Break the connection: the agent introduces itself anew."""
        if self.agent.connection is not None:
            self.agent.disconnect()

    async def shut_down(self, *, kill: bool) -> None:
        """The machine is switched off when it has ended what runs there, or later, when somebody gets there."""
        world, agent = self.agent.world, self.agent
        self.write([messages.Shutdown(kill)])
        world.after(world.delay(1_000, 10_000), lambda: agent.lose_power(for_good=True))


class PlayedFleet(FleetEngine):
    """The real engine; only the lines are played."""

    def _link(self, _name: str, reach: Reach) -> AgentLink:
        assert isinstance(reach, PlayedReach)
        return PlayedLink(reach.agent)

    def introduce(self, name: str, said: Introduction) -> None:
        """An agent has connected."""
        self._introduce(name, said.inventory, said.results)

    def hear(self, name: str, message: messages.ToDaemon) -> None:
        """An agent says something."""
        self._hear(name, message)

    def look(self) -> None:
        """Look how all machines stand."""
        self._look_at_all()

    def instances(self) -> dict[InstanceId, MachineId]:
        """The instances that exist, and where."""
        here = {machine.id for machine in self.machines} | self._machines.unclaimed
        return {one: machine for machine in here for one in self._machines.instances_on(machine)}


class Fleet(Engine):
    """The machines, and the engine of the daemon that lives."""

    engine_type: type[PlayedFleet] = PlayedFleet

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.members: dict[str, FleetAgent] = {}
        self.drained: dict[str, int | None] = {}
        #: What each attempt was started from; a message has less.
        self.orders: dict[AttemptToken, StartAttempt] = {}
        self.added = 0
        self.real = self._begin()

    def _begin(self) -> PlayedFleet:
        world = self.world
        stock = SharedStock(read_objects=dict)  # All machines reach the object store.
        settings = FleetSettings(silence=SILENCE, stock=stock, clock_s=lambda: world.now / 1000)
        files = AttemptDirectory(NOWHERE)
        return self.engine_type(self._sink(), files, 1, settings)

    def _sink(self) -> Sink:
        if not hasattr(self.world, "daemon"):
            return lambda _: None  # The world is being made.
        daemon, generation = self.world.daemon, self.world.daemon.generation
        return lambda report: daemon.report(report) if daemon.generation == generation else None

    # Machines -------------------------------------------------------------------------------------------------

    def add_host(self) -> None:
        """All the machines that there are at first."""
        for _ in range(self.world.rng.choice(COUNTS)):
            self.add_machine()

    def add_machine(self) -> None:
        """One more machine; the first ones are of all sizes."""
        name = f"m{self.added}"
        size = SIZES[self.added] if self.added < len(SIZES) else self.world.rng.choice(SIZES)
        self.added += 1
        machine = a_machine(MachineId(PREFIX + name), size)
        agent = self.world.parts.agent(self.world, machine)
        assert isinstance(agent, FleetAgent)
        agent.name, agent.address = name, f"10.0.{self.added // 250}.{self.added % 250 + 1}"
        self.members[name] = self.agents[machine.id] = agent
        if self.world.daemon.alive:
            self.real.add(name, PlayedReach(agent))
        self.world.after(self.world.delay(0, 500), agent.connect)

    def has(self, agent: FleetAgent) -> bool:
        """Whether an agent's machine belongs to the fleet (still)."""
        return self.members.get(agent.name) is agent

    def remove(self, name: str) -> None:
        """A machine is taken out of the fleet while its jobs run."""
        self.world.note(name, "is removed")
        self.world.disturbances += 1
        agent = self.members[name]
        self.drained.pop(name, None)
        if self.world.daemon.alive:
            asyncio.run(self.real.remove(name))
        else:
            agent.lose_power(for_good=True)
        del self.members[name]

    def drain(self, name: str, deadline_at: int | None) -> None:
        """A machine is to go; with a deadline it does."""
        self.world.note(name, "is drained until", deadline_at)
        self.world.disturbances += 1
        self.drained[name] = deadline_at
        if self.world.daemon.alive:
            self.real.drain(name, deadline_at)

    def resume(self, name: str) -> None:
        """A machine is to stay after all."""
        if name in self.drained and name in self.members:
            del self.drained[name]
            if self.world.daemon.alive:
                self.real.resume(name)

    def say_provided(self, name: str, provider: Provider) -> None:
        """The provider of a machine says something else than before; a new daemon hears it anew."""
        if self.world.daemon.alive and name in self.members and name not in self.drained:
            self.world.note("provider of", name, "says", provider)
            self.world.disturbances += 1
            self.real.provided(name, provider)

    def heal_all(self) -> None:
        """Every line is whole, and every machine that lives takes attempts."""
        for name, agent in self.members.items():
            agent.heal()
            self.resume(name)
            self.say_provided(name, Provider.LISTED)
            if not agent.is_dead:
                agent.boot()

    # What the daemon asks -------------------------------------------------------------------------------------

    def on_daemon_started(self) -> None:
        """A new engine takes over what the store knows; machines are added before or after that."""
        self.real = self._begin()
        steps: list[Callable[[], None]] = [self._adopt, self._add_all]
        self.world.rng.shuffle(steps)
        for step in steps:
            step()
        for agent in self.agents.values():
            agent.connection = None
            self.world.after(self.world.delay(0, 500), agent.connect)
        self._look()

    def _add_all(self) -> None:
        for name, agent in self.members.items():
            self.real.add(name, PlayedReach(agent))
            if name in self.drained:
                self.real.drain(name, self.drained[name])

    def _adopt(self) -> None:
        state = self.world.daemon.state
        attempts = {token: job.attempt for token, job in state.attempts.items() if job.attempt is not None}
        self.real.adopt(
            Holdings(
                list(state.environments.values()),
                list(state.instances.values()),
                {token: attempt.instance for token, attempt in attempts.items()},
                list(state.machines.values()),
                {token: attempt.task_id for token, attempt in attempts.items()},
                frozenset(
                    token
                    for token, each in attempts.items()
                    if stops_alone(state, state.attempts[token], each)
                ),
            )
        )

    def _look(self) -> None:
        self.real.look()
        self.world.after(LOOK_MS, self.world.daemon.for_this_process(self._look))

    def offers(self, environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """What the real engine offers."""
        return self.real.offers(environment)

    def carry_out(self, instructions: list[Instruction]) -> None:
        """Let the real engine do these."""
        own: list[Instruction] = []
        for instruction in instructions:
            self.world.note("  ->", instruction)
            if isinstance(instruction, POST_COMMIT_TASKS):
                self.world.post_commit_tasks.carry_out(instruction)
                continue
            if isinstance(instruction, StartAttempt):
                self.orders[instruction.token] = instruction
            own.append(instruction)
        self.real.carry_out(own)

    # What agents say ------------------------------------------------------------------------------------------

    def on_report(self, agent: Agent, report: Any) -> None:
        """Let the real engine hear an agent."""
        assert isinstance(agent, FleetAgent)
        if not self.has(agent):
            return
        if isinstance(report, Introduction):
            self.agents[agent.machine.id] = agent
            self.world.disturbances += 1
            self.real.introduce(agent.name, report)
        else:
            self.real.hear(agent.name, report)

    def on_repeated(self, agent: Agent, report: Any) -> None:
        """A message comes once more, late, if there is somebody to hear it."""
        if self.world.daemon.alive and not isinstance(report, Introduction):
            self.on_report(agent, report)

    def instances(self) -> dict[InstanceId, MachineId]:
        """The instances that exist, and where."""
        return self.real.instances()

    def lasting_machines(self) -> set[MachineId]:
        """Every machine of the fleet is remembered, by the last id that its agent gave: perhaps one before it died."""
        known = self.world.daemon.state.machines.values()
        remembered = {machine.id for machine in known if machine.facts.get(NAME_FACT) in self.members}
        return remembered | {agent.machine.id for agent in self.members.values()}
