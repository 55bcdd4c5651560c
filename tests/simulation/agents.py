"""Simulated agents with their processes.

An agent keeps a journal that survives it: intents, processes and results, until told to forget. Processes survive
the agent, not the machine. Knows nothing of jobs but the id inside of a token; asserts what no agent must ever see:
a second process of one job, a token that runs twice, one device used by two processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.gpus import TOO_SMALL, devices_of
from tests.simulation.objects import Work
from windfall.capacity.machines import Machine
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptLost,
    AttemptProgressed,
    AttemptStarted,
    DevicesChanged,
)
from windfall.control.instructions import (
    ForgetAttempt,
    Instruction,
    InterruptAttempt,
    StartAttempt,
    StopAttempt,
)
from windfall.jobs.ids import AttemptToken, MachineId
from windfall.jobs.resources import Resources

if TYPE_CHECKING:
    from tests.simulation.world import World

HOST = MachineId("host")


def a_machine(machine_id: MachineId, size: Resources) -> Machine:
    """A machine with as many simulated devices as its size says."""
    return Machine(machine_id, size, devices_of(machine_id, int(size.gpus)))


@dataclass(slots=True)
class Entry:
    """What an agent's journal has of one attempt."""

    start: StartAttempt
    started_at: int | None = None
    result: AttemptExited | AttemptLost | None = None
    stopping: bool = False
    #: When the process is killed at the latest, once it has notice.
    kill_at: int | None = None
    #: What it has done so far and keeps in the object store, if it keeps anything.
    work: Work | None = None


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
            if self.connection is connection:
                self.world.engine.on_report(self, report)

        self.world.at(connection.up_at, arrive)
        if not isinstance(report, AgentConnected | DevicesChanged) and self.world.fault(0.15):
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
        elif isinstance(instruction, InterruptAttempt):
            self.on_interrupt(instruction)
        elif isinstance(instruction, ForgetAttempt):
            self.on_forget(instruction)

    def on_start(self, start: StartAttempt) -> None:
        """Take an attempt on, or repeat what is known of it."""
        known = self.journal.get(start.token)
        if known is None:
            entry = self.journal[start.token] = Entry(start)
            longest_ms = 300 if start.staging is None else 3000
            self.world.after(self.world.delay(0, longest_ms), lambda: self.spawn(start.token, entry))
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

    def on_interrupt(self, notice: InterruptAttempt) -> None:
        """Tell a process that it must go; most save and leave, some end well, some hear nothing and are killed."""
        entry = self.journal.get(notice.token)
        if entry is None:
            self._up(AttemptLost(notice.token, self.world.now))
        elif entry.result is not None:
            self._up(entry.result)
        elif entry.started_at is None:
            self.end(
                notice.token, AttemptExited(notice.token, self.world.now, None, "interrupted before it began")
            )
        elif entry.kill_at is None or notice.deadline_at < entry.kill_at:
            first = entry.kill_at is None
            entry.kill_at = notice.deadline_at
            kill_at = max(self.world.now, notice.deadline_at)
            self.world.at(kill_at, lambda: self.exit(notice.token, entry, 137))
            code = self.world.rng.choice((143, 143, 143, 1, 0, None))
            if first and code is not None:
                self.world.after(
                    self.world.delay(0, kill_at - self.world.now),
                    lambda: self.exit(notice.token, entry, code, saved=True),
                )

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
        prepared_at = None if entry.start.staging is None else self.world.now
        self._up(AttemptStarted(token, entry.started_at, self.isolation, prepared_at))
        code, run_ms = self.world.exit_code_of(token), self.world.run_ms()
        if entry.start.staging is not None and entry.start.staging.checkpoints is not None:
            entry.work = self.world.objects.restore(entry.start, self.world.now, run_ms)
            run_ms = entry.work.left_ms
            self._up(AttemptProgressed(token, self.world.now, restored=entry.work.restored))
            self.world.after(self.world.delay(200, 3000), lambda: self.save(token, entry))
        self.world.after(run_ms, lambda: self.exit(token, entry, code))

    def save(self, token: AttemptToken, entry: Entry) -> None:
        """A checkpoint is committed while the process runs, and another one will be."""
        if self.journal.get(token) is not entry or entry.result is not None or entry.work is None:
            return
        mark = self.world.objects.commit(entry.work, self.world.now)
        if self.alive:
            self._up(AttemptProgressed(token, self.world.now, checkpoint=mark))
        self.world.after(self.world.delay(500, 4000), lambda: self.save(token, entry))

    def exit(self, token: AttemptToken, entry: Entry, code: int, *, saved: bool = False) -> None:
        """A process ends by itself or because of a signal, unless it has died with its machine or its agent."""
        if self.journal.get(token) is not entry or entry.result is not None:
            return
        self.world.process_ended(token)
        mark = None
        if saved and entry.work is not None:
            mark = self.world.objects.commit(entry.work, self.world.now)
        exited_at = None if entry.start.staging is None else self.world.now
        exited = AttemptExited(
            token,
            self.world.now,
            code,
            None,
            entry.started_at,
            self.isolation,
            exited_at=exited_at,
            checkpoint=mark,
            diagnosis=TOO_SMALL if code == 1 and entry.start.gpu_ids else None,
        )
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
