"""Plays the time to come: every round is the reactor's own, and what machines would report is made up by assumption.

The assumptions are an argument: how long a job works, how long a start and a launch take, how long spot capacity
stays. Every job succeeds, and nothing is submitted that is not there. Changes the state that it is given, which must
be a copy. Must not know how lengths are estimated, nor what is compared with what.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windfall.accounting.ledger import ledger_of
from windfall.capacity.environments import RECLAIMABLE
from windfall.capacity.machines import GpuDevice, Instance, Machine, Offer
from windfall.control.events import (
    AttemptExited,
    AttemptStarted,
    Event,
    InstanceLost,
    InstanceReady,
    InterruptionNoticed,
)
from windfall.control.instructions import (
    Instruction,
    InterruptAttempt,
    LaunchInstance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.control.job_deadlines import worked_ms
from windfall.control.placing import is_launching, relaunch
from windfall.control.reactor import react
from windfall.control.round import Round
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.control.timekeeping import next_due
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import (
    AttemptToken,
    EnvironmentName,
    InstanceId,
    JobId,
    MachineId,
    split_child,
    split_node,
)
from windfall.jobs.job import Job
from windfall.jobs.staging import Mark
from windfall.jobs.states import SUCCEEDED

#: How long a job that keeps checkpoints takes to save and leave when it has notice.
SAVE_MS = 5_000
#: How long an attempt that is told to stop takes.
STOP_MS = 1_000
#: Nothing is played beyond this.
HORIZON_MS = 60 * 24 * 3600 * 1000
#: While jobs wait, time-driven rules are applied this often, and ever less often the further away the time is.
LEAST_STEP_MS, STEPS = 5_000, 40
#: Rounds in which nothing happens, one after another, after which nothing will.
QUIET_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What nobody can know, decided for one play."""

    #: What engines could launch now.
    offers: Offers
    #: The work of a job in seconds, all of it, when it is known to be more than some seconds.
    work_s: Callable[[Job, float], float]
    #: From the place to the process, in seconds.
    start_s: Callable[[Job], float] = lambda _job: 1.0
    #: From the wish for an instance of its own to its first attempt.
    launch_s: float = 60.0
    #: How long an instance of a spot market stays, from an age on, in seconds; None for ever.
    stays_s: Callable[[float], float | None] = lambda _age: None
    #: Jobs that come later: (time, what is submitted), in order.
    arrivals: tuple[tuple[int, Event], ...] = ()
    #: What happens is noticed only at multiples of this, so that long plays have few rounds.
    every_ms: int = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is played at most."""

    rounds: int = 200_000
    #: Asked before every round; False ends the play.
    goes_on: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a job. None: it does not start, or end, as far as was played."""

    #: When it starts for the first time, or when it did.
    start_at: int | None
    end_at: int | None
    #: What it costs in all; None where no price is known.
    usd: float | None
    succeeded: bool = False
    attempts: int = 0
    #: How long its attempts had places, in seconds.
    held_s: float = 0.0


@dataclass(slots=True)
class _Records:
    """Of a top-level job: itself, its children or nodes, all as they were last seen."""

    whole: Job | None = None
    parts: dict[JobId, Job] = field(default_factory=dict)


