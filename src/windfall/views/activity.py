"""What is going on, as one point of a curve; and why jobs waited, as the history of their group.

Jobs that are interchangeable wait for the same reasons, so reasons are recorded for the first of each group and never
for each child of an array. Only changes are recorded. Decides what a point has and which part of a group's history is a
job's own. Must not know files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from windfall.accounting.prices import Rates, price_of
from windfall.control.backlog import key_in_queue
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.control.why import why
from windfall.jobs.job import Job
from windfall.jobs.states import JobState
from windfall.views.spelling import Answer

#: Groups whose first job is explained at one look; the next look goes on with others.
GROUPS_AT_ONCE = 10
TEXT_MAX = 300
#: Members of a point that say something about other tenants' jobs, and not only about the capacity that all share.
OF_ALL_TENANTS = ("succeeded", "failed", "usdHour")


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why the first job of a group waited from a time on; without a code, that none waited any more."""

    group: str
    at: int
    code: str = ""
    text: str = ""


def point(state: State, rates: Rates, now: int) -> Answer:
    """How much runs and waits, how much of the capacity is held, and what an hour of that costs."""
    live = [(job, job.attempt) for job in state.attempts.values() if job.attempt is not None]
    paid = [price_of(attempt, job.resources, rates).paid_usd for job, attempt in live]
    uses = [state.occupancy.used_on(machine.id) for machine in state.machines.values()]
    return {
        "at": now,
        "running": sum(job.state is JobState.RUNNING for job, _ in live),
        "waiting": state.backlog.count,
        "gpus": sum(len(machine.gpus) for machine in state.machines.values()),
        "gpusHeld": round(sum(float(used.gpus) for used in uses), 3),
        "vcpus": sum(machine.total.vcpus for machine in state.machines.values()),
        "vcpusHeld": round(sum(used.vcpus for used in uses), 3),
        "usdHour": round(sum(prices), 4) if (prices := [usd for usd in paid if usd is not None]) else None,
    }


def group_name(job: Job) -> str:
    """The same for all jobs that wait for the same reasons, also in the next life of the daemon."""
    submission = job.submission
    text = repr((submission.queue, submission.submitter.tenant, key_in_queue(job)))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def waiting_now(state: State, offers: Offers, turn: int, now: int) -> tuple[list[WaitReason], set[str]]:
    """Why the first jobs of some groups wait, and the names of all groups that wait; `turn` picks the groups."""
    heads: list[Job] = []
    for groups in state.backlog.queues.values():
        firsts = (next(iter(group), None) for group in groups.values())
        heads += [
            state.jobs[first.job_id] for first in firsts if first is not None and first.job_id in state.jobs
        ]
    names = {group_name(job): job for job in heads}
    begin = (turn * GROUPS_AT_ONCE) % max(1, len(names))
    chosen = list(names.items())[begin : begin + GROUPS_AT_ONCE]
    reasons = []
    for name, job in chosen:
        answer = why(state, job.id, offers, now)
        reasons_told = [
            reason for reason in (answer.reasons if answer is not None else ()) if reason[0] != "array"
        ]
        if reasons_told:
            code, text = reasons_told[0]
            reasons.append(WaitReason(name, now, code, text[:TEXT_MAX]))
    return reasons, set(names)


def reasons_of(job: Job, history: Sequence[WaitReason], now: int) -> list[Answer]:
    """The part of its group's history during which a job waited, oldest first."""
    answers: list[Answer] = []
    for begin, end in _waits(job, now):
        for index, reason in enumerate(history):
            until = history[index + 1].at if index + 1 < len(history) else now
            if not reason.code or until <= begin or reason.at >= end:
                continue
            is_open = index + 1 == len(history) and end >= now and not job.finished
            answers.append(
                {
                    "at": max(reason.at, begin),
                    "untilAt": None if is_open else min(until, end),
                    "code": reason.code,
                    "text": reason.text,
                }
            )
    return answers


def _waits(job: Job, now: int) -> list[tuple[int, int]]:
    """From when to when a job waited for a place; of an array, as long as any child may have."""
    first = job.runnable_at or job.created_at
    if job.is_array:
        return [(first, job.stopped_at or now)]
    begin: int | None = first
    spans = []
    for attempt in job.attempts:
        if begin is not None:
            spans.append((begin, attempt.placed_at))
        begin = attempt.stopped_at
    if begin is not None and not job.finished:
        spans.append((begin, now))
    elif not job.attempts:
        spans.append((first, job.stopped_at or now))
    return spans


def changes_of(
    reasons: Sequence[WaitReason], waiting: set[str], latest: Mapping[str, WaitReason], now: int
) -> list[WaitReason]:
    """What is new since the latest known reason of each group."""
    news = [it for it in reasons if (before := latest.get(it.group)) is None or before.code != it.code]
    ended = [name for name, before in latest.items() if before.code and name not in waiting]
    return [*news, *(WaitReason(name, now) for name in ended)]
