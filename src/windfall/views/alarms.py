"""What needs a person, in one list: checkpoints that do not come, blocked queues, sick GPUs, full disks, absent agents.

Everything here is known elsewhere too; this is the one place where it is collected. Looks at what runs, at the heads of
queues and at machines, never at all jobs. Decides from when on something is worth a person's look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job
from windfall.views.job_rows import usual_gap
from windfall.views.plain_reasons import plainly
from windfall.views.spelling import Answer

ALARMS_MAX = 100
#: A queue whose head waits is ordinary; one that waits for this long may need a person.
BLOCKED_MS = 60_000
#: A checkpoint is late when this many usual gaps have passed, and a minute at least.
LATE_GAPS, LATE_MS = 3, 60_000
DISK_FREE_SHARE, DISK_FREE_BYTES = 0.05, 2 << 30


@dataclass(frozen=True, slots=True)
class HostTrouble:
    """What the daemon knows of its own host that is not in the state."""

    disk_free: int
    disk_total: int
    #: Why agents do not answer, one text for each engine.
    agents_away: tuple[str, ...] = ()


def alarms(state: State, sees: Callable[[str], bool], host: HostTrouble, now: int) -> Answer:
    """All alarms for one caller, the bad ones first; `sees` says whether a tenant's jobs exist for it."""
    listed = [
        *_of_host(host),
        *_of_gpus(state),
        *_of_checkpoints(state, now),
        *_of_queues(state, sees, now),
    ]
    listed.sort(key=lambda alarm: alarm["severity"] != "bad")
    return {"at": now, "alarms": listed[:ALARMS_MAX], "leftOut": max(0, len(listed) - ALARMS_MAX)}


def _alarm(kind: str, text: str, command: str, *, bad: bool = False, since: int | None = None) -> Answer:
    severity = "bad" if bad else "warn"
    return {"kind": kind, "severity": severity, "text": text, "since": since, "command": command}


def _of_host(host: HostTrouble) -> Iterable[Answer]:
    for text in host.agents_away:
        yield _alarm("agent_away", text, "windfall status", bad=True)
    if host.disk_free < min(DISK_FREE_BYTES, host.disk_total * DISK_FREE_SHARE):
        text = f"the daemon's disk has {host.disk_free / 2**30:.1f} GiB left of {host.disk_total / 2**30:.0f}"
        yield _alarm("disk", text, "windfall doctor", bad=True)


def _of_gpus(state: State) -> Iterable[Answer]:
    for machine in state.machines.values():
        for gpu in machine.gpus:
            fence = machine.why_fenced(gpu)
            if gpu.lost or fence is not None:
                text = f"{gpu.name} ({gpu.id}) gets no new jobs: {fence or 'it is gone'}"
                alarm = _alarm("gpu_fenced", text, "windfall gpus", bad=gpu.lost)
            elif gpu.notes:
                alarm = _alarm("gpu_health", f"{gpu.name} ({gpu.id}): {gpu.notes[0]}", "windfall gpus")
            else:
                continue
            yield {**alarm, "gpuId": gpu.id, "machine": machine.id}


def _of_checkpoints(state: State, now: int) -> Iterable[Answer]:
    for job in state.attempts.values():
        attempt = job.attempt
        if attempt is None:
            continue
        if attempt.alarm is not None:
            text = f"{job.submission.name}: {attempt.alarm}"
            yield _of_job(_alarm("checkpoint", text, f"windfall checkpoints {job.id}", bad=True), job)
        elif (late := _late(attempt, now)) is not None:
            text = f"{job.submission.name}: {late}"
            since = attempt.checkpoint.at if attempt.checkpoint is not None else None
            yield _of_job(_alarm("checkpoint", text, f"windfall checkpoints {job.id}", since=since), job)


def _late(attempt: Attempt, now: int) -> str | None:
    usual = usual_gap(attempt.marks)
    if usual is None or attempt.checkpoint is None or attempt.exited_at is not None:
        return None
    age = now - attempt.checkpoint.at
    if age <= max(LATE_GAPS * usual, LATE_MS):
        return None
    return f"its newest checkpoint is {_minutes(age)} old; there was one every {_minutes(usual)}"


def _of_queues(state: State, sees: Callable[[str], bool], now: int) -> Iterable[Answer]:
    for job_id, reason in state.blocked.items():
        job = state.jobs.get(job_id)
        if job is None or job.blocked_at is None or not sees(job.submission.submitter.tenant):
            continue
        queue, since = job.submission.queue, job.blocked_at
        if now - since >= BLOCKED_MS:
            text = f"queue {queue} is blocked for {_minutes(now - since)} by {job.submission.name}: {plainly(reason)}"
            alarm = _alarm("queue_blocked", text, f"windfall why {job.id}", since=since)
            yield {**_of_job(alarm, job), "queue": queue}


def _of_job(alarm: Answer, job: Job) -> Answer:
    return {**alarm, "jobId": job.id, "jobName": job.submission.name}


def _minutes(span_ms: int) -> str:
    return f"{span_ms / 1000:.0f} s" if span_ms < 120_000 else f"{span_ms / 60_000:.0f} min"
