"""Which jobs waste their GPUs, why, and what to do: the operation `Advise`.

Reads jobs from the store and their samples from the log directory, asks the advisor, and answers plain JSON, the
largest waste first. Decides which attempts a request is about and what is known of the machine they ran on; the advisor
does all the judging.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from windfall.accounting.prices import Rates, price_of
from windfall.advisor.advice import Advice, Holding
from windfall.advisor.causes import MEANING
from windfall.advisor.consulting import Consultation, consult
from windfall.advisor.finding import find_cause
from windfall.advisor.samples import Recording
from windfall.advisor.signs import HardwareLimits
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.capacity import catalog
from windfall.capacity.machines import Machine
from windfall.control.ports import AttemptFiles, JobFilter, Store
from windfall.daemon.costs import LIVE
from windfall.daemon.gateway import StoreReader
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job

_HOUR_MS = 3_600_000
_PAGE = 500
#: Jobs with GPUs that one answer covers; it says when there are more.
MOST_JOBS = 1_000

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Seen:
    """One attempt with what was measured of it."""

    job: Job
    attempt: Attempt
    consultation: Consultation | None
    hours: float


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
        self._reader = reader
        self._samples = samples
        self._rates = rates
        self._clock_ms = clock_ms
        self._sample_every_s = sample_every_s
        #: The speed of this host's network; it applies to attempts whose instance type is not in the catalog.
        self._link_bytes_s = link_bytes_s

    async def advise(self, call: Call) -> Answer:
        """One job (`jobId`), or all with GPUs that are live or were created since (`sinceAt`)."""
        now = self._clock_ms()
        wanted = call.params.get("jobId")
        if wanted is not None:
            jobs, more = await self._one(wanted), False
        else:
            since = call.params.get("sinceAt", 0)
            if not isinstance(since, int) or isinstance(since, bool):
                raise ApiError("Invalid", "sinceAt must be a time in whole milliseconds since the epoch.")
            jobs, more = await self._since(since)
        rows = await asyncio.to_thread(self._rows, jobs, now)
        rows.sort(key=lambda row: -(row["wastedGpuHours"] or 0.0))
        return {"now": now, "jobs": rows, "truncated": more}

    async def _one(self, wanted: Any) -> list[Job]:
        if not isinstance(wanted, str) or not wanted:
            raise ApiError("Invalid", "jobId is required (a non-empty string).")
        jobs_of_id: list[Job] = await self._reader.read(lambda store: store.jobs([JobId(wanted)]))
        if not jobs_of_id:
            raise ApiError(
                "NotFound", f"There is no job {wanted} that has run; `windfall jobs --all` lists them.", 404
            )
        if not jobs_of_id[0].is_array and not jobs_of_id[0].is_gang:
            return jobs_of_id
        jobs: list[Job] = [job for job in jobs_of_id if job.is_gang]
        await self._gather(JobFilter(parent=jobs_of_id[0].id), jobs)
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

    def _rows(self, jobs: list[Job], now: int) -> list[Answer]:
        single = len(jobs) == 1
        return [self._row(job, now) for job in jobs if single or (job.resources.gpus and job.attempts)]

    def _row(self, job: Job, now: int) -> Answer:
        seen = [self._look(job, attempt, now) for attempt in job.attempts]
        sampled = [
            (measured.attempt, measured.consultation)
            for measured in seen
            if measured.consultation is not None
        ]
        shown = [
            (attempt, consultation)
            for attempt, consultation in sampled
            if consultation.finding.busy is not None
        ] or sampled[-1:]
        wasted = [
            consultation.wasted_gpu_hours
            for _, consultation in shown
            if consultation.wasted_gpu_hours is not None
        ]
        gpus = job.needs.gpus
        row: Answer = {
            "jobId": job.id,
            "jobName": job.submission.name,
            "jobDefinition": job.submission.definition,
            "queue": job.submission.queue,
            "state": job.state,
            "gpus": gpus,
            "gpuHours": gpus * sum(measured.hours for measured in seen),
            "wastedGpuHours": sum(wasted) if wasted else None,
        }
        if not shown:
            return row | _nothing() | {"note": self._why_nothing(job, seen)}
        attempt, consultation = shown[-1]
        return row | {"attempt": attempt.number} | _advised(consultation)

    def _look(self, job: Job, attempt: Attempt, now: int) -> _Seen:
        begun = attempt.started_at or attempt.placed_at
        hours = max(0, (attempt.stopped_at or now) - begun) / _HOUR_MS
        recording = self._samples.recording(attempt.task_id) if job.resources.gpus else None
        if recording is None or not recording.samples:
            return _Seen(job, attempt, None, hours)
        holding = Holding(
            hours,
            price_of(attempt, job.needs, self._rates).paid_usd,
            attempt.instance_type,
            gpus=job.needs.gpus,
            share=attempt.gpu_share,
        )
        place = self._place(recording, attempt.instance_type)
        return _Seen(job, attempt, consult(recording, place, holding), hours)

    def cause(self, recording: Recording, job: Job) -> str | None:
        """What limits a running job, in one word; None when nothing can be said."""
        finding = find_cause(recording, self._place(recording, job.attempts[-1].instance_type))
        return None if finding.cause is None else finding.cause.value

    def _place(self, recording: Recording, instance_type: str | None) -> HardwareLimits:
        kind = catalog.find(instance_type) if instance_type else None
        network = None
        if kind is not None and kind.network_gbps is not None:
            network = kind.network_gbps * 1e9 / 8
        elif kind is None:
            network = self._link_bytes_s()
        pcie = next((gpu.pcie_bytes_s for gpu in recording.gpus), None)
        return HardwareLimits(recording.vcpus, network, pcie_bytes_s=pcie)

    def _why_nothing(self, job: Job, seen: list[_Seen]) -> str:
        if not job.resources.gpus:
            return "it uses no GPU, so there is nothing to advise"
        if not seen:
            return "it has not run"
        if not self._sample_every_s:
            return "sampling is off: set sample_every_s in windfall.toml"
        if sum(measured.hours for measured in seen) * 3600 < 5 * self._sample_every_s:
            return "too short to be sampled"
        return "it has no samples: they were removed with its log, or its agent was too old to take them"


def link_bytes_s(machine: Machine | None) -> float | None:
    """Bytes per second of a machine's network, as its agent reported; None when it did not."""
    mbits = "" if machine is None else machine.facts.get("network_mbits", "")
    return int(mbits) * 1e6 / 8 if mbits else None


