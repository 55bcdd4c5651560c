"""The simulated world: one clock, one random number generator, and everything that happens in it in order.

`run(seed)` builds a world, lets things go wrong for a while, then lets them calm down and sees whether all that was
promised was kept. The same seed gives the same world.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.calendars import TickWatch, check_calendar
from tests.simulation.clients import Clients
from tests.simulation.coming_to_rest import CALM_MS, calm_down
from tests.simulation.daemon import Daemon
from tests.simulation.explaining import check_gates_named
from tests.simulation.gangs import check_gangs, check_node_starts
from tests.simulation.gpus import check_devices_of, check_fences, check_growth
from tests.simulation.invariants import (
    check_arrays,
    check_backlog,
    check_deadlines,
    check_dependencies,
    check_explained,
    check_occupancy,
    check_stored_jobs,
)
from tests.simulation.machines import Agent, Engine
from tests.simulation.objects import Objects
from tests.simulation.post_commit_tasks import PostCommitTasks
from tests.simulation.quota_shares import QuotaWatch
from tests.simulation.rebuilding import check_rebuilt
from tests.simulation.service_queues import ServiceWatch
from tests.simulation.shares import ShareWatch, check_shares
from tests.simulation.store import BrokenPromise, FakeStore
from tests.simulation.taking_away import (
    Claimed,
    check_claims,
    check_free_interruptions,
    check_limits,
    check_notices,
)
from tests.simulation.tokens import TokenWatch, check_tokens
from tests.simulation.training_gangs import (
    PeerWatch,
    check_budgets,
    check_ends_of_peers,
    check_peers,
    is_of_peers,
)
from windfall.accounting.prices import Rates
from windfall.aws_api.sagemaker.endings import SageMakerTexts
from windfall.control.changes import Changes
from windfall.control.instructions import StartAttempt
from windfall.control.state import Rules
from windfall.jobs.attempts import StopCause
from windfall.jobs.ids import AttemptToken, JobId, MachineId
from windfall.jobs.states import RUNNING, SUCCEEDED
from windfall.jobs.storage import StorageLayout
from windfall.scheduling.snapshot import SchedulingRules

RULES = Rules(
    SchedulingRules(reserve_after_ms=5_000, idle_after_ms=8_000, look_ahead_ms=4_000),
    grace_s=3.0,
    training_grace_s=5.0,
    notice_s=4.0,
    changeover_s=2.0,
    storage=StorageLayout("s3://simulated", serves_s3=True),
    rates=Rates(usd_gpu_hour=720.0, usd_vcpu_hour=72.0),
    event_destinations=("file",),
    aws_texts=SageMakerTexts(),
)
STEPS = 80
ENDLESS_MS = 100 * CALM_MS


@dataclass(frozen=True, slots=True)
class Parts:
    """What a world is made of; a test puts a faulty part in to see that it is found."""

    store: type[FakeStore] = FakeStore
    agent: type[Agent] = Agent
    daemon: type[Daemon] = Daemon
    engine: type[Engine] = Engine
    clients: type[Clients] = Clients


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a world that kept its promises."""

    seed: int
    jobs: int
    attempts: int
    crashes: int
    events: int


