"""Places that attempts were asked to leave, and the jobs they are for.

Remembered until the job has its place or some time has passed after the notice was over: those who leave may be gone
before all is free that the job needs. Worked out again after a restart from what the attempts say. Decides nothing;
the scheduler keeps the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import AttemptToken, InstanceId, JobId, MachineId
from windfall.jobs.job import Job

#: A job that has not got its place by then will not get it by these who left.
KEPT_AFTER_MS = 60_000


@dataclass(frozen=True, slots=True)
class LeftPlace:
    """One attempt that was asked to leave."""

    job_id: JobId
    machine: MachineId
    until: int
    asked_at: int = 0


class LeftPlaces(dict[AttemptToken, LeftPlace]):
    """All attempts that were asked to leave for a job, the left ones included."""

    def note(self, attempt: Attempt, machine: MachineId | None) -> None:
        """Remember an attempt that leaves for a job."""
        if attempt.stop_for is not None and machine is not None:
            until = (attempt.deadline_at or 0) + KEPT_AFTER_MS
            self[attempt.token] = LeftPlace(attempt.stop_for, machine, until, attempt.stop_at or 0)

    def served(self, job_id: JobId, machine: MachineId | None, *, is_array: bool) -> None:
        """A job has got its place; of an array one child has."""
        mine = [token for token, left in self.items() if left.job_id == job_id]
        if is_array:
            mine = [token for token in mine if self[token].machine == machine][:1]
        for token in mine:
            del self[token]

    def taken(self, job: Job, machine_of: Callable[[InstanceId], MachineId | None]) -> None:
        """Forget, after a restart, what was left to a job before it had its places; of an array each child has one."""
        for attempt in job.attempts:
            mine = [
                token
                for token, left in self.items()
                if left.asked_at <= attempt.placed_at
                and (
                    left.job_id == job.id
                    or (left.job_id, left.machine) == (job.parent, machine_of(attempt.instance))
                )
            ]
            for token in mine if job.parent is None else mine[:1]:
                del self[token]

    def counted(self, now: int) -> Counter[tuple[JobId, MachineId]]:
        """How many were asked to leave for each job on each machine; what is too old counts no more."""
        return Counter((left.job_id, left.machine) for left in self.values() if left.until > now)

    def forget(self, now: int) -> None:
        """Drop what counts no more."""
        for token in [token for token, left in self.items() if left.until <= now]:
            del self[token]
