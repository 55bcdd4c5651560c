"""The daemon's loop in simulated time: the real reactor, a commit that takes a while, and crashes in every gap.

Turns as windfall.daemon.loop does: drain, react, commit, answer, act.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.store import BrokenPromise
from windfall.control.changes import Changes
from windfall.control.reactor import TICK_MS, react
from windfall.control.rebuild import instructions_after_restart, rebuild
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.ids import EnvironmentName

if TYPE_CHECKING:
    from tests.simulation.world import World
    from windfall.capacity.machines import Offer

Answer = Callable[[Any], None]


class Daemon:
    """One daemon process after another, over one store."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = False
        #: Counts processes: whatever was on its way to an earlier one is void.
        self.generation = 0
        self.state = State(world.rules)
        self.inbound: list[tuple[Any, Answer | None]] = []
        self.committing: Changes | None = None
        self.woken = False

    # What reaches it ------------------------------------------------------------------------------------------

    def report(self, report: Any) -> None:
        """Take a report, unless nobody listens."""
        self.execute(report, None)

    def execute(self, command: Any, answer: Answer | None) -> None:
        """Take a command; a caller of a dead daemon gets no answer."""
        if self.alive:
            self.inbound.append((command, answer))
            self.wake()

    def wake(self) -> None:
        """Have a round soon, unless one is being committed: that one looks again when it is done."""
        if not self.woken and self.committing is None and self.alive:
            self.woken = True
            self.world.after(self.world.delay(0, 5), self.for_this_process(self.turn))

    def for_this_process(self, action: Callable[[], None]) -> Callable[[], None]:
        """An action that is void once this process has died."""
        generation = self.generation
        return lambda: action() if self.generation == generation else None

    # The loop -------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One round, up to the commit."""
        self.woken = False
        if self.committing is not None or not self.alive:
            return
        batch, self.inbound = self.inbound, []
        round_ = Round(self.world.now)
        replies = self.react(batch, round_)
        if batch or round_.changes:
            self.world.check_memory()
        self.committing = self.world.store.frozen(round_.changes)
        self.on_reacted(replies, round_)
        delay = self.world.commit_ms() if round_.changes else 0
        if round_.changes and self.world.fault(0.02):
            self.world.after(self.world.rng.randint(0, delay), self.for_this_process(self.crash))
        self.world.after(delay, self.for_this_process(lambda: self.committed(replies, round_)))

    def on_reacted(self, replies: list[tuple[Answer, Any]], round_: Round) -> None:
        """What is done before the commit: nothing. A faulty daemon overrides this."""

    def react(self, batch: list[tuple[Any, Answer | None]], round_: Round) -> list[tuple[Answer, Any]]:
        """Let the events of a round happen."""
        for event, _ in batch:
            self.world.note(" ", event)
        happened = [(event, None) for event, _ in batch]
        replies = react(self.state, happened, lambda _: self.offers(), round_)
        answered = zip((answer for _, answer in batch), replies, strict=True)
        return [(answer, reply) for answer, reply in answered if answer is not None]

    def offers(self) -> dict[EnvironmentName, tuple[Offer, ...]]:
        """What the engine could launch for each environment."""
        return {name: self.world.engine.offers(one) for name, one in self.state.environments.items()}

    def committed(self, replies: list[tuple[Answer, Any]], round_: Round) -> None:
        """The commit is done: answer and act, unless the process dies in one of the gaps."""
        assert self.committing is not None
        if self.committing:
            self.world.store.commit(self.committing)
            self.world.check_stored(self.committing)
        self.committing = None
        if self.world.fault(0.01):
            self.world.note("daemon dies between commit and answers")
            return self.crash()
        for answer, reply in replies:
            answer(reply)
        instructions = round_.instructions
        if self.world.fault(0.01):
            done = self.world.rng.randint(0, len(instructions))
            self.world.engine.carry_out(instructions[:done])
            self.world.note("daemon dies after", done, "of", len(instructions), "instructions")
            return self.crash()
        self.world.engine.carry_out(instructions)
        if self.inbound:
            self.wake()
        return None

    def tick(self) -> None:
        """The timeout of the loop's wait, for ever."""
        self.wake()
        self.world.after(TICK_MS, self.for_this_process(self.tick))

    # Life and death -------------------------------------------------------------------------------------------

    def crash(self, longest_ms: int = 3000) -> None:
        """The process dies; a commit that was under way may or may not have been made."""
        if not self.alive:
            return
        self.world.note("daemon dies")
        self.world.disturbances += 1
        if self.committing is not None and self.world.rng.random() < 0.5:
            self.world.store.commit(self.committing)
            # Nobody was answered, and yet it was decided: a schedule may have been switched off by it.
            self.world.calendar.look(self.world.store, self.committing)
        self.world.store.crash()
        self.alive = False
        self.generation += 1
        self.inbound, self.committing, self.woken = [], None, False
        for agent in self.world.engine.agents.values():
            agent.connection = None
        self.world.after(self.world.delay(100, longest_ms), self.start)

    def start(self) -> None:
        """A new process begins from the store."""
        if self.alive:
            return
        self.world.note("daemon starts")
        self.world.check_acknowledged()
        loaded = self.world.store.load()
        self.state = rebuild(loaded, self.world.rules)
        self.world.tokens.begin(self.state)
        self.world.shares.begin(self.state, self.world.now)
        self.world.quotas.begin(self.state)
        self.world.services.begin(self.state)
        if len(self.state.jobs) != len(loaded.jobs):
            raise BrokenPromise("a job was lost between store and memory")
        self.alive = True
        self.world.check_memory()
        self.world.engine.on_daemon_started()
        self.world.engine.carry_out(instructions_after_restart(self.state))
        self.tick()