class World:
    """All that exists."""

    def __init__(self, seed: int, parts: Parts, tell: Callable[[str], None] | None) -> None:
        self.seed = seed
        self.parts = parts
        self.rng = random.Random(seed)
        self.rules = RULES
        self.tell = tell
        self.now = 1_700_000_000_000
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._entered = 0
        self.faults = True
        self.crash_rate = self.rng.choice((0.0, 0.5, 1.0, 1.0, 2.0))
        self.events = 0
        self.acknowledged: dict[JobId, int | None] = {}
        #: The processes that live, by attempt, and where. `ran` is what journals still know.
        self.processes: dict[AttemptToken, tuple[MachineId, StartAttempt]] = {}
        self.ran: set[AttemptToken] = set()
        self.began: set[AttemptToken] = set()
        #: The attempts that had a place when the last round was over.
        self.placed: set[AttemptToken] = set()
        self.objects = Objects()
        #: Jobs that others were asked to leave a place to; how often somebody meddled with what they count on.
        self.claimants: dict[JobId, Claimed] = {}
        self.disturbances = 0
        self.tokens = TokenWatch()
        self.shares = ShareWatch()
        self.quotas = QuotaWatch()
        self.services = ServiceWatch()
        self.peers = PeerWatch()
        self.calendar = TickWatch()
        self.post_commit_tasks = PostCommitTasks(self)
        self.store = parts.store()
        self.engine = parts.engine(self)
        self.daemon = parts.daemon(self)
        self.clients = parts.clients(self)
        self.longest_step_ms = 20_000 if self.clients.theme == "calendar" else 2_500

    @property
    def replay(self) -> str:
        """The command that shows this world again."""
        return f"make sim SEED={self.seed}"

    # Time -----------------------------------------------------------------------------------------------------

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Have something happen at a time; what is entered first happens first."""
        self._entered += 1
        heapq.heappush(self._agenda, (when, self._entered, action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Have something happen after a while."""
        self.at(self.now + delay_ms, action)

    def step(self) -> None:
        """Let the next thing happen."""
        when, _, action = heapq.heappop(self._agenda)
        self.now = when
        self.events += 1
        action()

    def run_for(self, duration_ms: int) -> None:
        """Let all things happen that happen within a while."""
        end = self.now + duration_ms
        while self._agenda and self._agenda[0][0] <= end:
            self.step()
        self.now = end

    def note(self, *words: Any) -> None:
        """A line of the trace, if somebody reads it."""
        if self.tell is not None:
            self.tell(
                f"{(self.now - 1_700_000_000_000) / 1000:9.3f} " + " ".join(str(word) for word in words)
            )

    # Chance ---------------------------------------------------------------------------------------------------

    def delay(self, low_ms: int, high_ms: int) -> int:
        """A while; mostly short, as most things are."""
        share = self.rng.random()
        return low_ms + int((high_ms - low_ms) * share * share * share)

    def fault(self, chance: float) -> bool:
        """Whether something goes wrong now."""
        return self.faults and self.rng.random() < chance * self.crash_rate

    def commit_ms(self) -> int:
        """How long a commit takes: sometimes the disk is busy."""
        return self.delay(1, 3000) if self.fault(0.05) else self.delay(0, 20)

    def run_ms(self) -> int:
        """How long a job runs; some never end by themselves."""
        if self.clients.theme == "alike":
            return self.delay(0, 1_500)
        return ENDLESS_MS if self.faults and self.rng.random() < 0.06 else self.delay(0, 15_000)

    def exit_code_of(self, token: AttemptToken) -> int:
        """How a job ends by itself."""
        return self.rng.choice((0, 0, 0, 0, 1, 7, 137))

    # What processes do ----------------------------------------------------------------------------------------

    def process_started(self, agent: Agent, start: StartAttempt) -> None:
        """A process begins: no other of its job may live, and its place must be its own."""
        token, machine = start.token, agent.machine
        job_id = token.rpartition("#")[0]
        self.note("  process", token, "starts on", machine.id, start.gpu_ids)
        for other, (where, _) in self.processes.items():
            if other.rpartition("#")[0] == job_id and not self.may_run_beside(other):
                raise BrokenPromise(f"{token} starts on {machine.id} while {other} runs on {where}")
        check_devices_of(self, machine, start)
        if token in self.ran:
            raise BrokenPromise(f"{token} runs a second time")
        check_dependencies(self.store, JobId(job_id))
        check_node_starts(self, token)
        self.peers.look(self, start)
        self.ran.add(token)
        self.began.add(token)
        self.processes[token] = (machine.id, start)
        used = self.engine.used_on(machine.id)
        if not used.fits_in(machine.total):
            raise BrokenPromise(f"{machine.id} has {machine.total} and its processes use {used}")

    def may_run_beside(self, superseded: AttemptToken) -> bool:
        """Whether an attempt may still run while the next one of its job does; never, where all machines answer."""
        return False

    def process_ended(self, token: AttemptToken) -> None:
        """A process is no more."""
        if self.processes.pop(token, None) is None:
            raise BrokenPromise(f"{token} ended and did not run")
        self.note("  process", token, "ends")

    def processes_on(self, machine: MachineId) -> Iterator[StartAttempt]:
        """What runs on a machine."""
        return (start for where, start in self.processes.values() if where == machine)

    # Promises -------------------------------------------------------------------------------------------------

    def check_memory(self) -> None:
        """What must hold in the daemon's memory at any time."""
        check_occupancy(self.daemon.state)
        check_fences(self.daemon.state, self.placed)
        self.placed |= self.daemon.state.attempts.keys()
        check_arrays(self.daemon.state)
        check_backlog(self.daemon.state)
        check_gangs(self.daemon.state)
        check_peers(self.daemon.state)
        check_budgets(self.daemon.state)
        check_deadlines(self.daemon.state)
        check_notices(self.daemon.state)
        check_tokens(self.daemon.state)
        check_shares(self.daemon.state)
        self.shares.look(self.daemon.state, self.now)
        self.quotas.look(self.daemon.state)
        self.tokens.look(self.daemon.state)
        self.services.look(self)
        check_calendar(self)
        check_claims(self)

    def check_stored(self, changes: Changes) -> None:
        """What must hold when a round is durable: the store and the memory agree, and all that waits has a reason."""
        check_stored_jobs(self.daemon.state, self.store, changes)
        check_ends_of_peers(self, changes.jobs)
        self.services.look_stored(changes.service_jobs)
        self.calendar.look(self.store, changes)
        for job in changes.jobs.values():
            check_limits(self.daemon.state, job)
            check_free_interruptions(job)
            check_growth(job)
            if job.state is RUNNING and job.attempts[-1].token not in self.began:
                raise BrokenPromise(f"said to run and never started: {job.story()}")
        offers = self.daemon.offers()
        check_explained(self.daemon.state, changes, offers, self.now)
        check_gates_named(self.daemon.state, changes, offers, self.now)
        if self.store.commits % 8 == 0:
            check_rebuilt(self.daemon.state, self.store)

    def check_acknowledged(self) -> None:
        """No submission that was answered is lost."""
        for job_id, size in self.acknowledged.items():
            if job_id in self.store.purged:
                continue
            job = self.store.jobs.get(job_id)
            if job is None or job.submission.array_size != size:
                raise BrokenPromise(f"job {job_id} was acknowledged and is lost")

    def check_forgotten(self, token: AttemptToken) -> None:
        """A result may be forgotten only when the store has the attempt's end; a success counts once."""
        job = self.store.jobs.get(JobId(token.rpartition("#")[0]))
        if token in self.clients.deleted or token in self.store.removed:
            return
        attempt = next((a for a in job.attempts if a.token == token), None) if job is not None else None
        if job is None or attempt is None or attempt.stopped_at is None:
            raise BrokenPromise(f"the agent is to forget {token}, and the store does not know how it ended")
        ended_itself = attempt.stop_cause in (None, StopCause.INTERRUPTED, StopCause.BUDGET)
        # A node's end is not its gang's; and that of the main one waits for the others, or is one of several.
        undecided = job.is_node or is_of_peers(job) or (job.is_gang and job.state is RUNNING)
        if attempt.exit_code == 0 and ended_itself and job.state is not SUCCEEDED and not undecided:
            raise BrokenPromise(f"{token} exited with 0 and the job is {job.state}: {job.story()}")

    # Misfortune -----------------------------------------------------------------------------------------------

    def misfortune(self) -> None:
        """Something may go wrong somewhere."""
        if self.fault(0.03):
            self.daemon.crash()
        if self.fault(0.04 if self.clients.theme == "calendar" else 0.005):
            self.daemon.crash(longest_ms=600_000)
        agents = [agent for agent in self.engine.agents.values() if agent.machine_alive]
        if agents and self.fault(0.15):
            self.rng.choice(agents).disconnect()
        if agents and self.fault(0.03):
            self.rng.choice([*agents]).crash()
        if self.engine.places and self.fault(0.02):
            self.engine.lose(self.rng.choice(list(self.engine.places)))
        if self.engine.places and self.fault(0.10):
            self.engine.give_notice(self.rng.choice(list(self.engine.places)))
        if agents and self.fault(0.08):
            self.engine.sicken_or_heal(self.rng.choice(agents))
        if self.fault(0.05):
            self.engine.trouble = not self.engine.trouble


def run(
    seed: int,
    steps: int = STEPS,
    parts: Parts | None = None,
    tell: Callable[[str], None] | None = None,
) -> Outcome:
    """One world from its beginning to its rest; raises BrokenPromise, with the seed, if one is broken."""
    return live_through(World(seed, parts or Parts(), tell), steps)


def live_through(world: World, steps: int) -> Outcome:
    """A world from its beginning to its rest."""
    seed = world.seed
    try:
        _live(world, steps)
        calm_down(world)
    except Exception as error:
        raise BrokenPromise(
            f"seed {seed}: {type(error).__name__}: {error} (replay with: {world.replay})"
        ) from error
    attempts = sum(len(job.attempts) for job in world.store.jobs.values())
    return Outcome(seed, len(world.store.jobs), attempts, world.daemon.generation, world.events)


def _live(world: World, steps: int) -> None:
    world.daemon.start()
    world.engine.add_host()
    world.clients.declare()
    world.run_for(500)
    theme = world.clients.theme
    for _ in range(steps):
        if world.rng.random() < (0.45 if theme is None else 0.7):
            world.clients.act()
        world.misfortune()
        world.run_for(world.delay(10, world.longest_step_ms))
