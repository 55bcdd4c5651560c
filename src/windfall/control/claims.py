"""Places that attempts were asked to leave, and the jobs they are for.

Remembered until the job has its place or some time has passed after the notice was over: those who leave may be gone
before all is free that the job needs. Worked out again after a restart from what the attempts say. Decides nothing;
the scheduler keeps the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
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
    #: When it had left, as far as that is known.
    left_at: int | None = None


class LeftPlaces(dict[AttemptToken, LeftPlace]):
    """All attempts that were asked to leave for a job, the left ones included."""

    def note(self, attempt: Attempt, machine: MachineId | None) -> None:
        """Remember an attempt that leaves for a job."""
        if attempt.stop_for is not None and machine is not None:
            until = (attempt.deadline_at or 0) + KEPT_AFTER_MS
            self[attempt.token] = LeftPlace(
                attempt.stop_for, machine, until, attempt.stop_at or 0, attempt.stopped_at
            )

    def served(
        self,
        job: Job,
        machine: MachineId | None,
        live: Container[AttemptToken],
        like_it: Callable[[JobId], Job | None],
    ) -> None:
        """A job has got its place; of an array one child has.

        Jobs that are alike have their turns in their order: one that is placed when all have left who were asked to for
        another one just like it has had that one's place.
        """
        mine = [token for token, left in self.items() if left.job_id == job.id]
        if job.is_array:
            mine = [token for token in mine if self[token].machine == machine][:1]
        if not mine:
            waiting = {left.job_id for token, left in self.items() if token in live}
            mine = self._of_another(like_it, waiting)
        for token in mine:
            del self[token]

    def taken(
        self,
        job: Job,
        attempt: Attempt,
        machine_of: Callable[[InstanceId], MachineId | None],
        like_it: Callable[[JobId], Job | None],
    ) -> None:
        """Forget, after a restart, what was left before an attempt had its place; of an array each child has one."""
        at = attempt.placed_at
        mine = [
            token
            for token, left in self.items()
            if left.asked_at <= at
            and (
                left.job_id == job.id
                or (left.job_id, left.machine) == (job.parent, machine_of(attempt.instance))
            )
        ]
        if job.parent is not None:
            mine = mine[:1]
        if not mine:
            waiting = {left.job_id for left in self.values() if left.left_at is None or left.left_at > at}
            mine = self._of_another(like_it, waiting)
        for token in mine:
            del self[token]

    def _of_another(
        self, like_it: Callable[[JobId], Job | None], waiting: Container[JobId]
    ) -> list[AttemptToken]:
        """Those who have left for the first job that is like one; of an array's, one."""
        for left in self.values():
            other = None if left.job_id in waiting else like_it(left.job_id)
            if other is not None:
                found = [token for token, each in self.items() if each.job_id == other.id]
                return found[:1] if other.is_array else found
        return []

    def counted(self, now: int) -> Counter[tuple[JobId, MachineId]]:
        """How many were asked to leave for each job on each machine; what is too old counts no more."""
        return Counter((left.job_id, left.machine) for left in self.values() if left.until > now)

    def left_at(self, job_id: JobId) -> int:
        """When the last of those who leave for a job has left at the latest."""
        return max(left.until for left in self.values() if left.job_id == job_id) - KEPT_AFTER_MS

    def forget(self, now: int) -> None:
        """Drop what counts no more."""
        for token in [token for token, left in self.items() if left.until <= now]:
            del self[token]
