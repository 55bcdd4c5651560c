"""Which jobs waste their GPUs, why, and what to do: a row for each job of `Advise`.

Decides which attempts a row is about and what is known of the machine they ran on; the advisor does all the judging.
"""

from __future__ import annotations

from dataclasses import dataclass

from windfall.accounting.prices import Rates, price_of
from windfall.advisor.advice import Holding
from windfall.advisor.causes import MEANING
from windfall.advisor.consulting import Consultation, consult
from windfall.advisor.finding import find_cause
from windfall.advisor.samples import Recording
from windfall.advisor.signs import HardwareLimits
from windfall.capacity import catalog
from windfall.capacity.machines import Machine
from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job
from windfall.views.spelling import Answer, picked

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """One attempt, how long it had its place, and what its samples say; None without samples."""

    attempt: Attempt
    consultation: Consultation | None
    hours: float


@dataclass(frozen=True, slots=True)
class AdviceTerms:
    """What advice is based on besides jobs and samples."""

    rates: Rates
    now: int
    sample_every_s: float
    #: The speed of this host's network; it applies to attempts whose instance type is not in the catalog.
    link_bytes_s: float | None


def use_of(job: Job, attempt: Attempt, recording: Recording | None, terms: AdviceTerms) -> AttemptUse:
    """What an attempt made of its GPUs."""
    begun = attempt.started_at or attempt.placed_at
    hours = max(0, (attempt.stopped_at or terms.now) - begun) / _HOUR_MS
    if recording is None or not recording.samples:
        return AttemptUse(attempt, None, hours)
    holding = Holding(
        hours,
        price_of(attempt, job.needs, terms.rates).paid_usd,
        attempt.instance_type,
        gpus=job.needs.gpus,
        share=attempt.gpu_share,
    )
    limits = _limits(recording, attempt.instance_type, terms.link_bytes_s)
    return AttemptUse(attempt, consult(recording, limits, holding), hours)


def advised(job: Job, uses: list[AttemptUse], sample_every_s: float) -> Answer:
    """The row of a job, from all of its attempts."""
    sampled = [(use.attempt, use.consultation) for use in uses if use.consultation is not None]
    shown = [
        (attempt, consultation) for attempt, consultation in sampled if consultation.finding.busy is not None
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
        "gpuHours": gpus * sum(use.hours for use in uses),
        "wastedGpuHours": sum(wasted) if wasted else None,
    }
    if not shown:
        return row | _nothing() | {"note": _why_nothing(job, uses, sample_every_s)}
    attempt, consultation = shown[-1]
    return row | {"attempt": attempt.number} | _consulted(consultation)


def cause_of(recording: Recording, instance_type: str | None, link_bytes_s: float | None) -> str | None:
    """What limits a running job, in one word; None when nothing can be said."""
    finding = find_cause(recording, _limits(recording, instance_type, link_bytes_s))
    return None if finding.cause is None else finding.cause.value


def link_bytes_s(machine: Machine | None) -> float | None:
    """Bytes per second of a machine's network, as its agent reported; None when it did not."""
    mbits = "" if machine is None else machine.facts.get("network_mbits", "")
    return int(mbits) * 1e6 / 8 if mbits else None


def _limits(recording: Recording, instance_type: str | None, link: float | None) -> HardwareLimits:
    kind = catalog.find(instance_type) if instance_type else None
    network = None
    if kind is not None and kind.network_gbps is not None:
        network = kind.network_gbps * 1e9 / 8
    elif kind is None:
        network = link
    pcie = next((gpu.pcie_bytes_s for gpu in recording.gpus), None)
    return HardwareLimits(recording.vcpus, network, pcie_bytes_s=pcie)


def _why_nothing(job: Job, uses: list[AttemptUse], sample_every_s: float) -> str:
    if not job.resources.gpus:
        return "it uses no GPU, so there is nothing to advise"
    if not uses:
        return "it has not run"
    if not sample_every_s:
        return "sampling is off: set sample_every_s in windfall.toml"
    if sum(use.hours for use in uses) * 3600 < 5 * sample_every_s:
        return "too short to be sampled"
    return "it has no samples: they were removed with its log, or its agent was too old to take them"


def _nothing() -> Answer:
    unknown: Answer = dict.fromkeys(("attempt", "busy", "cause", "meaning"))
    empty: Answer = {name: [] for name in ("evidence", "missing", "branches", "advice", "noHelp")}
    return unknown | {"confidence": 0.0} | empty


def _consulted(consultation: Consultation) -> Answer:
    finding = consultation.finding
    return {
        **picked(finding, "busy cause confidence"),
        "meaning": None if finding.cause is None else MEANING[finding.cause],
        "evidence": list(finding.evidence),
        "missing": [picked(gap, "what how") for gap in finding.missing],
        "branches": [
            {**picked(branch, "cause condition"), "meaning": MEANING[branch.cause]}
            for branch in finding.branches
        ],
        "advice": [
            picked(advice, "kind cause text utilisation time_factor usd_hour usd_job assumptions confidence")
            for advice in consultation.advice
        ],
        "noHelp": list(consultation.no_help),
        "note": None,
    }
