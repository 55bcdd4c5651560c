"""Simulated machines with agents and processes, and the engine that launches them and speaks to their agents.

An agent keeps a journal that survives it: intents, processes and results, until told to forget. Processes survive
the agent, not the machine. Knows nothing of jobs but the id inside of a token; asserts what no agent must ever see:
a second process of one job, a token that runs twice, one device used by two processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.store import BrokenPromise
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import GpuDevice, Machine, Offer
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptLost,
    AttemptStarted,
    InstanceLaunchFailed,
    InstanceLost,
    InstanceReady,
)
from windfall.control.instructions import (
    ForgetAttempt,
    Instruction,
    LaunchInstance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.jobs.ids import AttemptToken, InstanceId, MachineId
from windfall.jobs.resources import NOTHING, Resources

if TYPE_CHECKING:
    from tests.simulation.world import World

HOST = MachineId("host")
HOST_SIZE = Resources(4, 8192, 2)
CLOUD_SIZE = Resources(4, 8192, 1)


def a_machine(machine_id: MachineId, size: Resources) -> Machine:
    """A machine with as many simulated devices as its size says."""
    gpus = tuple(GpuDevice(f"{machine_id}-gpu{n}", "simulated", simulated=True) for n in range(size.gpus))
    return Machine(machine_id, size, gpus)


@dataclass(slots=True)
class Entry:
    """What an agent's journal has of one attempt."""

    start: StartAttempt
    started_at: int | None = None
    result: AttemptExited | AttemptLost | None = None
    stopping: bool = False


@dataclass(slots=True)
class Connection:
    """One connection between the daemon and an agent: in order both ways until it breaks."""

    generation: int
    #: When the last message of each direction arrives: none overtakes another.
    up_at: int = 0
    down_at: int = 0


