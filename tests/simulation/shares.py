"""A fair-share queue in the simulated world: who submits under which share, and what must hold of the meters."""

from __future__ import annotations

import random
from collections import Counter
from math import exp, isclose
from typing import TYPE_CHECKING

from tests.simulation.store import BrokenPromise
from windfall.capacity.environments import JobQueue
from windfall.capacity.policies import FairShare, SchedulingPolicy, ShareWeight
from windfall.control.commands.policies import CreateSchedulingPolicy, UpdateSchedulingPolicy
from windfall.control.share_meters import ShareMeter
from windfall.control.share_use import fair_share_view
from windfall.control.state import State
from windfall.jobs.ids import AttemptToken, EnvironmentName, QueueName
from windfall.scheduling.fair_share import NONE, Amount, amount_of

if TYPE_CHECKING:
    from tests.simulation.clients import Clients

WEIGHTS = (ShareWeight("blue", 0.5), ShareWeight("team*", 2.0))
POLICY = SchedulingPolicy("fair", FairShare(600, 0, WEIGHTS))
FAIR_QUEUE = JobQueue(
    QueueName("fair"), 1, (EnvironmentName("shared-a"), EnvironmentName("cloud-reserve")), policy=POLICY.name
)


#: What a crash may leave uncounted of one share: some seconds of all that the world has.
FORGOTTEN = 1.0


def share_in(queue: str, rng: random.Random) -> tuple[str | None, int | None]:
    """The share and the priority that a job of a queue is submitted with."""
    if queue != FAIR_QUEUE.name:
        return None, None
    return rng.choice(("blue", "green", "team1", "team2")), rng.choice((None, None, 0, 9))


def declare_policy(clients: Clients) -> None:
    """The policy exists, and keeps nothing from anybody."""
    clients.call(CreateSchedulingPolicy(POLICY))
    clients.call(UpdateSchedulingPolicy(POLICY.name, POLICY.fair_share, "{}"))


def change_policy(clients: Clients) -> None:
    """Somebody changes what the policy keeps and how long use counts."""
    fair_share = FairShare(clients.rng.choice((0, 3600)), clients.rng.choice((0, 30, 80)), WEIGHTS)
    clients.call(UpdateSchedulingPolicy(POLICY.name, fair_share, "{}"))


def check_shares(state: State) -> None:
    """What meters say that shares hold is what their attempts hold, and so for the number of their jobs."""
    held: dict[str, Amount] = {}
    for job in state.attempts.values():
        share = job.submission.share
        if share is not None and job.submission.queue == FAIR_QUEUE.name:
            held[share] = held.get(share, NONE) + amount_of(job.needs)
    jobs = Counter(
        job.submission.share
        for job in state.jobs.values()
        if job.parent is None and job.submission.queue == FAIR_QUEUE.name
    )
    meters = state.shares.of(FAIR_QUEUE.name)
    if FAIR_QUEUE.name not in state.queues:
        return  # Its jobs are on their way out.
    unknown = {share for share in (*held, *jobs) if share not in meters}
    if unknown:
        raise BrokenPromise(f"shares without a meter: {unknown}")
    for share, meter in meters.items():
        wanted = held.get(share, NONE)
        if not (
            isclose(meter.held.vcpus, wanted.vcpus) and isclose(meter.held.gpus, wanted.gpus, abs_tol=1e-9)
        ):
            raise BrokenPromise(f"share {share} holds {wanted}, its meter says {meter}")
        if meter.jobs != jobs[share]:
            raise BrokenPromise(f"share {share} has {jobs[share]} jobs, its meter says {meter}")


class ShareWatch:
    """Reckons what shares used on average from their attempts alone, round by round, and compares.

    A crash may forget what was used since the last writing; the next daemon is followed from what it has read.
    """

    def __init__(self) -> None:
        self._averages: dict[str, Amount] = {}
        self._held: dict[str, Amount] = {}
        self._windows: dict[str, int] = {}
        self._meters: dict[str, ShareMeter] = {}
        self._attempts: set[AttemptToken] = set()
        self._at = 0

    def begin(self, state: State, now: int) -> None:
        """A daemon has just read the store: it forgot little, and invented nothing."""
        self._go_on(now)
        meters = state.shares.of(FAIR_QUEUE.name)
        for share, meter in meters.items():
            known = self._averages.get(share, NONE)
            most = known.vcpus + FORGOTTEN, known.gpus + FORGOTTEN
            read = meter.average_at(now)
            if read.vcpus > most[0] or read.gpus > most[1]:
                raise BrokenPromise(f"share {share} used {known} on average, and after a restart {read}")
        self._keep(state, now)

    def look(self, state: State, now: int) -> None:
        """After a round: every meter has the average that the attempts since make."""
        self._go_on(now)
        for share, meter in state.shares.of(FAIR_QUEUE.name).items():
            if self._meters.get(share) is not meter:
                continue  # A new one has nothing to remember: the queue was deleted and made again.
            known, says = self._averages.get(share, NONE), meter.average_at(now)
            same = isclose(known.vcpus, says.vcpus, abs_tol=1e-6) and isclose(
                known.gpus, says.gpus, abs_tol=1e-6
            )
            if not same:
                raise BrokenPromise(f"share {share} used {known} on average, its meter says {says}")
        self._check_reservation(state, now)
        self._keep(state, now)

    def _check_reservation(self, state: State, now: int) -> None:
        """What starts leaves to shares that are not active what the policy keeps for them."""
        queue = state.queues.get(FAIR_QUEUE.name)
        started = [
            token
            for token in state.attempts.keys() - self._attempts
            if state.attempts[token].submission.queue == FAIR_QUEUE.name
        ]
        view = fair_share_view(state, queue, now) if queue is not None and started else None
        # GPUs are left out: what environments could have of them depends on what was just launched.
        if view is not None and view.kept.vcpus and view.held.vcpus > view.usable.vcpus + 1e-6:
            raise BrokenPromise(f"{sorted(started)} started; {view.held} is held of {view.usable}: {view}")

    def _go_on(self, now: int) -> None:
        """Let what was held since the last look be used."""
        for share, average in self._averages.items():
            fade = exp((self._at - now) / 500 / self._windows[share])
            held = self._held.get(share, NONE)
            self._averages[share] = average.times(fade) + held.times(1 - fade)
        self._at = now

    def _keep(self, state: State, now: int) -> None:
        meters = state.shares.of(FAIR_QUEUE.name)
        self._averages = {share: meter.average_at(now) for share, meter in meters.items()}
        self._meters = dict(meters)
        self._attempts = set(state.attempts)
        self._windows = {share: meter.window_s for share, meter in meters.items()}
        self._held = {}
        for job in state.attempts.values():
            share = job.submission.share
            if share in meters and job.submission.queue == FAIR_QUEUE.name:
                self._held[share] = self._held.get(share, NONE) + amount_of(job.needs)
