"""A world whose queue has a fair-share policy, and how its jobs pass the time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.builders import TestWorld, a_definition, a_job, a_machine, a_world
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.policies import FairShare, SchedulingPolicy, ShareWeight
from windfall.control import events
from windfall.control.commands.policies import CreateSchedulingPolicy
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.scheduling.fair_share import Amount

POLICY = "fair"


def a_policy(decay_s: int = 0, reservation: int = 0, **weights: float) -> FairShare:
    """A fair-share policy; `A_` in a name stands for the prefix `A*`."""
    entries = tuple(ShareWeight(name.replace("_", "*"), weight) for name, weight in weights.items())
    return FairShare(decay_s, reservation, entries)


def a_fair_world(
    policy: FairShare | None = None, *, vcpus: float = 8, gpus: int = 0, max_vcpus: int = 64, **rules: Any
) -> TestWorld:
    """A host behind a queue with a fair-share policy; its instance is ready and nothing has run."""
    world = a_world(a_machine(vcpus=vcpus, gpus=gpus), **rules)
    name = EnvironmentName("environment")
    # With a minimum the instance comes and stays without a job.
    environment = ComputeEnvironment(name, Provisioning.EC2, 1, max_vcpus)
    world.happens(
        CreateSchedulingPolicy(SchedulingPolicy(POLICY, policy or a_policy())),
        events.CreateComputeEnvironment(environment),
        events.CreateJobQueue(JobQueue(QueueName("queue"), 1, (name,), policy=POLICY)),
        events.RegisterJobDefinition(a_definition()),
    )
    return world.ready()


class PassingTime:
    """Lets attempts of a world end after random times, and counts what each share had."""

    def __init__(self, world: TestWorld, seed: int, longest_s: int) -> None:
        self.world, self.longest_s = world, longest_s
        self._random = random.Random(seed)
        self._ends: dict[str, int] = {}
        #: vCPU-seconds and GPU-seconds.
        self.vcpu_s: Counter[str] = Counter()
        self.gpu_s: Counter[str] = Counter()

    def step(self, seconds: int) -> None:
        """Some time passes, and those end whose time has come."""
        world = self.world
        for token, job in world.state.attempts.items():
            share = job.submission.share or ""
            self.vcpu_s[share] += job.needs.vcpus * seconds
            self.gpu_s[share] += job.needs.gpus * seconds
            if token not in self._ends:
                self._ends[token] = world.now + self._random.randint(1, self.longest_s) * 1000
        world.now += seconds * 1000
        over = [token for token in world.state.attempts if self._ends[token] <= world.now]
        for token in over:
            del self._ends[token]
        ends = (events.AttemptExited(token, world.now, 0, None, world.now) for token in over)
        world.happens(events.TimePassed(), *ends)

    def measure(self, steps: int, seconds: int) -> None:
        """Forget what was counted and count anew for so many steps."""
        self.vcpu_s.clear()
        self.gpu_s.clear()
        for _ in range(steps):
            self.step(seconds)


def fills(world: TestWorld, *shares: str, vcpus: float = 1, gpus: int = 0, jobs: int = 10_000) -> None:
    """Each of these shares has more waiting than will ever start."""
    for number, share in enumerate(shares):
        job = a_job(f"{share}-{number}").under(share).array(jobs).vcpus(vcpus)
        world.submits(job.gpus(gpus) if gpus else job)


def held(world: TestWorld, share: str) -> Amount:
    """What a share holds, by its meter."""
    return world.state.shares.of(QueueName("queue"))[share].held