class Playing:
    """One play of one copy, from now on."""

    def __init__(self, state: State, now: int, assumed: Assumptions, bounds: Bounds | None = None) -> None:
        # What is ready a moment sooner, what others hear and when schedules are due are not asked.
        scheduling = replace(state.rules.scheduling, look_ahead_ms=0)
        state.rules = replace(state.rules, scheduling=scheduling, event_destinations=())
        self.state, self.now, self._began_at = state, now, now
        self._assumed, self._bounds = assumed, bounds or Bounds()
        self._agenda: list[tuple[int, int, Event]] = []
        self._entered = 0
        #: Work that earlier attempts of a job left, and all of its work, in milliseconds.
        self._kept_ms: dict[JobId, float] = {}
        self._work_ms: dict[JobId, float] = {}
        #: Attempts that start when another one has ended.
        self._behind: dict[AttemptToken, StartAttempt] = {}
        self._launched: Counter[tuple[EnvironmentName, str]] = Counter()
        self._kinds: dict[InstanceId, tuple[EnvironmentName, str]] = {}
        self._records: dict[JobId, _Records] = {}
        #: Whether it came to an end by itself, rather than to its bounds.
        self.complete = False
        self.rounds = 0
        for job in state.jobs.values():
            self._note(job)
        self._take_up()
        for at, event in assumed.arrivals:
            self._enter(max(at, now), event)

    # What there is already -------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Enter what is under way in the copy: instances that come, attempts that start, run or leave."""
        for instance in list(self.state.instances.values()):
            if is_launching(instance):
                self._launch(relaunch(instance))
            else:
                self._kinds[instance.id] = (instance.environment, instance.type)
                self._let_go_some_day(instance.id, instance.environment, instance.launched_at)
        for job in list(self.state.attempts.values()):
            attempt = job.attempt
            if attempt is None:
                continue
            if attempt.started_at is not None:
                self._take_up_running(job, attempt, attempt.started_at)
            elif attempt.behind is None:
                self._start(job, attempt)

    def _take_up_running(self, job: Job, attempt: Attempt, started_at: int) -> None:
        ends_at = self.now + int(self._left_ms(job, self.now - started_at))
        if attempt.stop_cause is not None:
            ends_at = min(ends_at, max(self.now, attempt.stop_at or self.now))
        self._enter(ends_at, AttemptExited(attempt.token, ends_at, 0 if attempt.stop_cause is None else 143))

    # Time --------------------------------------------------------------------------------------------------------

    def play(self, enough: Callable[[Playing], bool] = lambda _played: False) -> Playing:
        """Go on until every job has ended, nothing more happens, or a bound is reached."""
        quiet = 0
        while self._goes_on(quiet) and not enough(self):
            self.now = max(self.now, self._next_at())
            due = []
            while self._agenda and self._agenda[0][0] <= self.now:
                due.append(heapq.heappop(self._agenda)[2])
            round_ = self.happen(due)
            quiet = 0 if due or round_.instructions else quiet + 1
        return self

    def happen(self, due: list[Event]) -> Round:
        """Let one round happen at the time that it is, and enter what follows from it."""
        self.rounds += 1
        round_ = Round(self.now)
        react(self.state, [(event, None) for event in due], self._offers, round_)
        for job in round_.changes.jobs.values():
            self._note(job)
        for instruction in round_.instructions:
            self._carry_out(instruction)
        for event in due:
            if isinstance(event, AttemptExited) and event.token in self._behind:
                self._carry_out(replace(self._behind.pop(event.token), behind=None))
        return round_

    def _goes_on(self, quiet: int) -> bool:
        if not self._agenda and (not self.state.jobs or quiet > QUIET_ROUNDS):
            self.complete = True
            return False
        within = self.rounds < self._bounds.rounds and self.now - self._began_at < HORIZON_MS
        return within and self._bounds.goes_on()

    def _next_at(self) -> int:
        """When something happens, or is looked at, next."""
        times = [self._agenda[0][0]] if self._agenda else []
        due = next_due(self.state)
        times += [] if due is None else [due]
        if self.state.deadline_heap:
            times.append(max(self.state.deadline_heap[0][0], self.now + 1_000))
        if not times or any(self.state.backlog.queues.values()):
            times.append(self.now + max(LEAST_STEP_MS, (self.now - self._began_at) // STEPS))
        if self.state.unsettled:
            times.append(self.now + 1_000)
        return max(self.now + self._assumed.every_ms, min(times))

    def _enter(self, at: int, event: Event) -> None:
        self._entered += 1
        every_ms = self._assumed.every_ms
        heapq.heappush(self._agenda, (-(-at // every_ms) * every_ms, self._entered, event))

    # What engines and agents would do ----------------------------------------------------------------------------

    def offers_left(self) -> Offers:
        """What could be launched now."""
        return self._offers(self.state)

    def _offers(self, _state: State) -> Offers:
        """What could still be launched: a kind of which there is a number gets fewer with every launch."""
        return {
            name: tuple(self._left(name, offer) for offer in offers)
            for name, offers in self._assumed.offers.items()
        }

    def _left(self, environment: EnvironmentName, offer: Offer) -> Offer:
        taken = self._launched.get((environment, offer.type), 0)
        if offer.machine is not None or offer.available is None or not taken:
            return offer
        return replace(offer, available=max(0, offer.available - taken))

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case LaunchInstance():
                self._launched[instruction.environment, instruction.offer.type] += 1
                self._launch(instruction)
            case TerminateInstance() if instruction.instance in self._kinds:
                self._launched[self._kinds.pop(instruction.instance)] -= 1
            case StartAttempt() if (
                instruction.behind in self.state.attempts and instruction.behind is not None
            ):
                self._behind[instruction.behind] = instruction
            case StartAttempt():
                job = self.state.attempts.get(instruction.token)
                if job is not None and job.attempt is not None:
                    self._start(job, job.attempt)
            case InterruptAttempt():
                self._leave(instruction.token, instruction.deadline_at)
            case StopAttempt() if not instruction.if_unbegun:
                at = self.now + STOP_MS
                self._enter(at, AttemptExited(instruction.token, at, 143))
            case _:
                pass

    def _launch(self, launch: LaunchInstance) -> None:
        shared = self.state.machines.get(launch.offer.machine) if launch.offer.machine is not None else None
        machine = shared or _machine_of(launch)
        at = self.now if shared is not None else self.now + int(self._assumed.launch_s * 1000)
        self._kinds[launch.instance] = (launch.environment, launch.offer.type)
        self._enter(at, InstanceReady(launch.instance, machine))
        if shared is None:
            self._let_go_some_day(launch.instance, launch.environment, at)

    def _let_go_some_day(self, instance: InstanceId, name: EnvironmentName, since: int) -> None:
        """Take an instance of a spot market away when its time is over."""
        environment, present = self.state.environments.get(name), self.state.instances.get(instance)
        if (
            environment is None
            or environment.provisioning not in RECLAIMABLE
            or (present and present.is_share)
        ):
            return
        stays_s = self._assumed.stays_s(max(0, self.now - since) / 1000)
        if stays_s is not None:
            at = max(self.now, since) + int(stays_s * 1000)
            gone_at = at + int(self.state.rules.notice_s * 1000)
            self._enter(at, InterruptionNoticed(instance, gone_at))
            self._enter(gone_at, InstanceLost(instance))

    def _start(self, job: Job, attempt: Attempt) -> None:
        started_at = self.now + int(self._assumed.start_s(job) * 1000)
        ends_at = started_at + int(self._left_ms(job, 0.0))
        self._enter(started_at, AttemptStarted(attempt.token, started_at))
        self._enter(ends_at, AttemptExited(attempt.token, ends_at, 0))

    def _leave(self, token: AttemptToken, deadline_at: int) -> None:
        """An attempt has notice: one that keeps checkpoints saves and goes, another one stays as long as it can."""
        job = self.state.attempts.get(token)
        attempt = job.attempt if job is not None else None
        if job is None or attempt is None:
            return
        mark, at = None, deadline_at
        staging = job.submission.staging
        if staging is not None and staging.checkpoints is not None and attempt.started_at is not None:
            at = min(deadline_at, self.now + SAVE_MS)
            mark = Mark("as assumed", at, self.now, 0)
            self._kept_ms[job.id] = self._kept(job) + self.now - attempt.started_at
        self._enter(at, AttemptExited(token, at, 143, checkpoint=mark))

    # Work --------------------------------------------------------------------------------------------------------

    def _kept(self, job: Job) -> float:
        if job.id not in self._kept_ms:
            over = [attempt for attempt in job.attempts if attempt.stopped_at is not None]
            self._kept_ms[job.id] = float(sum(worked_ms(attempt, self.now) for attempt in over))
        return self._kept_ms[job.id]

    def _left_ms(self, job: Job, ran_ms: float) -> float:
        """The work that is left for an attempt that has run for a while."""
        done_ms = self._kept(job) + ran_ms
        if job.id not in self._work_ms:
            self._work_ms[job.id] = self._assumed.work_s(job, done_ms / 1000) * 1000
        return max(1_000.0, self._work_ms[job.id] - done_ms)

    # Outcome -------------------------------------------------------------------------------------------------------

    def _note(self, job: Job) -> None:
        top = job.parent or split_node(split_child(job.id)[0])[0]
        records = self._records.setdefault(top, _Records())
        if job.id == top:
            records.whole = job
        else:
            records.parts[job.id] = job

    def wholes(self) -> list[Job]:
        """Every top-level job, as it is in the end."""
        return [records.whole for records in self._records.values() if records.whole is not None]

    def fates(self) -> dict[JobId, Fate]:
        """What became of every top-level job."""
        return {
            job_id: self._fate(records.whole, [*records.parts.values()])
            for job_id, records in self._records.items()
            if records.whole is not None
        }

    def _fate(self, whole: Job, parts: list[Job]) -> Fate:
        attempts = [attempt for job in (whole, *parts) for attempt in job.attempts]
        starts = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
        prices = [
            entry.paid_usd
            for job in (whole, *parts)
            for entry in ledger_of(job, self.state.rules.rates, self.now).entries
            if entry.attempt is not None
        ]
        priced = [price for price in prices if price is not None]
        held_ms = sum((attempt.stopped_at or self.now) - attempt.placed_at for attempt in attempts)
        return Fate(
            min(starts, default=None),
            whole.stopped_at if whole.finished else None,
            sum(priced) if priced and any(priced) else None,
            whole.state is SUCCEEDED,
            len(attempts),
            held_ms / 1000,
        )


def _machine_of(launch: LaunchInstance) -> Machine:
    """The machine that would come with an instance."""
    offer, name = launch.offer, f"machine-of-{launch.instance}"
    kinds: list[Any] = list(offer.gpus) or [GpuDevice("", "GPU")] * int(offer.resources.gpus)
    gpus = tuple(replace(gpu, id=f"{name}-gpu-{number}") for number, gpu in enumerate(kinds))
    return Machine(MachineId(name), offer.resources, gpus)


def instances_of(state: State, machine: MachineId) -> list[Instance]:
    """The instances that a machine has."""
    return [instance for instance in state.instances.values() if instance.machine == machine]


Fates = Mapping[JobId, Fate]
