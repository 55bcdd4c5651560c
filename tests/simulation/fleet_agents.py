"""Simulated agents of a fleet: each on a machine of its own, which a cut line may part from the daemon.

A line that is cut does not break: what is on its way is held up, and arrives late if the line comes to life again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.agents import Agent, Connection, Process
from windfall.agent import events, messages
from windfall.agent.alone import Heard
from windfall.agent.events import AgentAction
from windfall.agent.gpus import GpuDevice as AgentsGpu
from windfall.control.events import AttemptProgressed
from windfall.jobs.ids import AttemptToken, MachineId

if TYPE_CHECKING:
    from tests.simulation.fleet_worlds import FleetWorld
    from tests.simulation.fleets import Fleet

#: What the engine puts before the name that an agent gives its machine.
PREFIX = "hosts-"


@dataclass(frozen=True, slots=True)
class Introduction:
    """All that an agent says when it connects."""

    inventory: messages.Inventory
    results: list[messages.Result]


@dataclass(slots=True)
class FleetAgent(Agent):
    """One agent after another on one machine of a fleet."""

    name: str = ""
    address: str = ""
    #: Whether nothing passes between it and the daemon.
    is_cut: bool = False
    #: What arrives when the line comes to life again.
    held_up: list[tuple[Connection, Callable[[], None]]] = field(default_factory=list)
    #: Whether it is never switched on again.
    is_dead: bool = False
    renewals: int = 0
    #: What of it the daemon has heard last; the next agent on the machine knows it too.
    heard: Heard | None = None

    @property
    def fleet(self) -> Fleet:
        """The engine that it belongs to."""
        return cast("Fleet", self.world.engine)

    @property
    def answers(self) -> bool:
        """Whether the daemon would have an answer if it asked now."""
        return self.connection is not None and self.alive and self.machine_alive and not self.is_cut

    # The line -------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Reach the daemon, unless the line is cut, and say all that is known."""
        daemon = self.world.daemon
        up = self.alive and self.machine_alive and daemon.alive and not self.is_cut
        if self.connection is not None or not up or not self.fleet.has(self):
            return
        self.connection = Connection(daemon.generation, self.world.now, self.world.now)
        stories = self.state.stories.values()
        machine = self.machine
        inventory = messages.Inventory(
            self.name,
            1,
            machine.total.vcpus,
            machine.total.memory_mib,
            [AgentsGpu(**asdict(gpu)) for gpu in machine.gpus],
            [],
            "",
            [],
            [story.status() for story in stories],
            machine_id=machine.id.removeprefix(PREFIX),
            keeps_standbys=True,
            address=self.address,
        )
        results = [story.result for story in stories if story.result is not None]
        self._up(Introduction(inventory, results))

    def _up(self, report: Any) -> None:
        """Send a message; what the played processes tell in the core's words is put into the agent's."""
        if isinstance(report, AttemptProgressed):
            report = messages.Progressed(
                report.token, report.at, restored=report.restored, checkpoint=report.checkpoint
            )
        super(FleetAgent, self)._up(report)

    def arrive(self, connection: Connection, action: Callable[[], None]) -> None:
        """Something has come over a connection, or waits until the line is whole again."""
        if self.is_cut:
            self.held_up.append((connection, action))
        else:
            super(FleetAgent, self).arrive(connection, action)

    def cut(self, duration_ms: int) -> None:
        """Nothing passes for a while."""
        if not self.is_cut:
            self.world.note("the line to", self.name, "is cut for", duration_ms)
            self.is_cut = True
            self.world.after(duration_ms, self.heal)

    def heal(self) -> None:
        """The line is whole again: either all that was under way arrives now, or both begin anew."""
        if not self.is_cut:
            return
        self.is_cut = False
        held_up, self.held_up = self.held_up, []
        survives = self.world.rng.random() < 0.5
        self.world.note("the line to", self.name, "is whole again", "and has survived" if survives else "")
        if survives and self.connection is not None:
            for connection, action in held_up:
                self.arrive(connection, action)
        else:
            self.disconnect()

    @property
    def longest_restart_ms(self) -> int:
        """A warden starts the next agent at once, which matters to attempts that must stop in time."""
        return 400 if any(story.intended.stops_alone for story in self.journal.values()) else 4000

    def was_heard(self, lose_after_s: float) -> None:
        """The daemon says that it hears it."""
        self.heard = Heard(self.world.now, lose_after_s)

    def watch_alone(self, token: str) -> None:
        """End an attempt in time if the daemon is not heard, as alone.py does."""
        story, heard, now = self.journal.get(token), self.heard, self.world.now
        if story is None or not story.live or heard is None or not self.machine_alive:
            return
        if self.alive and token in self.state.stories:
            if now >= heard.end_at and story.departed is None:
                self.react(messages.Stop(token, 0.0))
            elif now >= heard.notice_at:
                self.react(events.Deserted(token, heard.end_at))
        due_ms = (heard.notice_at if now < heard.notice_at else heard.end_at) - now
        self.world.after(max(50, due_ms), lambda: self.watch_alone(token))

    # What the daemon says -------------------------------------------------------------------------------------

    def on_instruction(self, instruction: Any) -> None:
        """Do as a message says."""
        if isinstance(instruction, messages.Start):
            self.on_start(self.fleet.orders[AttemptToken(instruction.token)], instruction)
            if instruction.stops_alone:
                self.watch_alone(instruction.token)
            return
        if isinstance(instruction, messages.Forget):
            for token in instruction.tokens:
                story = self.state.stories.get(token)
                if story is not None and story.result is not None:
                    self.world.check_forgotten(AttemptToken(token))
        if not isinstance(instruction, messages.Rebalance):
            self.react(instruction)

    def carry_out(self, action: AgentAction) -> None:
        """Do as the reactor says; what is to be told is a message already."""
        if isinstance(action, events.Tell):
            self._up(action.message)
        else:
            super(FleetAgent, self).carry_out(action)

    def lie(self, token: AttemptToken) -> None:
        """Say of an attempt on another machine that it has ended well."""
        self.world.note(self.name, "claims the end of", token)
        self._up(messages.Exited(token, 0, None, self.world.now, self.world.now, ""))

    # What happens to the machine ------------------------------------------------------------------------------

    def exit(self, token: str, process: Process, code: int, *, saved: bool = False) -> None:
        """A process ends; the world remembers how, whoever hears of it."""
        ran = process.ended is None
        super(FleetAgent, self).exit(token, process, code, saved=saved)
        if ran and process.ended is not None:
            cast("FleetWorld", self.world).note_exit(AttemptToken(token), code)

    def lose_power(self, *, for_good: bool) -> None:
        """Everything on the machine ends; it is switched on again after a while, or never."""
        if not self.machine_alive:
            return
        self.lose_machine()
        self.is_dead = for_good
        if not for_good:
            self.world.after(self.world.delay(500, 30_000), self.boot)

    def boot(self) -> None:
        """The machine is there again, perhaps without what was on its disk."""
        if self.machine_alive or self.is_dead:
            return
        if self.world.fault(0.3):
            self.world.note("the disk of", self.name, "is lost, and the journal with it")
            self.world.ran.difference_update(AttemptToken(token) for token in self.journal)
            self.journal.clear()
            self.processes.clear()
            self.renewals += 1
            self.machine = replace(self.machine, id=MachineId(f"{PREFIX}{self.name}-{self.renewals}"))
        super(FleetAgent, self).boot()