@dataclass(slots=True)
class Agent:
    """One agent on one machine."""

    world: World
    machine: Machine
    journal: dict[AttemptToken, Entry] = field(default_factory=dict)
    alive: bool = True
    machine_alive: bool = True
    connection: Connection | None = None

    @property
    def isolation(self) -> str | None:
        """What it says about isolation; an agent may say nothing."""
        return "simulated" if self.machine.id == HOST else None

    # The connection -------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Reach the daemon, if both are up, and say all that is known."""
        daemon = self.world.daemon
        if self.connection is not None or not (self.alive and self.machine_alive and daemon.alive):
            return
        self.connection = Connection(daemon.generation, self.world.now, self.world.now)
        running = [
            AttemptStarted(token, entry.started_at, self.isolation)
            for token, entry in self.journal.items()
            if entry.started_at is not None and entry.result is None
        ]
        preparing = [t for t, e in self.journal.items() if e.started_at is None and e.result is None]
        ended = [entry.result for entry in self.journal.values() if entry.result is not None]
        connected = AgentConnected(self.machine, tuple(running), tuple(preparing), tuple(ended))
        self._up(connected)

    def disconnect(self) -> None:
        """Lose the connection and all that is on its way; try again later."""
        if self.connection is not None:
            self.connection = None
            self.world.note("connection of", self.machine.id, "breaks")
        self.world.after(self.world.delay(0, 3000), self.connect)

    def _up(self, report: Any) -> None:
        """Send a report; it is lost if the connection breaks before it arrives."""
        connection = self.connection
        if connection is None:
            return
        connection.up_at = max(connection.up_at, self.world.now + self.world.delay(0, 200))

        def arrive() -> None:
            if self.connection is connection:
                self.world.engine.on_report(self, report)

        self.world.at(connection.up_at, arrive)
        if not isinstance(report, AgentConnected) and self.world.fault(0.15):
            # The same again, late, whatever came in between.
            again = connection.up_at + self.world.delay(0, 6000)
            self.world.at(again, lambda: self.world.daemon.report(report))

    def down(self, instruction: Instruction) -> None:
        """Take an instruction on its way; it is lost if the connection breaks before it arrives."""
        connection = self.connection
        if connection is None:
            return None
        connection.down_at = max(connection.down_at, self.world.now + self.world.delay(0, 200))

        if self.world.fault(0.02):
            return self.disconnect()  # at the worst moment

        def arrive() -> None:
            if self.connection is connection and self.alive:
                self.on_instruction(instruction)

        self.world.at(connection.down_at, arrive)
        if self.world.fault(0.03):
            self.world.at(connection.down_at, arrive)
        return None

    # What the daemon asks -------------------------------------------------------------------------------------

    def on_instruction(self, instruction: Instruction) -> None:
        """Do as told; a repetition is answered, not done again."""
        if isinstance(instruction, StartAttempt):
            self.on_start(instruction)
        elif isinstance(instruction, StopAttempt):
            self.on_stop(instruction)
        elif isinstance(instruction, ForgetAttempt):
            self.on_forget(instruction)

    def on_start(self, start: StartAttempt) -> None:
        """Take an attempt on, or repeat what is known of it."""
        known = self.journal.get(start.token)
        if known is None:
            entry = self.journal[start.token] = Entry(start)
            self.world.after(self.world.delay(0, 300), lambda: self.spawn(start.token, entry))
        elif known.result is not None:
            self._up(known.result)
        elif known.started_at is not None:
            self._up(AttemptStarted(start.token, known.started_at, self.isolation))

    def on_stop(self, stop: StopAttempt) -> None:
        """Begin to stop a process; for what does not run there is an answer all the same."""
        entry = self.journal.get(stop.token)
        if entry is None:
            self._up(AttemptLost(stop.token, self.world.now))
        elif entry.result is not None:
            self._up(entry.result)
        elif entry.started_at is None:
            self.end(
                stop.token, AttemptExited(stop.token, self.world.now, None, "stopped before it was started")
            )
        elif not entry.stopping:
            entry.stopping = True
            grace_ms = int(stop.grace_s * 1000)
            code = self.world.rng.choice((143, 143, 137, 0))
            self.world.after(self.world.delay(0, grace_ms), lambda: self.exit(stop.token, entry, code))

    def on_forget(self, forget: ForgetAttempt) -> None:
        """Drop a result that the daemon says is durable."""
        entry = self.journal.get(forget.token)
        if entry is not None and entry.result is not None:
            self.world.check_forgotten(forget.token, entry.result)
            del self.journal[forget.token]

    # Processes ------------------------------------------------------------------------------------------------

    def spawn(self, token: AttemptToken, entry: Entry) -> None:
        """Start the process of an attempt that was taken on."""
        if self.journal.get(token) is not entry or entry.result is not None:
            return
        if not (self.alive and self.machine_alive):
            return
        if self.world.fault(0.05):
            self.end(
                token, AttemptExited(token, self.world.now, None, "CannotStartContainerError: simulated")
            )
            return
        entry.started_at = self.world.now
        self.world.process_started(self, entry.start)
        self._up(AttemptStarted(token, entry.started_at, self.isolation))
        code = self.world.exit_code_of(token)
        self.world.after(self.world.run_ms(), lambda: self.exit(token, entry, code))

    def exit(self, token: AttemptToken, entry: Entry, code: int) -> None:
        """A process ends by itself or because of a signal, unless it has died with its machine or its agent."""
        if self.journal.get(token) is not entry or entry.result is not None:
            return
        self.world.process_ended(token)
        exited = AttemptExited(token, self.world.now, code, None, entry.started_at, self.isolation)
        if not self.alive and self.world.fault(0.2):
            self.end(token, AttemptLost(token, self.world.now))  # nobody wrote its exit code down
        else:
            self.end(token, exited)

    def end(self, token: AttemptToken, result: AttemptExited | AttemptLost) -> None:
        """Write a result down and report it."""
        self.journal[token].result = result
        if self.alive:
            self._up(result)

    # Misfortune -----------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The agent dies: its processes run on, what it was about to start is never started."""
        self.world.note("agent of", self.machine.id, "dies")
        self.alive, self.connection = False, None
        if self.world.fault(0.3):
            self._lose_pages()
        for token, entry in self.journal.items():
            if entry.started_at is None and entry.result is None:
                entry.result = AttemptLost(token, self.world.now)
        self.world.after(self.world.delay(100, 4000), self.restart)

    def _lose_pages(self) -> None:
        """Some processes die with the agent, and nobody ever knew of them."""
        for token in [t for t, e in self.journal.items() if e.started_at is not None and e.result is None]:
            if self.world.rng.random() < 0.5:
                self.world.note("nobody knows any more of", token)
                self.world.process_ended(token)
                self.world.ran.discard(token)
                del self.journal[token]

    def restart(self) -> None:
        """Come back with the journal."""
        if self.machine_alive and not self.alive:
            self.alive = True
            self.connect()

    def lose_machine(self) -> None:
        """Everything on the machine ends at once."""
        self.world.note("machine", self.machine.id, "is lost")
        self.alive = self.machine_alive = False
        self.connection = None
        for token, entry in self.journal.items():
            if entry.started_at is not None and entry.result is None:
                self.world.process_ended(token)
            if entry.result is None:
                entry.result = AttemptLost(token, self.world.now)


