"""The questions of the page about jobs: lists, counts, one job in one look, arrays as maps, marks, and several whys.

Reads the store and the state, and hands what it read to views/, which spells the answers. Every answer is bounded: what
it costs depends on what it shows and not on how many jobs there are. Decides which records an answer needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import JobFilter, Store
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.costs import Owners
from windfall.daemon.gateway import LongReads
from windfall.daemon.questions import Questions
from windfall.daemon.request_fields import limit_of, needed_text, no_such_job, optional_text, texts
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.arrays import ChildTable
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.job import Job
from windfall.jobs.states import JobState
from windfall.store.errors import BadPosition
from windfall.views import job_rows, jobs
from windfall.views.spelling import Answer

ROWS_MAX, ROWS_USUAL = 200, 100
IDS_MAX, WHYS_MAX = 100, 20
BUCKETS_MAX, BUCKETS_USUAL = 200, 60
#: For how long a histogram serves all that ask for the same: this long, and for this many times what it cost.
HISTOGRAM_LASTS_MS, HISTOGRAM_COSTS = 10_000, 100
_HISTOGRAMS_MAX = 64
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
#: The lengths of a histogram's steps: those that people count in.
STEPS_MS = (
    *(seconds * 1000 for seconds in (1, 5, 15)),
    *(minutes * _MINUTE_MS for minutes in (1, 5, 15, 60, 180, 360, 720)),
    *(days * _DAY_MS for days in (1, 2, 7, 30, 365)),
)

#: Histograms by what was asked, each with the time until which it serves.
Histograms = dict[tuple[Any, ...], tuple[int, Answer]]


class PageQuestions:
    """The handlers, for one caller."""

    def __init__(
        self,
        gate: TenantGateway,
        questions: Questions,
        owners: Owners,
        long_reads: LongReads,
        clock_ms: Callable[[], int],
        histograms: Histograms,
    ) -> None:
        """`histograms` is shared by all callers."""
        self._gate = gate
        self._questions = questions
        self._owners = owners
        self._long_reads = long_reads
        self._clock_ms = clock_ms
        self._histograms = histograms

    async def list_jobs(self, call: Call) -> Answer:
        """A page of jobs by age, or of an array's children by index."""
        wanted, limit, after = (
            _wanted(call),
            limit_of(call, ROWS_USUAL, ROWS_MAX),
            optional_text(call, "after"),
        )
        try:
            page = await self._gate.read(lambda store: store.list_jobs(wanted, limit, after))
        except BadPosition:
            raise ApiError(
                "Invalid", "after must be the `next` of an earlier answer to the same question."
            ) from None
        return {"at": self._clock_ms(), "rows": await self._rows(call, page.jobs), "next": page.next_after}

    async def rows(self, call: Call) -> Answer:
        """The rows of these jobs (`jobIds`); unknown ones are left out."""
        ids = _ids(call, IDS_MAX)
        records = await self._gate.read(lambda store: store.jobs(ids))
        return {"at": self._clock_ms(), "rows": await self._rows(call, records)}

    async def _rows(self, call: Call, listed: list[Job]) -> list[Answer]:
        name_of = await self._owners.named(call.caller)
        return [job_rows.row(job, name_of(job.submission.submitter)) for job in listed]

    async def counts(self, _: Call) -> Answer:
        """How many top-level jobs each queue has in each state, and all queues together."""
        by_queue: dict[str, dict[str, int]] = {}
        total: dict[str, int] = {}
        counted = await self._gate.read(lambda store: store.counts())
        for (queue, state), number in sorted(counted.items()):
            by_queue.setdefault(queue, {})[state] = number
            total[state] = total.get(state, 0) + number
        return {"at": self._clock_ms(), "counts": by_queue, "total": total}

    async def submissions(self, call: Call) -> Answer:
        """How many jobs were submitted over time, by their present state."""
        now = self._clock_ms()
        since, until = _time(call, "sinceAt", None), _time(call, "untilAt", now)
        queue, buckets = optional_text(call, "queue"), call.params.get("buckets", BUCKETS_USUAL)
        if type(buckets) is not int or not 1 <= buckets <= BUCKETS_MAX:
            raise ApiError("Invalid", f"buckets must be a whole number from 1 to {BUCKETS_MAX}.")
        if until <= since:
            raise ApiError("Invalid", "untilAt must be later than sinceAt.")
        step_ms = next((step for step in STEPS_MS if (until - since) <= step * buckets), until - since)
        # A span that ends now moves with the clock; on the grid of its steps it stays the same for a while.
        since, until = since // step_ms * step_ms, -(-until // step_ms) * step_ms
        key = (self._gate.view, since, until, queue)
        made = self._histograms.get(key)
        if made is not None and now < made[0]:
            return made[1]
        name = None if queue is None else QueueName(queue)
        begin = time.perf_counter()
        counted = await self._long_reads.read(lambda store: store.submitted((since, until), step_ms, name))
        by_step: dict[int, dict[str, int]] = {}
        for (step, state), number in sorted(counted.items()):
            by_step.setdefault(step, {})[state] = number
        answer: Answer = {
            "at": now,
            "fromAt": since,
            "toAt": until,
            "stepMs": step_ms,
            "buckets": [{"at": since + step * step_ms, "counts": counts} for step, counts in by_step.items()],
        }
        if len(self._histograms) >= _HISTOGRAMS_MAX:
            self._histograms.clear()
        # It reads as much as there were jobs in the span: a long read is repeated so rarely that it costs little.
        cost_ms = (time.perf_counter() - begin) * 1000
        self._histograms[key] = (now + int(max(HISTOGRAM_LASTS_MS, HISTOGRAM_COSTS * cost_ms)), answer)
        return answer

    async def job_page(self, call: Call) -> Answer:
        """One job with its attempts, their marks, why it is where it is, and what stopping it would cost."""
        job = await self._job(call)
        now, submission = self._clock_ms(), job.submission
        length: float | None = None
        if not job.finished:
            key = (submission.queue, submission.definition)
            length = await self._gate.inspect(lambda state, *_: state.lengths.get(key))
        return {
            "at": now,
            "row": (await self._rows(call, [job]))[0],
            "checkpointUri": jobs.attempts(job)["checkpointUri"],
            "attempts": job_rows.attempts_of_page(job),
            "priorityChanges": job_rows.priority_changes(job),
            "why": await self._why(call, job.id),
            "expectedEnd": job_rows.expected_end(job, length, now),
            "lossIfStopped": job_rows.loss_if_stopped(job, now),
        }

    async def marks(self, call: Call) -> Answer:
        """The checkpoints of each attempt of a job."""
        return job_rows.marks(await self._job(call))

    async def whys(self, call: Call) -> Answer:
        """Why these jobs are where they are; unknown ones are left out."""
        ids = _ids(call, WHYS_MAX)
        # Asked together, so one round of the loop answers them all.
        answers = await asyncio.gather(*(self._why(call, job_id) for job_id in ids))
        return {"at": self._clock_ms(), "answers": [answer for answer in answers if answer is not None]}

    async def array_map(self, call: Call) -> Answer:
        """The children of an array, one letter each."""
        job = await self._job(call)
        if not job.is_array:
            raise ApiError("Invalid", f"{job.id} is not an array; only arrays have a map.")

        def live(state: State, _: Offers, now: int) -> Answer | None:
            table: ChildTable | None = state.children.get(job.id)
            return None if table is None else job_rows.array_map(job, table, (), now)

        answer: Answer | None = None if job.finished else await self._gate.inspect(live)
        if answer is not None:
            return answer

        def stored(store: Store) -> tuple[list[Job], list[tuple[int, JobState]]]:
            return store.jobs([job.id]), store.ended_children(job.id)

        records, ended = await self._gate.read(stored)
        return job_rows.array_map(records[0] if records else job, None, ended, self._clock_ms())

    async def _job(self, call: Call) -> Job:
        job_id = JobId(needed_text(call, "jobId"))
        records: list[Job] = await self._gate.read(lambda store: store.jobs([job_id]))
        if not records:
            raise no_such_job(job_id)
        return records[0]

    async def _why(self, call: Call, job_id: JobId) -> Answer | None:
        try:
            return await self._questions.why(replace(call, params={"jobId": job_id}))
        except ApiError as error:
            if error.code != "NotFound":
                raise
            return None


