"""One job with a deadline on a recorded pool: a policy decides every ten minutes, seconds are billed.

Time is counted in units of two minutes. A changeover is billed at the new place and works nothing; a place on spot
capacity goes at the probe that finds its zone down, and what was done until then is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bench.spot.traces import PoolTrack
from windfall.deadlines.policy import JobMode
from windfall.deadlines.solving import SpotAction

UNIT_S = 120.0
TICK = 5
#: How long the next changeover takes, in units.
Changeovers = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done, in units."""

    work: int
    deadline: int
    changeover: int
    #: The changeover that the shield counts with.
    shield: int
    spot_price: float


@dataclass(slots=True)
class Situation:
    """What a policy may know at a tick. `slack` is time left less work left."""

    task: Task
    elapsed: int
    left: int
    mode: JobMode
    up: bool
    state: int

    @property
    def slack(self) -> int:
        """The time until the deadline that the work left does not need."""
        return self.task.deadline - self.elapsed - self.left


class Policy(Protocol):
    """Decides at each tick; a new one is made for each task."""

    def __call__(self, situation: Situation) -> SpotAction:
        """What to do until the next tick."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task went: its cost in units of on-demand time, and whether it was done in time."""

    cost: float
    missed: bool


def shielded(policy: Policy, situation: Situation) -> SpotAction:
    """A policy's answer, unless it could miss the deadline."""
    action, slack, shield = policy(situation), situation.slack, situation.task.shield
    if (
        action is SpotAction.SPOT
        and situation.mode is not JobMode.SPOT
        and (not situation.up or slack < 2 * shield)
    ):
        action = SpotAction.ON_DEMAND if situation.mode is JobMode.ON_DEMAND else SpotAction.WAIT
    if action is SpotAction.WAIT and slack < shield + TICK:
        action = SpotAction.ON_DEMAND
    return action


def run_task(track: PoolTrack, start: int, task: Task, policy: Policy, changeovers: Changeovers) -> Outcome:
    """Run a task that begins at a probe of the track."""
    mode, starting, zone, cost, left = JobMode.NONE, 0, None, 0.0, task.work
    elapsed = 0
    while left > 0:
        probe = start + elapsed // TICK
        if probe >= len(track.zone):
            raise ValueError("the trace is over before the task")
        if mode is JobMode.SPOT and track.zone[probe] != zone:
            mode = JobMode.NONE
        up = track.zone[probe] is not None
        action = shielded(policy, Situation(task, elapsed, left, mode, up, track.state[probe]))
        wanted = (JobMode.NONE, JobMode.SPOT, JobMode.ON_DEMAND)[action]
        if wanted is not mode:
            mode, starting, zone = (
                wanted,
                changeovers() if wanted is not JobMode.NONE else 0,
                track.zone[probe],
            )
        if mode is not JobMode.NONE:
            idle = min(starting, TICK)
            worked = min(left, TICK - idle)
            cost += (idle + worked) * (task.spot_price if mode is JobMode.SPOT else 1.0)
            starting -= idle
            left -= worked
            if left == 0:
                return Outcome(cost, elapsed + idle + worked > task.deadline)
        elapsed += TICK
    return Outcome(cost, elapsed > task.deadline)
