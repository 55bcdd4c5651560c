"""What must hold where capacity is taken away: notices, claims, limits and budgets, interruptions that cost nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.store import BrokenPromise
from windfall.accounting.ledger import HOUR_MS, ledger_of
from windfall.accounting.prices import Rates, price_of
from windfall.capacity.environments import RECLAIMABLE
from windfall.capacity.machines import InstanceState
from windfall.control.backlog import same_group
from windfall.control.state import State
from windfall.jobs.attempts import StopCause
from windfall.jobs.ids import AttemptToken, JobId
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED

if TYPE_CHECKING:
    from tests.simulation.world import World


#: A round may be late by a slow commit; what is free is taken in the next one.
PATIENCE_MS = 6_000


@dataclass(slots=True)
class Claimed:
    """A job that others leave a place to."""

    #: How many places it waited for, how often it had had one, and how often the world had been disturbed.
    waiting: int
    tries: int
    disturbances: int
    tokens: set[AttemptToken] = field(default_factory=set)
    #: When the last of them was asked, and when all of them had left.
    asked_at: int = 0
    free_at: int | None = None


def check_notices(state: State) -> None:
    """Nothing new is placed on what goes away, and who is asked to leave knows until when and for whom."""
    for instance in state.instances.values():
        if (instance.reclaim_at is not None) is not (instance.state is InstanceState.TERMINATING):
            raise BrokenPromise(f"{instance} has notice and is not going, or the other way round")
        use = state.occupancy.instances.get(instance.id)
        if instance.state is not InstanceState.TERMINATING:
            continue
        if use is None or not use.holds:
            raise BrokenPromise(f"nothing runs on {instance.id} any more, and it is still there")
        for token in use.holds:
            attempt = state.attempts[token].attempt
            if attempt is None or attempt.stop_cause is None:
                raise BrokenPromise(f"{token} runs on {instance.id}, which goes away, and was not told")
    for token, job in state.attempts.items():
        attempt = job.attempt
        if attempt is None:
            continue
        if attempt.stop_cause is StopCause.INTERRUPTED and (
            attempt.deadline_at is None or not attempt.stop_words
        ):
            raise BrokenPromise(f"{token} has notice and does not know until when, or why")
        if token in state.left_places and attempt.stop_for is None:
            raise BrokenPromise(f"{token} is said to leave for a job, and was not asked to")


def check_claims(world: World) -> None:
    """Only reclaimable attempts are asked to leave for another, and it gets the place when they have left."""
    state = world.daemon.state
    for token in set(state.left_places) & state.attempts.keys():
        attempt = state.attempts[token].attempt
        assert attempt is not None
        assert attempt.stop_for is not None
        environment = state.environments.get(attempt.environment)
        # Quota shares take back what was borrowed anywhere; and who was asked may be stopped for another reason since.
        by_the_market = attempt.stop_cause is StopCause.INTERRUPTED
        if environment is not None and by_the_market and environment.provisioning not in RECLAIMABLE:
            raise BrokenPromise(f"{token} on demand is asked to leave for {attempt.stop_for}")
        claimed = world.claimants.get(attempt.stop_for)
        if claimed is None:
            claimed = Claimed(*_waiting_and_tries(state, attempt.stop_for), world.disturbances)
            world.claimants[attempt.stop_for] = claimed
        if token not in claimed.tokens:
            claimed.tokens.add(token)
            claimed.asked_at, claimed.free_at = attempt.stop_at or world.now, None
    for job_id, claimed in list(world.claimants.items()):
        if claimed.tokens & state.attempts.keys():
            continue
        claimed.free_at = claimed.free_at or world.now
        waiting, tries = _waiting_and_tries(state, job_id)
        # Nobody waits in vain who does not wait: its queue may have been deleted meanwhile.
        served = waiting == 0 or waiting < claimed.waiting or tries > claimed.tries
        passed = not claimed.tokens & set(state.left_places) and _passed_by_its_like(
            state, job_id, claimed.asked_at
        )
        if served or passed or claimed.disturbances != world.disturbances:
            del world.claimants[job_id]
        elif world.now - claimed.free_at > PATIENCE_MS:
            raise BrokenPromise(f"{sorted(claimed.tokens)} left for {job_id} in vain, it still waits")


def _passed_by_its_like(state: State, job_id: JobId, since: int) -> bool:
    """Whether one just like it, whose turn came first, has got a place since: jobs of one group have one claim."""
    return any(
        one.id != job_id
        and same_group(state.jobs, one, job_id) is not None
        and one.attempts[-1].placed_at >= since
        for one in state.attempts.values()
    )


def _waiting_and_tries(state: State, job_id: JobId) -> tuple[int, int]:
    """How many places a job waits for, and how often it had one; what could not be started waits again at once."""
    job = state.jobs.get(job_id)
    waiting = state.backlog.find(job) if job is not None else None
    return waiting.count if waiting is not None else 0, len(job.attempts) if job is not None else 0


def check_free_interruptions(job: Job) -> None:
    """A job that keeps checkpoints never fails because its place was taken away, and none because its GPU fell ill."""
    if job.state is not FAILED or not job.attempts or job.is_node:
        return
    last = job.tries[-1]
    if last.moved and job.status_reason == last.status_reason:
        raise BrokenPromise(f"failed because its GPU fell ill: {job.story()}")
    if not job.submission.free_interruptions:
        return
    if (
        last.interrupted
        and last.stop_cause in (None, StopCause.INTERRUPTED)
        and job.status_reason == last.status_reason
    ):
        raise BrokenPromise(f"failed because it was interrupted: {job.story()}")


def check_preemptions_max(job: Job) -> None:
    """Nobody is preempted more often than it allows; once more, and it has failed."""
    most = job.submission.preemptions_max
    # One whose host was lost while it left counts as a lost host.
    preempted = sum(attempt.preempted for attempt in job.attempts)
    if most is not None and preempted > most + 1:
        raise BrokenPromise(f"was preempted {preempted} times and allows {most}: {job.story()}")


def check_ledger(job: Job, rates: Rates) -> None:
    """The hours of a job that has ended are all accounted for, and so is the money."""
    if job.stopped_at is None or job.is_array:
        return
    ledger = ledger_of(job, rates, job.stopped_at)
    if ledger.times.wall_ms != job.stopped_at - job.created_at:
        raise BrokenPromise(
            f"{ledger.times} is not all of {job.stopped_at - job.created_at} ms: {job.story()}"
        )
    paid = sum(entry.paid_usd or 0.0 for entry in ledger.entries)
    held = sum(
        (price_of(one, job.resources, rates).paid_usd or 0.0) * (one.stopped_at - one.placed_at)
        for one in job.attempts
        if one.stopped_at is not None and one.stopped_at >= one.placed_at
    )
    if abs(paid - held / HOUR_MS) > 1e-6:
        raise BrokenPromise(f"${paid} was paid and ${held / HOUR_MS} is owed: {job.story()}")


def check_limits(state: State, job: Job) -> None:
    """Nothing is started with money or time that is used up already."""
    nodes = job.submission.nodes
    if not job.attempts or (job.is_node and nodes is not None and nodes.peers):
        return
    spent, run_ms = 0.0, 0
    limits, budget = job.submission.limits, job.submission.budget_usd
    for attempt in job.tries:
        if budget is not None and spent >= budget + 1e-9:
            raise BrokenPromise(
                f"attempt {attempt.number} began with ${spent} of ${budget} spent: {job.story()}"
            )
        if limits is not None and limits.run_s is not None and run_ms >= limits.run_s * 1000:
            raise BrokenPromise(f"attempt {attempt.number} began after {run_ms} ms of running: {job.story()}")
        if limits is not None and limits.wait_s is not None:
            latest = job.created_at + limits.wait_s * 1000
            if attempt.placed_at >= latest + 1:
                raise BrokenPromise(f"attempt {attempt.number} began after its time: {job.story()}")
        if attempt.stopped_at is None:
            return
        usd_hour = price_of(attempt, job.resources, state.rules.rates).paid_usd or 0.0
        spent += usd_hour * max(0, attempt.stopped_at - attempt.placed_at) / 3_600_000
        if attempt.started_at is not None:
            run_ms += max(0, (attempt.exited_at or attempt.stopped_at) - attempt.started_at)
