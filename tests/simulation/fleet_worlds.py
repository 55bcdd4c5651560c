"""Simulated worlds with many machines: lines are cut, machines die, come back, lie, are drained, added and removed.

Beside the promises of every world: a superseded attempt never decides a job's state, though its process may run on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from tests.simulation.clients import ENVIRONMENTS, Clients
from tests.simulation.fleet_agents import FleetAgent
from tests.simulation.fleets import SILENCE, Fleet
from tests.simulation.gangs import submit_gang
from tests.simulation.objects import Objects, Work
from tests.simulation.store import BrokenPromise
from tests.simulation.training_gangs import submit_training_gang
from tests.simulation.world import Outcome, Parts, World, live_through
from windfall.control import events
from windfall.control.changes import Changes
from windfall.control.job_options import PARTITION
from windfall.engines.fleet.standing import Provider
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import AttemptToken, JobId
from windfall.jobs.job import Job, OnPartition
from windfall.jobs.staging import Mark
from windfall.jobs.states import SUCCEEDED

STEPS = 50
LOSE_MS = int(SILENCE.lose_after_s * 1000)
#: So many machines are always left.
FEWEST = 2


class FleetClients(Clients):
    """Callers who want a lot of machines, and leave calendars and shares to others."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.theme = None
        self.environments = {
            name: replace(environment, max_vcpus=environment.max_vcpus * 50)
            for name, environment in ENVIRONMENTS.items()
        }
        self.actions = (
            (40, self.submit_single),
            (20, self.submit_array),
            (10, self.submit_alike),
            (10, self.submit_training),
            (6, lambda: submit_gang(self)),
            (6, lambda: submit_training_gang(self)),
            (4, self.cancel),
            (5, self.terminate),
            (3, self.hold_or_release),
            (3, self.interrupt_job),
            (2, self.interrupt_instance),
        )
        self.weights = [weight for weight, _ in self.actions]

    def submit(self, command: events.SubmitJob | events.SubmitTraining, size: int | None) -> None:
        """Some jobs must not run on where the daemon is not heard."""
        if self.rng.random() < 0.3:
            command = replace(command, tags={**command.tags, PARTITION: OnPartition.STOP})
        super().submit(command, size)

    def act(self) -> None:
        """The more machines there are, the more callers."""
        fleet = cast("Fleet", self.world.engine)
        for _ in range(1 + min(3, len(fleet.members) // 20)):
            super().act()


class FencedObjects(Objects):
    """A superseded attempt may still try to write: the fence keeps it out, and nothing else may."""

    def commit(self, work: Work, now: int) -> Mark:
        """Keep what an attempt has done, unless a newer one has begun."""
        if work.fence < self.fences[work.uri]:
            mark = self.marks.get(work.uri)
            return mark if mark is not None else Mark("none", now, now, 1, 0)
        return super().commit(work, now)


class FleetWorld(World):
    """A world with many machines."""

    def __init__(self, seed: int, parts: Parts, tell: Callable[[str], None] | None) -> None:
        super().__init__(seed, parts, tell)
        self.longest_step_ms = 8_000
        self.objects = FencedObjects()
        self.crash_rate = self.rng.choice((0.5, 1.0, 1.0, 2.0))
        #: How the processes of attempts really ended.
        self.exits: dict[AttemptToken, set[int]] = {}
        #: How attempts had ended when that was first durable.
        self.ends: dict[AttemptToken, tuple[object, ...]] = {}

    @property
    def replay(self) -> str:
        """The command that shows this world again."""
        return f"make sim FLEET=1 SEED={self.seed}"

    @property
    def fleet(self) -> Fleet:
        """The engine."""
        return cast("Fleet", self.engine)

    def run_ms(self) -> int:
        """Some jobs run for longer than it takes to lose a machine."""
        return self.delay(LOSE_MS, 6 * LOSE_MS) if self.rng.random() < 0.3 else super().run_ms()

    # Promises -------------------------------------------------------------------------------------------------

    def note_exit(self, token: AttemptToken, code: int) -> None:
        """A process has ended by itself or by a signal."""
        self.exits.setdefault(token, set()).add(code)

    def may_run_beside(self, superseded: AttemptToken) -> bool:
        """Only where the store knows that the attempt counts as lost: its machine may not have heard of that.

        Never where the attempt is to stop before that, unless somebody has removed its machine.
        """
        running = self.processes.get(superseded)  # One that is only about to begin is not there yet.
        if running is not None:
            place, start = running
            if start.stops_alone and self.fleet.has(cast("FleetAgent", self.fleet.agents[place])):
                return False
        job = self.store.jobs.get(JobId(superseded.rpartition("#")[0]))
        return job is not None and any(
            one.token == superseded and one.stopped_at is not None for one in job.attempts
        )

    def check_stored(self, changes: Changes) -> None:
        """Besides all that holds in every world, ends are true and stand."""
        super().check_stored(changes)
        for job in changes.jobs.values():
            for attempt in job.attempts:
                self._check_end(job, attempt)
            last = job.attempts[-1] if job.attempts else None
            plain = not (job.is_array or job.is_gang or job.is_node)
            if plain and job.state is SUCCEEDED and (last is None or last.exit_code != 0):
                raise BrokenPromise(f"succeeded without an attempt that did: {job.story()}")

    def _check_end(self, job: Job, attempt: Attempt) -> None:
        if attempt.stopped_at is None:
            return
        end = (attempt.stopped_at, attempt.exit_code, attempt.reason)
        if self.ends.setdefault(attempt.token, end) != end:
            raise BrokenPromise(f"{attempt.token} had ended with {self.ends[attempt.token]}: {job.story()}")
        if attempt.exit_code is not None and attempt.exit_code not in self.exits.get(attempt.token, ()):
            raise BrokenPromise(
                f"{attempt.token} is said to have ended with {attempt.exit_code}, and its process did not"
            )

    # Misfortune -----------------------------------------------------------------------------------------------

    def misfortune(self) -> None:
        """Something may go wrong somewhere."""
        if self.fault(0.04):
            self.daemon.crash(longest_ms=self.rng.choice((3_000, 3_000, 3 * LOSE_MS)))
        names = [name for name, agent in self.fleet.members.items() if agent.machine_alive]
        if not names:
            return
        agent = self.fleet.members[self.rng.choice(names)]
        if self.fault(0.15):
            agent.disconnect()
        if self.fault(0.04) and agent.alive:
            agent.crash()
        if self.fault(0.15):
            self._cut(names)
        if self.fault(0.05):
            self.disturbances += 1
            agent.lose_power(for_good=len(names) > FEWEST and self.rng.random() < 0.4)
        if self.fault(0.08):
            self._drain(self.rng.choice(names), may_die=len(names) > FEWEST)
        if self.fault(0.06):
            self._doubt(self.rng.choice(names))
        if self.fault(0.02) and len(names) > FEWEST:
            self.fleet.remove(self.rng.choice(names))
        if self.fault(0.05):
            self.fleet.add_machine()
        if self.fault(0.1):
            self._lie()

    def _cut(self, names: list[str]) -> None:
        """One line or a third of them, for less or more than it takes to lose a machine."""
        count = self.rng.choice((1, 1, max(1, len(names) // 3)))
        duration_ms = self.rng.choice((self.delay(500, LOSE_MS), LOSE_MS + self.delay(500, 3 * LOSE_MS)))
        self.disturbances += 1
        for name in self.rng.sample(names, count):
            self.fleet.members[name].cut(duration_ms)

    def _drain(self, name: str, *, may_die: bool) -> None:
        agent = self.fleet.members[name]
        if self.rng.random() < 0.5:
            self.fleet.drain(name, None)
            self.after(self.delay(1_000, 30_000), lambda: self.fleet.resume(name))
            return
        deadline_at = self.now + self.delay(0, 15_000)
        self.fleet.drain(name, deadline_at)
        self.at(deadline_at, lambda: agent.lose_power(for_good=may_die) if self.faults else None)

    def _doubt(self, name: str) -> None:
        self.fleet.say_provided(name, self.rng.choice((Provider.GONE, Provider.SILENT)))
        self.after(self.delay(500, 20_000), lambda: self.fleet.say_provided(name, Provider.LISTED))

    def _lie(self) -> None:
        """A machine claims the end of an attempt that was placed on another."""
        liars = [agent for agent in self.fleet.members.values() if agent.answers]
        places = self.engine.instances()
        tokens = {
            token: places.get(job.attempt.instance)
            for token, job in self.daemon.state.attempts.items()
            if job.attempt is not None
        }
        if liars and tokens:
            liar, token = self.rng.choice(liars), self.rng.choice(list(tokens))
            if tokens[token] is not None and tokens[token] != liar.machine.id:
                liar.lie(token)


FLEET_PARTS = Parts(agent=FleetAgent, engine=Fleet, clients=FleetClients)


def run_fleet(
    seed: int,
    steps: int = STEPS,
    parts: Parts = FLEET_PARTS,
    tell: Callable[[str], None] | None = None,
) -> Outcome:
    """One world with many machines; raises BrokenPromise, with the seed, if a promise is broken."""
    return live_through(FleetWorld(seed, parts, tell), steps)
