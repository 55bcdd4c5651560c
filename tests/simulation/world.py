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

from tests.simulation.clients import Clients
from tests.simulation.daemon import Daemon
from tests.simulation.gpus import check_devices_of, check_fences, check_growth
from tests.simulation.invariants import (
    check_arrays,
    check_backlog,
    check_deadlines,
    check_dependencies,
    check_dependency_failures,
    check_explained,
    check_occupancy,
    check_settled,
    check_stored_jobs,
)
from tests.simulation.machines import HOST, Agent, Engine
from tests.simulation.objects import Objects
from tests.simulation.store import BrokenPromise, FakeStore
from tests.simulation.taking_away import (
    Claimed,
    check_claims,
    check_free_interruptions,
    check_ledger,
    check_limits,
    check_notices,
)
from windfall.accounting.prices import Rates
from windfall.control.changes import Changes
from windfall.control.events import AttemptExited, AttemptLost
from windfall.control.instructions import StartAttempt
from windfall.control.state import Rules
from windfall.jobs.attempts import StopCause
from windfall.jobs.ids import AttemptToken, JobId, MachineId, split_child
from windfall.jobs.states import RUNNING, SUCCEEDED
from windfall.scheduling.snapshot import SchedulingRules

RULES = Rules(
    SchedulingRules(reserve_after_ms=5_000, idle_after_ms=8_000),
    grace_s=3.0,
    training_grace_s=5.0,
    notice_s=4.0,
    checkpoint_root="s3://simulated/checkpoints",
    rates=Rates(usd_gpu_hour=720.0, usd_vcpu_hour=72.0),
)
STEPS = 80
#: How long the world may take to come to rest once nothing goes wrong any more.
CALM_MS = 3_600_000
ENDLESS_MS = 100 * CALM_MS


@dataclass(frozen=True, slots=True)
class Parts:
    """What a world is made of; a test puts a faulty part in to see that it is found."""

    store: type[FakeStore] = FakeStore
    agent: type[Agent] = Agent
    daemon: type[Daemon] = Daemon


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
        self.store = parts.store()
        self.engine = Engine(self)
        self.daemon = parts.daemon(self)
        self.clients = Clients(self)

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
        return ENDLESS_MS if self.faults and self.rng.random() < 0.06 else self.delay(0, 15_000)

    def exit_code_of(self, token: AttemptToken) -> int:
        """How a job ends by itself."""
        return self.rng.choice((0, 0, 0, 0, 1, 7, 137))

    # What processes do ----------------------------------------------------------------------------------------

    def process_started(self, agent: Agent, start: StartAttempt) -> None:
        """A process begins: no other of its job may live, and its place must be its own."""
        token, machine = start.token, agent.machine
        job_id = token.partition("#")[0]
        self.note("  process", token, "starts on", machine.id, start.gpu_ids)
        for other, (where, _) in self.processes.items():
            if other.partition("#")[0] == job_id:
                raise BrokenPromise(f"{token} starts on {machine.id} while {other} runs on {where}")
        check_devices_of(self, machine, start)
        if token in self.ran:
            raise BrokenPromise(f"{token} runs a second time")
        check_dependencies(self.store, JobId(job_id))
        self.ran.add(token)
        self.began.add(token)
        self.processes[token] = (machine.id, start)
        used = self.engine.used_on(machine.id)
        if not used.fits_in(machine.total):
            raise BrokenPromise(f"{machine.id} has {machine.total} and its processes use {used}")

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
        check_deadlines(self.daemon.state)
        check_notices(self.daemon.state)
        check_claims(self)

    def check_stored(self, changes: Changes) -> None:
        """What must hold when a round is durable: the store and the memory agree, and all that waits has a reason."""
        check_stored_jobs(self.daemon.state, self.store, changes)
        for job in changes.jobs.values():
            check_limits(self.daemon.state, job)
            check_free_interruptions(job)
            check_growth(job)
            if job.state is RUNNING and job.attempts[-1].token not in self.began:
                raise BrokenPromise(f"said to run and never started: {job.story()}")
        check_explained(self.daemon.state, changes, self.daemon.offers(), self.now)

    def check_acknowledged(self) -> None:
        """No submission that was answered is lost."""
        for job_id, size in self.acknowledged.items():
            if job_id in self.store.purged:
                continue
            job = self.store.jobs.get(job_id)
            if job is None or job.submission.array_size != size:
                raise BrokenPromise(f"job {job_id} was acknowledged and is lost")

    def check_forgotten(self, token: AttemptToken, result: AttemptExited | AttemptLost) -> None:
        """A result may be forgotten only when the store has the attempt's end; a success counts once."""
        job = self.store.jobs.get(JobId(token.partition("#")[0]))
        if token in self.clients.deleted:
            return
        attempt = next((a for a in job.attempts if a.token == token), None) if job is not None else None
        if job is None or attempt is None or attempt.stopped_at is None:
            raise BrokenPromise(f"the agent is to forget {result}, and the store does not know how it ended")
        ended_itself = attempt.stop_cause in (None, StopCause.INTERRUPTED, StopCause.BUDGET)
        if attempt.exit_code == 0 and ended_itself and job.state is not SUCCEEDED:
            raise BrokenPromise(f"{token} exited with 0 and the job is {job.state}: {job.story()}")

    # Misfortune -----------------------------------------------------------------------------------------------

    def misfortune(self) -> None:
        """Something may go wrong somewhere."""
        if self.fault(0.03):
            self.daemon.crash()
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
    world = World(seed, parts or Parts(), tell)
    try:
        _live(world, steps)
        _calm_down(world)
    except Exception as error:
        raise BrokenPromise(
            f"seed {seed}: {type(error).__name__}: {error} (replay with: make sim SEED={seed})"
        ) from error
    attempts = sum(len(job.attempts) for job in world.store.jobs.values())
    return Outcome(seed, len(world.store.jobs), attempts, world.daemon.generation, world.events)