class Engine:
    """Launches machines for cloud environments, shares the host among the others, and remembers what was lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.agents: dict[MachineId, Agent] = {}
        #: Where each instance that exists is.
        self.places: dict[InstanceId, MachineId] = {}
        self.lost: list[InstanceId] = []
        #: Launches that are under way.
        self.coming: set[InstanceId] = set()
        #: Which agent spoke of an attempt last, for instructions that name no instance.
        self.spoke: dict[AttemptToken, Agent] = {}
        self.trouble = False

    def add_host(self) -> None:
        """The machine that is always there."""
        self.agents[HOST] = self.world.parts.agent(self.world, a_machine(HOST, HOST_SIZE))
        self.agents[HOST].connect()

    def offers(self, environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """A share of the host, or machines of its own."""
        if environment.name.startswith("cloud"):
            return (Offer("cloud.large", CLOUD_SIZE, 3 - len(self.places) if self.trouble else None),)
        return (Offer("host", HOST_SIZE, 1, HOST),)

    def carry_out(self, instructions: list[Instruction]) -> None:
        """Begin to do these."""
        for instruction in instructions:
            self.world.note("  ->", instruction)
            if isinstance(instruction, LaunchInstance):
                self._launch(instruction)
            elif isinstance(instruction, TerminateInstance):
                self._terminate(instruction.instance)
            else:
                agent = self._agent_for(instruction)
                if agent is not None:
                    agent.down(instruction)

    def _agent_for(self, instruction: StartAttempt | StopAttempt | ForgetAttempt) -> Agent | None:
        if instruction.instance is not None:
            machine = self.places.get(instruction.instance)
            return None if machine is None else self.agents[machine]
        return self.spoke.get(instruction.token)

    def _launch(self, launch: LaunchInstance) -> None:
        if launch.instance in self.places:
            self._ready(launch.instance)
        elif launch.instance not in self.coming:
            self.coming.add(launch.instance)
            self.world.after(self.world.delay(50, 3000), lambda: self._launched(launch))

    def _launched(self, launch: LaunchInstance) -> None:
        if launch.instance not in self.coming:
            return
        self.coming.discard(launch.instance)
        if self.world.fault(0.2):
            self.world.daemon.report(InstanceLaunchFailed(launch.instance, "simulated shortage"))
            return
        machine = HOST
        if launch.environment.startswith("cloud"):
            machine = MachineId(f"m-{launch.instance}")
            self.agents[machine] = self.world.parts.agent(self.world, a_machine(machine, CLOUD_SIZE))
            self.agents[machine].connect()
        self.places[launch.instance] = machine
        self._ready(launch.instance)

    def _ready(self, instance: InstanceId) -> None:
        self.world.daemon.report(InstanceReady(instance, self.agents[self.places[instance]].machine))

    def _terminate(self, instance: InstanceId) -> None:
        self.coming.discard(instance)
        machine = self.places.pop(instance, None)
        if machine is not None and machine != HOST:
            if any(self.world.processes_on(machine)):
                raise BrokenPromise(f"instance {instance} was terminated while a job ran on it")
            self.agents[machine].lose_machine()

    def lose(self, instance: InstanceId) -> None:
        """An instance goes away by itself; a shared host reboots, and all its instances with it."""
        machine = self.places[instance]
        self.agents[machine].lose_machine()
        gone = [one for one, place in self.places.items() if place == machine]
        for one in gone:
            del self.places[one]
            self.lost.append(one)
            self.world.after(self.world.delay(0, 2000), self._telling_loss(one))
        if machine == HOST:
            self.world.after(self.world.delay(500, 3000), self._reboot_host)

    def _telling_loss(self, instance: InstanceId) -> Callable[[], None]:
        return lambda: self.world.daemon.report(InstanceLost(instance))

    def _reboot_host(self) -> None:
        host = self.agents[HOST]
        if host.machine_alive:
            return
        if self.world.fault(0.5):
            self.world.note("the disk of", HOST, "is lost, and the journal with it")
            self.world.ran.difference_update(host.journal)
            host.journal.clear()
        host.machine_alive = host.alive = True
        host.connect()

    def on_report(self, agent: Agent, report: Any) -> None:
        """Pass on what an agent says."""
        if isinstance(report, AgentConnected):
            for part in (*report.running, *report.ended):
                self.spoke[part.token] = agent
        else:
            self.spoke[report.token] = agent
        self.world.daemon.report(report)

    def on_daemon_started(self) -> None:
        """Say again what exists and what was lost: the reports may have died with the daemon."""
        self.spoke.clear()
        for instance in self.lost:
            self.world.daemon.report(InstanceLost(instance))
        for instance in self.places:
            self._ready(instance)
        for agent in self.agents.values():
            agent.connection = None
            self.world.after(self.world.delay(0, 500), agent.connect)

    def used_on(self, machine: MachineId) -> Resources:
        """What the processes on a machine really use."""
        used = NOTHING
        for start in self.world.processes_on(machine):
            used = used + start.resources
        return used
