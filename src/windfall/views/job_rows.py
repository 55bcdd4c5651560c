"""Jobs as the page shows them: a row of a list, the children of an array as one letter each, and the marks of attempts.

Everything is copied out of the job, so an answer does not change after it was made. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from windfall.jobs.arrays import ChildTable
from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job
from windfall.jobs.staging import Mark
from windfall.jobs.states import JobState
from windfall.views import jobs
from windfall.views.plain_reasons import plainly
from windfall.views.spelling import Answer, picked

#: Tags of a job that a row shows.
TAGS_SHOWN = 50
#: What a child is, in the map of its array.
LETTERS = {
    JobState.SUBMITTED: "S",
    JobState.PENDING: "P",
    JobState.RUNNABLE: "W",
    JobState.STARTING: "T",
    JobState.RUNNING: "R",
    JobState.SUCCEEDED: "O",
    JobState.FAILED: "F",
}


def row(job: Job, owner: str | None) -> Answer:
    """One job in a list."""
    submission, attempts = job.submission, job.begun_attempts
    latest = attempts[-1] if attempts else None
    progress = None if latest is None else latest.progress
    nodes = submission.nodes
    return {
        "jobId": job.id,
        "jobName": submission.name,
        "definition": submission.definition,
        **picked(submission, "queue array_size priority share"),
        **picked(job, "state created_at runnable_at started_at stopped_at held_by index parent"),
        "statusReason": None if job.status_reason is None else plainly(job.status_reason),
        **picked(job.resources, "vcpus memory_mib gpus"),
        "gpuShare": job.share,
        "kind": submission.kind.value,
        "attempts": len(attempts),
        "triesAllowed": submission.retry.attempts,
        "summary": None if job.summary is None else dict(job.summary),
        "nodes": None if nodes is None else nodes.count,
        "owner": owner,
        "tags": dict(list(submission.tags.items())[:TAGS_SHOWN]),
        "step": None if progress is None else progress.step,
        **_of_attempt(latest),
    }


def _of_attempt(attempt: Attempt | None) -> Answer:
    if attempt is None:
        return dict.fromkeys(("doing", "alarm", "exitCode", "usdHour", "market", "instanceType"))
    return picked(attempt, "doing alarm exit_code usd_hour market instance_type")


def attempts_of_page(job: Job) -> list[Answer]:
    """The attempts of a job with what the page needs to draw them."""
    answers: list[Answer] = jobs.attempts(job)["attempts"]
    return [
        {
            **answer,
            "logStream": attempt.log_stream,
            "gpuIds": list(attempt.gpu_ids),
            "diagnosis": None if attempt.diagnosis is None else picked(attempt.diagnosis, "cause evidence"),
            "marks": [[mark.at, mark.state_at, mark.step, mark.bytes] for mark in attempt.marks],
        }
        for answer, attempt in zip(answers, job.begun_attempts, strict=True)
    ]


def priority_changes(job: Job) -> list[Answer]:
    """When a job's priority was changed, from what to what, and who did it."""
    return [picked(change, "at by was priority") for change in job.priority_changes]


def marks(job: Job) -> Answer:
    """The checkpoints of each attempt that are remembered, oldest first."""
    return {
        "jobId": job.id,
        "attempts": [
            {"attempt": attempt.number, "marks": [jobs.checkpoint(mark) for mark in attempt.marks]}
            for attempt in job.begun_attempts
        ],
    }


def loss_if_stopped(job: Job, now: int) -> Answer | None:
    """How much work of a running job is in no checkpoint; None when it does not run."""
    attempt = job.attempt
    if attempt is None or attempt.started_at is None:
        return None
    since = attempt.started_at if attempt.checkpoint is None else attempt.checkpoint.state_at
    return {"since": since, "seconds": max(0, now - since) // 1000}


def expected_end(job: Job, length_ms: float | None, now: int) -> Answer | None:
    """When a running job ends if it takes as long as earlier ones of its queue and definition."""
    attempt = job.attempt
    if attempt is None or attempt.started_at is None or length_ms is None:
        return None
    at = int(attempt.started_at + length_ms)
    return {"at": at, "from": "earlier runs"} if at > now else None


def array_map(job: Job, table: ChildTable | None, ended: Iterable[tuple[int, JobState]], now: int) -> Answer:
    """An array with one letter per child: from its live table, or from its record and its children's."""
    size = job.submission.array_size or 0
    if table is not None:
        letters = table.drawn(LETTERS)
        summary = {state: count for state, count in table.summary().items() if count}
    else:
        drawn = [LETTERS[job.rest or JobState.FAILED]] * size
        for index, state in ended:
            if index < size:
                drawn[index] = LETTERS[state]
        letters = "".join(drawn)
        counts = {state.value: letters.count(letter) for state, letter in LETTERS.items()}
        summary = {state: count for state, count in counts.items() if count}
    return {"at": now, "jobId": job.id, "size": size, "map": letters, "summary": summary}


def usual_gap(marks_of_attempt: Sequence[Mark]) -> int | None:
    """How long there usually is between two checkpoints, in milliseconds; None with fewer than four of them."""
    gaps = sorted(later.at - earlier.at for earlier, later in pairwise(marks_of_attempt))
    return gaps[len(gaps) // 2] if len(gaps) >= 3 else None
