"""One job's consultation: what limits it, what to do, and what its idle GPUs cost. What `windfall advise` shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from windfall.advisor.advice import NO_HELP, Advice, Holding, changes, shares
from windfall.advisor.causes import Finding, Gap
from windfall.advisor.finding import judged
from windfall.advisor.profile import profile_of
from windfall.advisor.samples import Recording
from windfall.advisor.signs import HardwareLimits
from windfall.advisor.types import instances, model_of
from windfall.capacity.catalog import CATALOG, Catalog

_NEIGHBOURS = Gap(
    "how much of the shared GPU's work is its own", "run it alone for a while, or on a slice of its own (MIG)"
)


@dataclass(frozen=True, slots=True)
class Consultation:
    """A finding with its consequences."""

    finding: Finding
    #: Those of the cause first, then those of each branch.
    advice: tuple[Advice, ...]
    #: What does not help, though people try it.
    no_help: tuple[str, ...]
    #: Held, and held without work on it; None when its use was not measured.
    gpu_hours: float
    wasted_gpu_hours: float | None


def consult(
    recording: Recording, hardware: HardwareLimits, holding: Holding, catalog: Catalog = CATALOG
) -> Consultation:
    """Everything that can be said about one attempt's use of its GPUs."""
    profile = profile_of(recording)
    finding = judged(profile, hardware)
    if holding.share is not None:
        # What is measured is the device's; the work may be its neighbours'.
        missing = (*finding.missing, _NEIGHBOURS)
        finding = replace(finding, confidence=round(finding.confidence * 0.6, 2), missing=missing)
    if holding.gpu_model is None and recording.gpus:
        holding = replace(holding, gpu_model=model_of(recording.gpus[0].name))
    causes = [finding.cause] if finding.cause is not None else []
    causes += [branch.cause for branch in finding.branches if branch.cause not in causes]
    advice: list[Advice] = []
    for number, cause in enumerate(causes):
        suggestions = [
            *changes(cause, profile, hardware, holding),
            *shares(cause, profile, holding),
            *instances(cause, profile, hardware, holding, catalog),
        ]
        # What holds only if a branch is the cause is as sure as half of that at most.
        sure = finding.confidence if number == 0 and finding.cause is not None else 0.5
        advice += [
            replace(each, confidence=round(each.confidence * max(sure, 0.2), 2)) for each in suggestions
        ]
    gpu_hours = holding.hours * holding.gpus
    wasted = None if finding.busy is None else gpu_hours * (1 - min(1.0, finding.busy))
    return Consultation(
        finding, tuple(advice), NO_HELP.get(finding.cause, ()) if finding.cause else (), gpu_hours, wasted
    )
