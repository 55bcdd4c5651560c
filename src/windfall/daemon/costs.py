"""What jobs cost, and whose they are: the operations `Cost` and `Owners`.

Decides which jobs a request covers; views/costs.py makes the answer. Pages are read one by one, so a long answer does
not block other readers. Names of owners are read from the keys file on demand, so revoked keys have one too. Must not
show a tenant what belongs to another: the reader that it is given does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from windfall.accounting.prices import Rates
from windfall.aws_api.protocol.errors import ApiError, KeyFileError
from windfall.aws_api.protocol.keys import load_keys
from windfall.aws_api.protocol.service import Call, Caller
from windfall.control.ports import JobFilter, Store
from windfall.daemon.gateway import StoreReader
from windfall.daemon.request_fields import needed_text, no_such_job, since_of
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.states import TERMINAL, JobState
from windfall.jobs.submitters import Submitter
from windfall.views.costs import KINDS, ORDINARY, TAG, Bill, Bounds, OwnerOf, ledger, owner_of
from windfall.views.spelling import Answer

LIVE = tuple(state for state in JobState if state not in TERMINAL)
#: Jobs that one request for owners may name.
OWNED_JOBS_MAX = 10_000


class Owners:
    """The handler of `Owners`, and the names of owners for others."""

    def __init__(self, reader: StoreReader, keys_file: Path) -> None:
        self._reader = reader
        self._keys_file = keys_file

    async def named(self, caller: Caller) -> OwnerOf:
        """A function from submitters to owners' current names, for this caller."""
        names = await asyncio.to_thread(self._names)
        with_tenant = caller.sees_all
        return lambda submitter: owner_of(submitter, names, with_tenant=with_tenant)

    async def list(self, call: Call) -> Answer:
        """The owners of these jobs (`jobIds`), and whether the caller's own key submitted each."""
        wanted = call.params.get("jobIds")
        if not isinstance(wanted, list) or not all(isinstance(job_id, str) for job_id in wanted):
            raise ApiError("Invalid", "jobIds is required (a list of job ids).")
        if len(wanted) > OWNED_JOBS_MAX:
            raise ApiError("Invalid", f"jobIds may have at most {OWNED_JOBS_MAX} ids, not {len(wanted)}.")
        ids = [JobId(job_id) for job_id in wanted]
        name_of = await self.named(call.caller)
        submitters: dict[JobId, Submitter] = await self._reader.read(lambda store: _submitters(store, ids))
        return {
            "owners": {
                job_id: {
                    "owner": name_of(submitter),
                    "tenant": submitter.tenant,
                    "mine": submitter.key_id == call.caller.access_key_id,
                }
                for job_id, submitter in submitters.items()
            }
        }

    def _names(self) -> dict[str, str]:
        try:
            return {key.access_key_id: key.name for key in load_keys(self._keys_file) if key.name}
        except KeyFileError:
            return {}


class CostQueries:
    """The handler of `Cost`."""

    def __init__(
        self,
        reader: StoreReader,
        rates: Rates,
        clock_ms: Callable[[], int],
        bounds: Bounds = ORDINARY,
        owners: Owners | None = None,
    ) -> None:
        self._reader = reader
        self._rates = rates
        self._clock_ms = clock_ms
        self._bounds = bounds
        self._owners = owners

    async def cost(self, call: Call) -> Answer:
        """One job's ledger (`jobId`), or sums `by` queue, user and so on over jobs that are live or newer."""
        now = self._clock_ms()
        if call.params.get("jobId") is not None:
            return await self._one(JobId(needed_text(call, "jobId")), now)
        by, since = _by(call), since_of(call)
        bill = Bill(by, self._rates, now, self._bounds)
        if by == "user" and self._owners is not None:
            bill.owner_of = await self._owners.named(call.caller)
        for wanted in (JobFilter(created_after=since - 1), JobFilter(states=LIVE, created_before=since)):
            await self._gather(bill, wanted)
        return bill.answer() | {"by": by, "sinceAt": since, "now": now}

    async def _one(self, job_id: JobId, now: int) -> Answer:
        jobs: list[Job] = await self._reader.read(lambda store: store.jobs([job_id]))
        if not jobs:
            raise no_such_job(job_id, that_ran=True)
        job = jobs[0]
        about = {"jobId": job.id, "jobName": job.submission.name, "state": job.state}
        if job.is_array or job.is_gang:
            bill = Bill("job", self._rates, now, self._bounds, own_rows=True)
            if job.is_gang:
                bill.add(job)
            await self._gather(bill, JobFilter(parent=job.id))
            return about | bill.answer() | {"by": "job", "sinceAt": 0, "now": now}
        return about | ledger(job, self._rates, now)

    async def _gather(self, bill: Bill, wanted: JobFilter) -> None:
        after: str | None = None
        while True:
            after = await self._reader.read(partial(_take, bill, wanted, after))
            if after is None or bill.full:
                return


def _take(bill: Bill, wanted: JobFilter, after: str | None, store: Store) -> str | None:
    """Add a page of jobs, arrays with all their children; returns where the next page begins."""
    page = store.list_jobs(wanted, bill.bounds.page, after)
    for job in page.jobs:
        for part in _unfolded(bill, store, job):
            bill.add(part)
    return page.next_after


def _unfolded(bill: Bill, store: Store, job: Job) -> Iterator[Job]:
    """The job with its other nodes, or the children of an array: the array itself uses nothing."""
    if not job.is_array:
        yield job
    if not job.is_array and not job.is_gang:
        return
    after: str | None = None
    while not bill.full:
        page = store.list_jobs(JobFilter(parent=job.id), bill.bounds.page, after)
        yield from page.jobs
        after = page.next_after
        if after is None:
            return


def _submitters(store: Store, ids: list[JobId]) -> dict[JobId, Submitter]:
    submitters = {job.id: job.submission.submitter for job in store.jobs(ids)}
    missing = [job_id for job_id in ids if job_id not in submitters]
    return submitters | {job.id: job.submitter for job in (store.service_jobs(missing) if missing else [])}


def _by(call: Call) -> str:
    by = call.params.get("by", "queue")
    if by in KINDS or (isinstance(by, str) and by.startswith(TAG) and len(by) > len(TAG)):
        return str(by)
    raise ApiError("Invalid", f"by must be {', '.join(KINDS)} or {TAG}NAME, not {by!r}.")
