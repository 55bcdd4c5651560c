"""How honest expected ends are: worlds are played to their end with true lengths, and asked on the way.

    python -m bench.ends [PREDICTIONS]

A world is a cluster with kinds of jobs whose lengths are log-normal, of the gamma distribution, or of two modes, and of
which one or many earlier runs are known; jobs keep arriving, some of them on spot capacity that is taken away. The
predictor sees what a daemon sees: records and earlier runs. Written: how many ends were in the ranges claimed.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp

from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import Offer
from windfall.control.events import (
    CreateComputeEnvironment,
    CreateJobQueue,
    Event,
    RegisterJobDefinition,
    SubmitJob,
)
from windfall.control.ports import Loaded
from windfall.control.reactor import handle
from windfall.control.round import Round
from windfall.control.state import State
from windfall.forecast.copies import Copied
from windfall.forecast.playing import Assumptions, Playing
from windfall.forecast.ranges import EndRange, expected_ends, stays_s
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, JobDefinition
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.images import HOST_IMAGE
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy

START = 1_700_000_000_000
MINUTE_MS = 60_000
PREDICTIONS, PLAYS = 1_000, 60
_QUEUE = QueueName("queue")

Length = Callable[[], float]


@dataclass(slots=True)
class Score:
    """How many ends were asked for, were claimed, and were in their ranges."""

    asked: int = 0
    claimed: int = 0
    in_half: int = 0
    in_most: int = 0
    #: Widths of the wide ranges, as parts of the time until the end.
    widths: list[float] = field(default_factory=list)

    @property
    def share_in_half(self) -> float:
        """The share of ends in the 50 % ranges."""
        return self.in_half / max(1, self.claimed)

    @property
    def share_in_most(self) -> float:
        """The share of ends in the 90 % ranges."""
        return self.in_most / max(1, self.claimed)

    def add(self, claimed: EndRange, end_at: int, now: int) -> None:
        """Note how a claim turned out."""
        self.claimed += 1
        self.in_half += claimed.half[0] <= end_at <= claimed.half[1]
        self.in_most += claimed.most[0] <= end_at <= claimed.most[1]
        self.widths.append((claimed.most[1] - claimed.most[0]) / max(1, end_at - now))


def _kind_of_lengths(rng: random.Random) -> Length:
    middle, spread = exp(rng.uniform(4.5, 8.0)), rng.choice((0.1, 0.3, 0.6))
    shape = rng.random()
    if shape < 0.5:
        return lambda: middle * exp(spread * rng.gauss(0, 1))
    if shape < 0.8:
        return lambda: middle * rng.gammavariate(1 / spread**2, spread**2)
    return lambda: middle * (rng.choice((1.0, 3.0)) + 0.1 * rng.gauss(0, 1))


class World:
    """One cluster, its kinds of jobs, and the truth."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        spot = rng.random() < 0.3
        provisioning = Provisioning.SPOT if spot else Provisioning.EC2
        environment = ComputeEnvironment(EnvironmentName("cluster"), provisioning, 0, 10_000)
        self.offers = {environment.name: (Offer("big", Resources(8, 65_536), rng.randint(2, 6)),)}
        kinds = rng.randint(2, 4)
        self.lengths = [_kind_of_lengths(rng) for _ in range(kinds)]
        self.runs = [
            tuple(max(1.0, length()) for _ in range(rng.choice((1, 3, 8, 30)))) for length in self.lengths
        ]
        self.kinds: dict[JobId, int] = {}
        state, round_ = State(), Round(START)
        container = ContainerSpec(HOST_IMAGE, Resources(2, 1024), ("true",))
        handle(state, CreateComputeEnvironment(environment), round_)
        handle(state, CreateJobQueue(JobQueue(_QUEUE, 1, (environment.name,))), round_)
        handle(state, RegisterJobDefinition(JobDefinition("work", 0, container)), round_)
        arrivals = tuple(sorted((self._arrival(number) for number in range(40)), key=lambda each: each[0]))
        self.truth = Playing(
            state,
            START,
            Assumptions(
                self.offers,
                lambda job, _beyond_s: max(1.0, self.lengths[self.kinds[job.id]]()),
                arrivals=arrivals,
                stays_s=lambda age_s: stays_s(age_s, rng.random()),
            ),
        )

    def _arrival(self, number: int) -> tuple[int, Event]:
        job_id = JobId(f"job-{number}")
        self.kinds[job_id] = self.rng.randrange(len(self.lengths))
        overrides = ContainerOverrides(vcpus=self.rng.choice((1, 2, 4)))
        at = START + (0 if number < 12 else int(self.rng.uniform(0, 120) * MINUTE_MS))
        retry = RetryStrategy(10)
        return at, SubmitJob(
            job_id, f"kind-{self.kinds[job_id]}", _QUEUE, "work", overrides=overrides, retry=retry
        )

    def copied(self) -> Copied:
        """What a daemon would know at this moment."""
        state = self.truth.state

        def records() -> Loaded:
            return copy.deepcopy(
                Loaded(
                    environments=list(state.environments.values()),
                    queues=list(state.queues.values()),
                    definitions=[it for revisions in state.definitions.values() for it in revisions.values()],
                    instances=list(state.instances.values()),
                    machines=list(state.machines.values()),
                    jobs=list(state.jobs.values()),
                    last_order=state.last_order,
                )
            )

        left = {name: tuple(self.truth.offers_left().get(name, ())) for name in self.offers}
        live: list[Job] = list(state.jobs.values())
        runs = {job.id: self.runs[self.kinds[job.id]] for job in live}
        return Copied(now=self.truth.now, records=records, rules=state.rules, offers=left, runs=runs)


def measure(predictions: int, first_seed: int = 0, plays: int = PLAYS) -> Score:
    """Ask until so many ends have been claimed."""
    score, seed = Score(), first_seed
    while score.claimed < predictions:
        world = World(seed)
        seed += 1
        asked = []
        for at in sorted(world.rng.uniform(1, 150) for _ in range(3)):
            until = START + int(at * MINUTE_MS)
            world.truth.play(lambda played, until=until: played.now >= until)
            if world.truth.state.jobs:
                copied = world.copied()
                asked.append(
                    (copied.now, set(world.truth.state.jobs), expected_ends(world.rng.random, plays, copied))
                )
        fates = world.truth.play().fates()
        for now, live, ranges in asked:
            score.asked += len(live)
            for job_id, claimed in ranges.ends.items():
                end_at = fates[job_id].end_at
                if end_at is not None:
                    score.add(claimed, end_at, now)
    return score


def main() -> int:
    """Measure, and say how many ends were where they were said to be."""
    score = measure(int(sys.argv[1]) if len(sys.argv) > 1 else PREDICTIONS)
    middle = sorted(score.widths)[len(score.widths) // 2]
    print(
        f"{score.claimed:,} ends claimed of {score.asked:,} asked: {score.share_in_half:.1%} in their 50 % ranges,"
        f" {score.share_in_most:.1%} in their 90 % ranges; a 90 % range is {middle:.0%} of the time left wide (median)"
    )
    return 0 if 0.85 <= score.share_in_most <= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