def _wanted(call: Call) -> JobFilter:
    parent, name, queue = (optional_text(call, member) for member in ("parent", "name", "queue"))
    try:
        states = tuple(JobState(text) for text in texts(call, "states"))
    except ValueError:
        raise ApiError("Invalid", f"states must be of {', '.join(JobState)}.") from None
    since, until = call.params.get("sinceAt"), call.params.get("untilAt")
    is_prefix = name is not None and name.endswith("*")
    return JobFilter(
        queue=None if queue is None else QueueName(queue),
        parent=None if parent is None else JobId(parent),
        states=states or None,
        name=name.removesuffix("*") if name is not None else None,
        name_is_prefix=is_prefix,
        created_after=None if since is None else _time(call, "sinceAt", None),
        created_before=None if until is None else _time(call, "untilAt", None),
        oldest_first=call.params.get("oldestFirst") is True,
    )


def _time(call: Call, name: str, default: int | None) -> int:
    value = call.params.get(name, default)
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ApiError("Invalid", f"{name} must be a time in whole milliseconds since the epoch.")
    return value


def _ids(call: Call, most: int) -> list[JobId]:
    ids = texts(call, "jobIds")
    if not 1 <= len(ids) <= most:
        raise ApiError("Invalid", f"jobIds is required (a list of 1 to {most} job ids).")
    return [JobId(job_id) for job_id in dict.fromkeys(ids)]
