"""A store in memory that keeps copies, as a database would, and follows every job's path through the state table.

Holds the simulated daemon to "durable, then visible": what was not applied is gone after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from windfall.aws_api.batch.children import final_states
from windfall.control.changes import Changes
from windfall.control.events import FinishedJob
from windfall.control.outbox import OutboxEvent
from windfall.control.ports import Loaded
from windfall.jobs.ids import AttemptToken, JobId
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.states import MOVES, TERMINAL, JobState
from windfall.schedules.schedule import Tick


class BrokenPromise(AssertionError):
    """An invariant does not hold."""


def _reachable() -> dict[JobState, frozenset[JobState]]:
    """Which states can follow which over any number of legal moves, staying included."""
    reach = {state: {state} for state in JobState}
    for _ in JobState:
        for old, new in MOVES:
            for reached in reach.values():
                if old in reached:
                    reached.add(new)
    return {state: frozenset(reached) for state, reached in reach.items()}


REACHABLE = _reachable()
#: The stores of all that is small, by the name that Changes and Loaded share.
SMALL = ("environments", "queues", "definitions", "images", "instances", "machines", "declared")


def copied(job: Job) -> Job:
    """A job as a database would give it back: equal, and shared with nobody."""
    attempts = [replace(attempt) for attempt in job.attempts]
    return replace(job, attempts=attempts, gang_ends=list(job.gang_ends), moves=None)


def copied_service(job: ServiceJob) -> ServiceJob:
    """The same for a service job."""
    return replace(job, attempts=[replace(attempt) for attempt in job.attempts])


class FakeStore:
    """Durable state: what `commit` was given is what `load` gives back."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.small: dict[str, dict[str, Any]] = {name: {} for name in SMALL}
        self.log_streams: dict[str, JobId] = {}
        #: The history of schedules, by schedule and due time.
        self.ticks: dict[tuple[str, int], Tick] = {}
        self.service_jobs: dict[JobId, ServiceJob] = {}
        #: What was to be told, in its order, by destination and id.
        self.outbox: dict[tuple[str, str], OutboxEvent] = {}
        self.last_order = 0
        self.purged: set[JobId] = set()
        #: Attempts whose jobs' records were removed.
        self.removed: set[AttemptToken] = set()
        self.commits = 0

    def frozen(self, changes: Changes) -> Changes:
        """The changes as they are at this moment, so that a slow commit writes what the round saw."""
        taken = Changes(purge=changes.purge)
        if not changes:
            return taken
        for name in SMALL:
            rows = getattr(changes, name)
            getattr(taken, name).update(
                (key, replace(row) if name == "instances" and row is not None else row)
                for key, row in rows.items()
            )
        taken.removed_jobs = set(changes.removed_jobs)
        taken.jobs = {job_id: copied(job) for job_id, job in changes.jobs.items()}
        taken.log_streams = dict(changes.log_streams)
        taken.outbox = dict(changes.outbox)
        taken.service_jobs = {key: copied_service(job) for key, job in changes.service_jobs.items()}
        taken.ticks = {key: replace(tick) for key, tick in changes.ticks.items()}
        return taken

    def commit(self, changes: Changes) -> list[str]:
        """Write a round, all or nothing."""
        for name in SMALL:
            rows = self.small[name]
            for key, row in getattr(changes, name).items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        gone = changes.removed_jobs
        for job_id in [one.id for one in self.jobs.values() if one.id in gone or one.parent in gone]:
            self.removed.update(attempt.token for attempt in self.jobs.pop(job_id).attempts)
        for job in changes.jobs.values():
            self._check_path(job)
            self.last_order = max(self.last_order, job.order)
        self.jobs.update(changes.jobs)
        self.ticks.update(changes.ticks)
        self.service_jobs.update(changes.service_jobs)
        self.outbox.update(changes.outbox)
        self.log_streams.update((stream.task_id, stream.job_id) for stream in changes.log_streams.values())
        self.commits += 1
        return self._purge(changes)

    def _check_path(self, job: Job) -> None:
        old = self.jobs.get(job.id)
        if old is None:
            return
        if job.state not in REACHABLE[old.state]:
            raise BrokenPromise(f"the store saw {old.state} and then {job.state}: {job.story()}")
        if old.state in TERMINAL and [a.token for a in old.attempts] != [a.token for a in job.attempts]:
            raise BrokenPromise(f"a finished job got another attempt: {job.story()}")
        for before, after in zip(old.attempts, job.attempts, strict=False):
            if before.token != after.token or (before.stopped_at is not None and before != after):
                raise BrokenPromise(f"an attempt that had ended was changed from {before} to {after}")
        decided = len(old.gang_ends)
        if job.gang_ends[:decided] != old.gang_ends or (
            old.state in TERMINAL and len(job.gang_ends) != decided
        ):
            raise BrokenPromise(f"the end of a try was decided again: {old.gang_ends} to {job.gang_ends}")

    def _purge(self, changes: Changes) -> list[str]:
        if changes.purge is None:
            return []
        old = [
            job.id
            for job in self.jobs.values()
            if job.parent is None and job.stopped_at is not None and job.stopped_at < changes.purge.before
        ]
        gone = set(old[: changes.purge.limit])
        gone |= {job.id for job in self.jobs.values() if job.parent in gone}
        self.purged |= gone
        for job_id in gone:
            del self.jobs[job_id]
        tasks = [task for task, job_id in self.log_streams.items() if job_id in gone]
        for task in tasks:
            del self.log_streams[task]
        return tasks

    def load(self) -> Loaded:
        """What a starting daemon reads: jobs that have not finished, in FIFO order."""
        live = sorted((job for job in self.jobs.values() if not job.finished), key=lambda job: job.order)
        return Loaded(
            **{
                name: [replace(row) if name == "instances" else row for row in self.small[name].values()]
                for name in SMALL
            },
            jobs=[copied(job) for job in live],
            finished_children=[
                (job.parent, job.index, job.state)
                for job in self.jobs.values()
                if job.finished and job.parent is not None and job.index is not None
                if not self.jobs[job.parent].finished
            ],
            service_jobs=[copied_service(job) for job in self.service_jobs.values() if not job.finished],
            ticks=[replace(tick) for tick in self.ticks.values() if tick.undone],
            last_order=self.last_order,
        )

    def crash(self) -> None:
        """The process that wrote here has died; all that was applied stays."""

    def finished(self, ids: Iterable[JobId]) -> tuple[FinishedJob, ...]:
        """What the wire looks up before it hands a submission to the core."""
        found = []
        for job_id in ids:
            job = self.jobs.get(job_id)
            if job is not None and job.finished:
                size = job.submission.array_size if job.parent is None else None
                children = final_states(job, self._ended_children(job_id)) if job.is_array else None
                found.append(FinishedJob(job_id, job.state, size, children))
                continue
            state = self._child_at_rest(job_id)
            if state is not None:
                found.append(FinishedJob(job_id, state))
        return tuple(found)

    def _ended_children(self, array: JobId) -> Iterator[tuple[int, JobState]]:
        for job in self.jobs.values():
            if job.parent == array and job.index is not None:
                yield job.index, job.state

    def _child_at_rest(self, job_id: JobId) -> JobState | None:
        parent, _, index = job_id.partition(":")
        array = self.jobs.get(JobId(parent)) if index and job_id not in self.jobs else None
        return array.rest if array is not None and array.rest in TERMINAL else None
