"""Simulated agents: the real reactor, journal and recovery of windfall.agent over processes that are only played.

A journal survives its agent, and processes do too; neither survives the machine, but for what is on its disk. Asserts
what no agent must ever do: start a second process of one job, run a token twice, use one device for two processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.gpus import TOO_SMALL, devices_of
from tests.simulation.objects import Work
from tests.simulation.store import BrokenPromise
from windfall.agent import events
from windfall.agent.events import AgentAction, AgentEvent
from windfall.agent.journal import tell_on
from windfall.agent.messages import Exited, Inventory, Lost, Rebalance, Start
from windfall.agent.reactor import AgentState, on_event
from windfall.agent.records import BegunAnew, Forgotten, Intended, Spawned, Spawning, Written
from windfall.agent.stages import Fate, Stage, Story, fate_of
from windfall.agent.stopping import plan_notice
from windfall.capacity.machines import Machine
from windfall.control.events import (
    AgentConnected,
    AttemptProgressed,
    DevicesChanged,
)
from windfall.control.instructions import (
    ForgetAttempt,
    Instruction,
    StartAttempt,
)
from windfall.control.look_ahead import KEEPS_STANDBYS
from windfall.engines.translation import to_connected, to_messages, to_report
from windfall.jobs.ids import AttemptToken, MachineId
from windfall.jobs.resources import Resources

if TYPE_CHECKING:
    from tests.simulation.world import World

HOST = MachineId("host")


def a_machine(machine_id: MachineId, size: Resources) -> Machine:
    """A machine with as many simulated devices as its size says."""
    return Machine(machine_id, size, devices_of(machine_id, int(size.gpus)), {KEEPS_STANDBYS: "yes"})


@dataclass(slots=True)
class Process:
    """A process of an attempt, as the machine has it."""

    instruction: StartAttempt
    #: What it has done so far and keeps in the object store, if it keeps anything.
    work: Work | None = None
    #: How it ended, and whether it had saved before: what the warden or the kernel still tells.
    ended: tuple[int, int] | None = None
    saved: bool = False
    #: Whether nobody ever told how it ended.
    untold: bool = False


@dataclass(slots=True)
class Connection:
    """One connection between the daemon and an agent: in order both ways until it breaks."""

    generation: int
    #: When the last message of each direction arrives: none overtakes another.
    up_at: int = 0
    down_at: int = 0


@dataclass(slots=True)
class Agent:
    """One agent after another on one machine."""

    world: World
    machine: Machine
    #: What is written on the disk.
    journal: dict[str, Story] = field(default_factory=dict)
    #: What the agent that lives has in memory.
    state: AgentState = field(default_factory=AgentState)
    #: The processes that were started here, by attempt.
    processes: dict[str, Process] = field(default_factory=dict)
    #: What the daemon asked for: a process is started from this.
    instructions: dict[str, StartAttempt] = field(default_factory=dict)
    alive: bool = True
    machine_alive: bool = True
    connection: Connection | None = None
    #: Counts agents: whatever an earlier one was about to do is void.
    generation: int = 0

    @property
    def longest_restart_ms(self) -> int:
        """How long it takes at most until the next agent is there."""
        return 4000

    @property
    def isolation(self) -> str:
        """What it says about isolation; an agent may say nothing."""
        return "simulated" if self.machine.id == HOST else ""

    # The connection -------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Reach the daemon, if both are up, and say all that is known."""
        daemon = self.world.daemon
        if self.connection is not None or not (self.alive and self.machine_alive and daemon.alive):
            return
        self.connection = Connection(daemon.generation, self.world.now, self.world.now)
        stories = self.state.stories.values()
        inventory = Inventory("", 0, 0.0, 0, [], [], "", [], [story.status() for story in stories])
        results = [story.result for story in stories if story.result is not None]
        self._up(to_connected(self.machine, inventory, results))

    def tell_devices(self) -> None:
        """Say how its devices are; without a connection that is said when there is one again."""
        self._up(DevicesChanged(self.machine.id, self.machine.gpus))

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
            self.arrive(connection, lambda: self.world.engine.on_report(self, report))

        self.world.at(connection.up_at, arrive)
        if not isinstance(report, AgentConnected | DevicesChanged) and self.world.fault(0.15):
            # The same again, late, whatever came in between.
            again = connection.up_at + self.world.delay(0, 6000)
            self.world.at(again, lambda: self.world.engine.on_repeated(self, report))

    def arrive(self, connection: Connection, action: Callable[[], None]) -> None:
        """Something has come over a connection; it is lost if that has broken meanwhile."""
        if self.connection is connection:
            action()

    def down(self, instruction: Instruction) -> None:
        """Take an instruction on its way; it is lost if the connection breaks before it arrives."""
        connection = self.connection
        if connection is None:
            return None
        connection.down_at = max(connection.down_at, self.world.now + self.world.delay(0, 200))

        if self.world.fault(0.02):
            return self.disconnect()  # at the worst moment

        def arrive() -> None:
            self.arrive(connection, lambda: self.on_instruction(instruction) if self.alive else None)

        self.world.at(connection.down_at, arrive)
        if self.world.fault(0.03):
            self.world.at(connection.down_at, arrive)
        return None

    # What the daemon asks -------------------------------------------------------------------------------------

    def on_instruction(self, instruction: Instruction) -> None:
        """Do as told, by the messages that a real agent would get."""
        if isinstance(instruction, ForgetAttempt):
            story = self.state.stories.get(instruction.token)
            if story is not None and story.result is not None:
                self.world.check_forgotten(instruction.token)
        for message in to_messages([instruction], str):
            if isinstance(message, Start):
                assert isinstance(instruction, StartAttempt)
                self.on_start(instruction, message)
            elif not isinstance(message, Rebalance):  # That changes nothing.
                self.react(message)  # type: ignore[arg-type]  # every other message is an event

    def on_start(self, instruction: StartAttempt, start: Start) -> None:
        """Take an attempt on, or repeat what is known of it."""
        story = self.state.stories.get(start.token)
        if story is None:
            intended = Intended(
                start.token,
                start.task_id,
                start.log_path,
                [],
                start.memory_mib,
                start.vcpus,
                sandboxed=False,
                at=self.world.now,
                gpu_ids=start.gpu_ids,
                stops_alone=start.stops_alone,
            )
            story = Story(intended, order=start)
            self.instructions[start.token] = instruction
        self.react(events.Ordered(start.token, story))

    # The reactor ----------------------------------------------------------------------------------------------

    def react(self, event: AgentEvent) -> None:
        """Write down what follows from an event, and do it."""
        reaction = on_event(self.state, event, self.world.now)
        for record in reaction.records:
            self.write(record)
        for action in reaction.actions:
            self.carry_out(action)

    def write(self, record: Written | Forgotten) -> None:
        """Add a line to the journal; a result that is written stands for ever."""
        tell_on(self.journal, record)

    def carry_out(self, action: AgentAction) -> None:
        """Do as the reactor says."""
        if isinstance(action, events.Tell):
            self._up(to_report(action.message))  # type: ignore[arg-type]  # only what the daemon understands
        elif isinstance(action, events.Remove):
            self.later(self.world.delay(0, 100), lambda: self.react(events.Removed(action.tokens)))
        elif isinstance(action, events.StageIn):
            self.later(self.world.delay(0, 3000), lambda: self.bring(action.token))
        elif isinstance(action, events.Launch):
            self.later(self.world.delay(0, 300), lambda: self.launch(action.token))
        elif isinstance(action, events.StageOut):
            self.save_what_is_left(action.token)
        elif isinstance(action, events.Drop):
            self.later(self.world.delay(0, 200), lambda: self.react(events.LetGo(action.token)))
        elif isinstance(action, events.EndWithin):
            self.stop(action.token, action.grace_s)
        elif isinstance(action, events.GiveNotice):
            self.give_notice(action.token)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something after a while, if this agent still lives."""
        generation = self.generation
        self.world.after(delay_ms, lambda: action() if self.generation == generation else None)

    # What happens to attempts ---------------------------------------------------------------------------------

    def bring(self, token: str) -> None:
        """Everything that a staged attempt needs has been brought."""
        self.react(events.Brought(token, 1, self.world.now))

    def launch(self, token: str) -> None:
        """Begin to start the process of an attempt that was taken on."""
        story = self.state.stories.get(token)
        if story is None or not story.unstarted:
            return  # It was withdrawn.
        if self.world.fault(0.05):
            self.react(events.Failed(token, "CannotStartContainerError: simulated", self.world.now))
            return
        self.react(events.TakenByLauncher(token))
        self.write(Spawning(token, 0))
        self.later(self.world.delay(0, 5), lambda: self.spawn(token))

    def spawn(self, token: str) -> None:
        """Start the process."""
        instruction = self.instructions[token]
        process = self.processes[token] = Process(instruction)
        self.world.process_started(self, instruction)
        spawned = Spawned(token, 1, 0, self.world.now, self.isolation)
        self.write(spawned)
        code, run_ms = self.world.exit_code_of(instruction.token), self.world.run_ms()
        self.react(spawned)
        if instruction.staging is not None and instruction.staging.checkpoints is not None:
            process.work = self.world.objects.restore(instruction, self.world.now, run_ms)
            run_ms = process.work.left_ms
            self._up(AttemptProgressed(instruction.token, self.world.now, restored=process.work.restored))
            self.world.after(self.world.delay(200, 3000), lambda: self.checkpoint(token, process))
        self.world.after(run_ms, lambda: self.exit(token, process, code))
        story = self.state.stories[token]
        if story.stage is Stage.ENDING:
            self.stop(token, 0.0)
        elif story.stage is Stage.NOTICED:
            self.give_notice(token)

    def checkpoint(self, token: str, process: Process) -> None:
        """A checkpoint is committed while the process runs, and another one will be."""
        if process.ended is not None or process.work is None or self.processes.get(token) is not process:
            return
        mark = self.world.objects.commit(process.work, self.world.now)
        if self.alive:
            self._up(AttemptProgressed(process.instruction.token, self.world.now, checkpoint=mark))
        self.world.after(self.world.delay(500, 4000), lambda: self.checkpoint(token, process))

    def stop(self, token: str, grace_s: float) -> None:
        """Ask a process to end; it does so within the grace, or is killed."""
        process = self.processes.get(token)
        if process is None or process.ended is not None:
            return  # It is told when it is there.
        code = self.world.rng.choice((143, 143, 137, 0))
        self.world.after(self.world.delay(0, int(grace_s * 1000)), lambda: self.exit(token, process, code))

    def give_notice(self, token: str) -> None:
        """Tell a process that it must go; most save and leave, some end well, some hear nothing and are killed."""
        story, process = self.state.stories[token], self.processes.get(token)
        assert story.noticed is not None
        if process is None or process.ended is not None:
            return  # It is told when it is there.
        kill_at = max(self.world.now, plan_notice(story.noticed, staged=story.accepted is not None).kill_at)
        self.later(kill_at - self.world.now, lambda: self.exit(token, process, 137))
        code = self.world.rng.choice((143, 143, 143, 1, 0, None))
        if code is not None:
            self.world.after(
                self.world.delay(0, kill_at - self.world.now),
                lambda: self.exit(token, process, code, saved=True),
            )

    def exit(self, token: str, process: Process, code: int, *, saved: bool = False) -> None:
        """A process ends by itself or because of a signal, unless it has died with its machine or its agent."""
        if process.ended is not None or self.processes.get(token) is not process:
            return
        self.world.process_ended(process.instruction.token)
        process.ended, process.saved = (code, self.world.now), saved
        # Nobody may have written down how a process ended that no agent saw.
        process.untold = not self.alive and self.world.fault(0.2)
        if self.alive:
            self.collect(token)

    def collect(self, token: str) -> None:
        """Learn how a process has ended."""
        process, story = self.processes[token], self.state.stories[token]
        assert process.ended is not None
        assert story.spawned is not None
        code, at = process.ended
        result: Exited | Lost = Lost(token, self.world.now)
        if not process.untold:
            failed_on_gpu = code == 1 and bool(process.instruction.gpu_ids)
            result = Exited(
                token,
                code,
                None,
                story.spawned.at,
                at,
                self.isolation,
                diagnosis=TOO_SMALL if failed_on_gpu else None,
            )
        self.react(events.Left(token, result))

    def save_what_is_left(self, token: str) -> None:
        """Store what a process left; that may take until the deadline that its attempt has."""
        story = self.state.stories[token]
        longest_ms = 1000
        if story.noticed is not None:
            longest_ms = max(0, min(longest_ms, story.noticed.deadline_at - self.world.now))
        if story.hurried is not None:
            longest_ms = min(longest_ms, int(story.hurried[1] * 1000))
        self.later(self.world.delay(0, longest_ms), lambda: self.saved(token))

    def saved(self, token: str) -> None:
        """What a process left is stored."""
        story = self.state.stories.get(token)
        if story is None or story.stage is not Stage.STAGING_OUT:
            return  # It was told to hurry, and the first one was quicker.
        process, departed = self.processes[token], story.departed
        assert departed is not None
        if isinstance(departed, Lost):
            self.react(events.Saved(token, departed))
            return
        mark = None
        if process.saved and process.work is not None and not story.losing:
            mark = self.world.objects.commit(process.work, departed.at)
        result = msgspec.structs.replace(departed, at=self.world.now, exited_at=departed.at, checkpoint=mark)
        self.react(events.Saved(token, result))

    # Misfortune -----------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The agent dies: its processes run on, and its journal is all that the next one knows."""
        self.world.note("agent of", self.machine.id, "dies")
        self._die()
        if self.world.fault(0.3):
            self._lose_pages()
        self.world.after(self.world.delay(100, self.longest_restart_ms), self.restart)

    def _die(self) -> None:
        self.alive, self.connection = False, None
        self.generation += 1
        self.state = AgentState()

    def _lose_pages(self) -> None:
        """Some processes die with the agent, and nobody ever knew of them."""
        for token in [token for token, process in self.processes.items() if process.ended is None]:
            if self.world.rng.random() < 0.5:
                self.world.note("nobody knows any more of", token)
                self.world.process_ended(self.processes[token].instruction.token)
                self.world.ran.discard(AttemptToken(token))
                del self.journal[token], self.processes[token]

    def restart(self) -> None:
        """Come back with the journal."""
        if self.machine_alive and not self.alive:
            self.alive = True
            self.recover(same_boot=True)
            self.connect()

    def recover(self, *, same_boot: bool) -> None:
        """Take over what the journal tells, as a real agent decides it."""
        for written in list(self.journal.values()):
            story = Story(written.intended)
            for record in written.records():
                if record is not written.intended:
                    story.add(record)
            self._compare(story, written)
            self.state.stories[story.token] = story
        for token, story in list(self.state.stories.items()):
            fate = fate_of(story, same_boot=same_boot, damaged=False, boot_known=True)
            if fate is Fate.SAVED:
                self.carry_out(events.StageOut(token))
            elif fate is Fate.LOST:
                self.react(events.Saved(token, Lost(token, self.world.now)))
            elif fate is Fate.ADOPTED:
                self._adopt(token)
            elif fate is not Fate.ENDED:
                # What was being started is searched for; here a process is in the journal as soon as it exists.
                self._begin_anew(token)

    def _compare(self, story: Story, written: Story) -> None:
        """A journal that is written anew must tell the same."""
        same = (story.stage, story.result) == (written.stage, written.result)
        # Of what has ended only the result is kept.
        if not same or (story.live and story.departed != written.departed):
            raise BrokenPromise(f"the journal tells {written}, and written anew {story}")

    def _adopt(self, token: str) -> None:
        story, process = self.state.stories[token], self.processes[token]
        if process.ended is not None:
            self.collect(token)
        elif story.noticed is not None:
            self.give_notice(token)

    def _begin_anew(self, token: str) -> None:
        story = self.state.stories[token]
        if story.accepted is None:
            # The daemon sees that it is not known here.
            del self.state.stories[token]
            self.write(Forgotten([token]))
            return
        story.order = story.accepted
        story.add(BegunAnew())
        self.carry_out(events.StageIn(token))

    def lose_machine(self) -> None:
        """Everything on the machine ends at once; what is on its disk may be there again."""
        self.world.note("machine", self.machine.id, "is lost")
        self._die()
        self.machine_alive = False
        for process in self.processes.values():
            if process.ended is None:
                self.world.process_ended(process.instruction.token)
                process.ended, process.untold = (137, self.world.now), True

    def boot(self) -> None:
        """The machine is there again."""
        self.machine_alive = self.alive = True
        self.recover(same_boot=False)
        self.connect()