def _live(world: World, steps: int) -> None:
    world.daemon.start()
    world.engine.add_host()
    world.clients.declare()
    world.run_for(500)
    for _ in range(steps):
        if world.rng.random() < 0.45:
            world.clients.act()
        world.misfortune()
        world.run_for(world.delay(10, 2500))


def _calm_down(world: World) -> None:
    """Nothing goes wrong any more: everything must come to an end, or say why it cannot."""
    world.faults = False
    world.engine.trouble = False
    world.engine.heal_all()
    world.note("nothing goes wrong any more")
    world.run_for(15_000)
    _check_reconciled(world)
    world.clients.enable_everything()
    end = world.now + CALM_MS
    patience = world.now + 120_000
    while world.now < end:
        world.run_for(5_000)
        if world.now > patience:
            world.clients.terminate_endless()
            patience += 120_000
        if check_settled(world.daemon.state, world.daemon.offers(), world.now):
            break
    else:
        stuck = [job.story() for job in world.daemon.state.jobs.values()]
        raise BrokenPromise(f"after an hour without a fault these have not ended: {stuck}")
    world.run_for(20_000)
    _check_rest(world)


def _check_reconciled(world: World) -> None:
    """All have spoken with one another again: what is said to run runs, and what was to stop has stopped."""
    known = {token for agent in world.engine.agents.values() for token in agent.journal}
    for token, job in world.daemon.state.attempts.items():
        attempt = job.attempt
        if job.state is RUNNING and token not in known:
            raise BrokenPromise(f"said to run, and no agent knows of it: {job.story()}")
        over_at = max(attempt.stop_at or 0, attempt.deadline_at or 0) if attempt is not None else 0
        if over_at and world.now - over_at > 14_000:
            raise BrokenPromise(f"was told to stop at {attempt.stop_at} and still runs: {job.story()}")


def _check_rest(world: World) -> None:
    world.check_acknowledged()
    if world.processes:
        raise BrokenPromise(f"processes without a job: {sorted(world.processes)}")
    for agent in world.engine.agents.values():
        if agent.machine_alive and agent.journal:
            raise BrokenPromise(f"{agent.machine.id} was never told to forget {sorted(agent.journal)}")
    leaked = [instance for instance in world.engine.places if instance not in world.daemon.state.instances]
    if leaked:
        raise BrokenPromise(f"nobody will ever terminate {leaked}")
    ghosts = [instance for instance in world.daemon.state.instances if instance not in world.engine.places]
    if ghosts:
        raise BrokenPromise(f"the daemon counts on {ghosts}, which do not exist")
    check_dependency_failures(world.store)
    known = {HOST, *(instance.machine for instance in world.daemon.state.instances.values())}
    unowned = (set(world.daemon.state.machines) | set(world.store.small["machines"])) - known
    if unowned:
        raise BrokenPromise(f"nobody has an instance on {sorted(unowned)} any more, and they are remembered")
    for job in world.store.jobs.values():
        parent, _ = split_child(job.id)
        check_ledger(job, world.rules.rates)
        if job.finished and any(attempt.stopped_at is None for attempt in job.attempts):
            raise BrokenPromise(f"finished with an open attempt: {job.story()}")
        if not job.finished and parent not in world.daemon.state.jobs:
            raise BrokenPromise(f"live in the store and not in memory: {job.story()}")