def _page(wanted: JobFilter, after: str | None, store: Store) -> tuple[list[Job], str | None]:
    page = store.list_jobs(wanted, _PAGE, after)
    return page.jobs, page.next_after


def _nothing() -> Answer:
    return {
        "attempt": None,
        "busy": None,
        "cause": None,
        "meaning": None,
        "confidence": 0.0,
        "evidence": [],
        "missing": [],
        "branches": [],
        "advice": [],
        "noHelp": [],
    }


def _advised(consultation: Consultation) -> Answer:
    finding = consultation.finding
    return {
        "busy": finding.busy,
        "cause": finding.cause,
        "meaning": None if finding.cause is None else MEANING[finding.cause],
        "confidence": finding.confidence,
        "evidence": list(finding.evidence),
        "missing": [{"what": gap.what, "how": gap.how} for gap in finding.missing],
        "branches": [
            {"cause": branch.cause, "condition": branch.condition, "meaning": MEANING[branch.cause]}
            for branch in finding.branches
        ],
        "advice": [_advice(advice) for advice in consultation.advice],
        "noHelp": list(consultation.no_help),
        "note": None,
    }


def _advice(advice: Advice) -> Answer:
    return {
        "kind": advice.kind,
        "cause": advice.cause,
        "text": advice.text,
        "utilisation": advice.utilisation,
        "timeFactor": advice.time_factor,
        "usdHour": advice.usd_hour,
        "usdJob": advice.usd_job,
        "assumptions": list(advice.assumptions),
        "confidence": advice.confidence,
    }
