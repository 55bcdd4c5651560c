"""Places that attempts were asked to leave, and the jobs they are for.

Remembered until the job has its place or some time has passed after the notice was over: those who leave may be gone
before all is free that the job needs. Each job keeps its own in its record, so that a restart forgets none; here they
are found without asking every job. Decides nothing; the scheduler keeps the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

from windfall.jobs.attempts import LeftPlace
from windfall.jobs.ids import AttemptToken, JobId, MachineId
from windfall.jobs.job import Job

#: A job that has not got its place by then will not get it by these who left.
KEPT_AFTER_MS = 60_000


@dataclass(slots=True)
class LeftPlaces:
    """The jobs that attempts were asked to leave for and that have not got their place yet, the first asked first."""

    _jobs: dict[JobId, Job] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __iter__(self) -> Iterator[AttemptToken]:
        """The attempts that were asked, the left ones included."""
        return (left.token for job in self._jobs.values() for left in job.left_places)

    def rebuild(self, job: Job) -> None:
        """Know a job of the store."""
        if job.left_places:
            self._jobs[job.id] = job

    def note(self, job: Job, left: LeftPlace) -> None:
        """Remember an attempt that leaves for a job."""
        job.left_places = (*job.left_places, left)
        self._jobs[job.id] = job

    def served(
        self,
        job: Job,
        machine: MachineId | None,
        live: Container[AttemptToken],
        like_it: Callable[[JobId], Job | None],
    ) -> Job | None:
        """A job has got its place; of an array one child has. The answer is whose record is another now.

        Jobs of one group have their turns in their order: one that is placed when all have left who were asked to for
        another one just like it has had that one's place.
        """
        mine = tuple(left for left in job.left_places if not job.is_array or left.machine == machine)
        owner = job if mine else next((other for other in self._all_left(live) if like_it(other.id)), None)
        if owner is None:
            return None
        taken = mine or owner.left_places
        if owner.is_array:
            taken = taken[:1]
        owner.left_places = tuple(left for left in owner.left_places if left not in taken)
        if not owner.left_places:
            del self._jobs[owner.id]
        return owner

    def _all_left(self, live: Container[AttemptToken]) -> list[Job]:
        """The jobs for which all have left who were asked to."""
        return [job for job in self._jobs.values() if not any(left.token in live for left in job.left_places)]

    def counted(self, now: int) -> Counter[tuple[JobId, MachineId]]:
        """How many were asked to leave for each job on each machine; what is too old counts no more."""
        return Counter(
            (job.id, left.machine)
            for job in self._jobs.values()
            for left in job.left_places
            if left.deadline_at + KEPT_AFTER_MS > now
        )

    def left_at(self, job_id: JobId) -> int:
        """When the last of those who leave for a job has left at the latest."""
        return max(left.deadline_at for left in self._jobs[job_id].left_places)

    def forget(self, now: int) -> list[Job]:
        """Drop what counts no more; the answer is whose records are others now."""
        changed = []
        for job in list(self._jobs.values()):
            left_places = tuple(left for left in job.left_places if left.deadline_at + KEPT_AFTER_MS > now)
            if left_places != job.left_places:
                job.left_places = left_places
                changed.append(job)
            if job.finished or not left_places:
                del self._jobs[job.id]
        return changed
