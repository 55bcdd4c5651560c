"""Which jobs waste their GPUs, why, and what to do: the operation `Advise`.

Reads jobs from the store and their samples from the log directory, and answers what views/advice.py makes of them, the
largest waste first. Decides which jobs a request is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from windfall.accounting.prices import Rates
from windfall.advisor.samples import Recording
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import AttemptFiles, JobFilter, Store
from windfall.daemon.costs import LIVE
from windfall.daemon.gateway import StoreReader
from windfall.daemon.request_fields import needed_text, no_such_job, since_of
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.views.advice import AdviceTerms, advised, cause_of, use_of
from windfall.views.spelling import Answer

_PAGE = 500
#: Jobs with GPUs that one answer covers; it says when there are more.
MOST_JOBS = 1_000


class Adviser:
    """The handler of `Advise`."""

    def __init__(
        self,
        reader: StoreReader,
        samples: AttemptFiles,
        rates: Rates,
        clock_ms: Callable[[], int],
        sample_every_s: float,
        link_bytes_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`link_bytes_s` is the speed of this host's network."""
        self._reader = reader
        self._samples = samples
        self._rates = rates
        self._clock_ms = clock_ms
        self._sample_every_s = sample_every_s
        self._link_bytes_s = link_bytes_s

    async def advise(self, call: Call) -> Answer:
        """One job (`jobId`), or all with GPUs that are live or were created since (`sinceAt`)."""
        terms = AdviceTerms(self._rates, self._clock_ms(), self._sample_every_s, self._link_bytes_s())
        if call.params.get("jobId") is not None:
            jobs, more = await self._one(JobId(needed_text(call, "jobId"))), False
        else:
            jobs, more = await self._since(since_of(call))
        rows = await asyncio.to_thread(self._rows, jobs, terms)
        rows.sort(key=lambda row: -(row["wastedGpuHours"] or 0.0))
        return {"now": terms.now, "jobs": rows, "truncated": more}

    async def _one(self, job_id: JobId) -> list[Job]:
        jobs_of_id: list[Job] = await self._reader.read(lambda store: store.jobs([job_id]))
        if not jobs_of_id:
            raise no_such_job(job_id, that_ran=True)
        if not jobs_of_id[0].is_array and not jobs_of_id[0].is_gang:
            return jobs_of_id
        jobs: list[Job] = [job for job in jobs_of_id if job.is_gang]
        await self._gather(JobFilter(parent=job_id), jobs)
        return jobs

    async def _since(self, since: int) -> tuple[list[Job], bool]:
        jobs: list[Job] = []
        for wanted in (JobFilter(created_after=since - 1), JobFilter(states=LIVE, created_before=since)):
            await self._gather(wanted, jobs)
        return jobs[:MOST_JOBS], len(jobs) > MOST_JOBS

    async def _gather(self, wanted: JobFilter, jobs: list[Job]) -> None:
        after: str | None = None
        while len(jobs) <= MOST_JOBS:
            page, after = await self._reader.read(partial(_page, wanted, after))
            for job in page:
                if not job.is_array:
                    jobs.append(job)
                if job.is_array or job.is_gang:
                    await self._gather(JobFilter(parent=job.id), jobs)
            if after is None:
                return

    def _rows(self, jobs: list[Job], terms: AdviceTerms) -> list[Answer]:
        single = len(jobs) == 1
        return [self._row(job, terms) for job in jobs if single or (job.resources.gpus and job.attempts)]

    def _row(self, job: Job, terms: AdviceTerms) -> Answer:
        has_gpus = bool(job.resources.gpus)
        uses = [
            use_of(job, attempt, self._samples.recording(attempt.task_id) if has_gpus else None, terms)
            for attempt in job.attempts
        ]
        return advised(job, uses, terms.sample_every_s)

    def cause(self, recording: Recording, instance_type: str | None) -> str | None:
        """What limits a running job, in one word; None when nothing can be said."""
        return cause_of(recording, instance_type, self._link_bytes_s())


def _page(wanted: JobFilter, after: str | None, store: Store) -> tuple[list[Job], str | None]:
    page = store.list_jobs(wanted, _PAGE, after)
    return page.jobs, page.next_after
