"""How a finished job ended, in words, and what to do about it; control.why explains jobs that have not finished."""

from __future__ import annotations

from windfall.advisor.failures import AttemptEnd, diagnose
from windfall.advisor.remedies import remedies
from windfall.control.job_options import PREEMPTIONS_MAX
from windfall.jobs.attempts import Attempt
from windfall.jobs.aws_texts import (
    CANNOT_CREATE,
    CANNOT_INITIALIZE,
    CANNOT_PULL,
    CANNOT_START,
    CHILD_FAILED,
    DEPENDENCY_FAILED,
    EXITED,
    HOST_LOST,
)
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.states import SUCCEEDED
from windfall.views.spelling import Answer

#: (how the reason begins, what to do, with the job's id where it helps).
REMEDIES = (
    (
        f"{CANNOT_PULL}: as a process",
        "map the image to a directory of this host with `windfall image add`, or install Docker or Podman",
    ),
    (
        CANNOT_PULL,
        "check the image's name; on the machine, as the daemon's user, try `docker pull`",
    ),
    (CANNOT_CREATE, "`windfall doctor` checks the container engine"),
    (CANNOT_INITIALIZE, "`windfall secret list` shows the secrets that exist"),
    (CANNOT_START, "check the command and that the job's user may run it"),
    (
        HOST_LOST,
        "to retry it next time, set retryStrategy.attempts to 3 or keep checkpoints (tag windfall:checkpoint=true)",
    ),
    (DEPENDENCY_FAILED, "look at the job it depends on; `windfall describe` names it"),
    (
        CHILD_FAILED,
        "see which children failed: `windfall jobs --array {id} --state FAILED`",
    ),
)


def how_it_ended(job: Job, job_id: JobId, definition: JobDefinition | None = None) -> Answer:
    """How a job ended, or a child that has no record of its own; `definition` is the job's, if known."""
    if job.id != job_id and job.rest is not None:
        return _answer(job.rest, job.rest_reason or job.status_reason, [])
    lines = [_line(attempt, is_last=attempt is job.attempts[-1]) for attempt in job.begun_attempts]
    answer = _answer(job.state, job.status_reason, lines)
    texts = [text for a in job.attempts[-1:] for text in (a.reason, a.status_reason) if text] + [
        job.status_reason or ""
    ]
    if (most := job.submission.preemptions_max) is not None and _left_too_often(job):
        text = f"it was preempted more often than its tag allows: {PREEMPTIONS_MAX}={most}"
        answer["reasons"].append({"code": "preemptions_max", "text": text})
        answer["changes"] = [
            f"submit it again with a larger {PREEMPTIONS_MAX}, or without that tag for no limit"
        ]
    elif job.state is not SUCCEEDED:
        diagnosis = _diagnosis(job.attempts[-1]) if job.attempts and not job.terminated else None
        if diagnosis is not None:
            # Do not repeat what the attempt's own line says. Evidence has single spaces and may be cut off.
            said = diagnosis.evidence.rstrip("…") in " ".join(lines[-1].split())
            text = f"cause: {diagnosis.cause}" if said else f"{diagnosis.cause}: {diagnosis.evidence}"
            answer["reasons"].append({"code": diagnosis.cause, "text": text})
        fitting = [todo for start, todo in REMEDIES if any(text.startswith(start) for text in texts)]
        answer["changes"] = [todo.format(id=job.id) for todo in fitting[:1]]
        if diagnosis is not None and (diagnosis.cause is not FailureCause.NOT_STARTED or not fitting):
            answer["changes"] = remedies(diagnosis, job, _shared_memory_mib(job, definition))
        if not answer["changes"] and job.attempts:
            answer["changes"] = [f"read its log: windfall logs {job.id}"]
    return answer


def _line(attempt: Attempt, *, is_last: bool) -> str:
    """How one attempt ended; the exit code, where known, replaces the text that its process exited."""
    code = None if attempt.exit_code is None else f"exit code {attempt.exit_code}"
    status = attempt.status_reason if attempt.status_reason != EXITED or code is None else None
    parts = [part for part in (status, code, attempt.reason) if part] or ["ended"]
    cause = f" ({attempt.diagnosis.cause})" if attempt.diagnosis and not is_last else ""
    return f"attempt {attempt.number}: {', '.join(parts)}{cause}"


def _left_too_often(job: Job) -> bool:
    """Whether it failed because it was preempted more often than its tag allows."""
    return job.preemptions_exceeded and not job.terminated and job.tries[-1].preempted


def _diagnosis(attempt: Attempt) -> Diagnosis | None:
    """What the agent found in its log, or what follows from its exit status alone."""
    if attempt.diagnosis is not None:
        return attempt.diagnosis
    return diagnose(AttemptEnd(attempt.exit_code, attempt.reason, attempt.status_reason))


def _shared_memory_mib(job: Job, definition: JobDefinition | None) -> int | None:
    container = job.submission.container or (definition.container if definition is not None else None)
    return None if container is None else container.shared_memory_mib


def _answer(state: str, reason: str | None, lines: list[str]) -> Answer:
    first = f"is {state}" + (f": {reason}" if reason and reason != EXITED else "")
    return {
        "state": state,
        "reasons": [{"code": "ended", "text": first}] + [{"code": "attempt", "text": line} for line in lines],
        "changes": [],
    }
