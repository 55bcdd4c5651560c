"""What to do about a cause: a change in the job, a share of a GPU, another instance type; with what each would bring.

The model is one line: time = GPU part + waiting part. The GPU part is the measured busy time; only the waiting part
shrinks with the resource that it waits for. Candidates for instance types are in types.py. Where a number would be a
guess there is none. Must not advise what the finding does not carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isnan

from windfall.advisor import thresholds as at
from windfall.advisor.causes import Cause
from windfall.advisor.profile import Profile
from windfall.advisor.signs import HardwareLimits
from windfall.advisor.wording import gib, percent, rate


class AdviceKind(StrEnum):
    """What would have to change."""

    CHANGE = "change"
    SHARE = "share"
    INSTANCE = "instance"


@dataclass(frozen=True, slots=True)
class Holding:
    """What a job holds and pays."""

    #: Hours so far, and US dollars an hour for all of it; None is not known.
    hours: float
    usd_hour: float | None = None
    instance_type: str | None = None
    #: The model of its GPUs as speeds.py and the catalog have it.
    gpu_model: str | None = None
    gpus: float = 1.0
    #: The part of one device that it holds already.
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, and what it would bring. None means that no number can be given honestly."""

    kind: AdviceKind
    #: The cause that it is for: the finding's own, or one of its branches.
    cause: Cause
    text: str
    utilisation: float | None = None
    #: The new time as a share of the present one.
    time_factor: float | None = None
    usd_hour: float | None = None
    #: For the hours that the job has held so far.
    usd_job: float | None = None
    assumptions: tuple[str, ...] = ()
    confidence: float = 0.5


#: What people try for a cause, and why it does not help.
NO_HELP: dict[Cause, tuple[str, ...]] = {
    Cause.NETWORK: (
        "another orchestrator (ECS, EKS, a script) on the same machine: it waits for the same link",
        "a faster GPU: it would wait longer",
    ),
    Cause.DISK: ("a faster GPU, or another orchestrator: both wait for the same disk",),
    Cause.CPU: ("a faster GPU, or more network: the CPU is what is waited for",),
    Cause.REQUESTS: (
        "more network or a larger GPU: nothing waits for them",
        "another orchestrator: it brings no requests",
    ),
    Cause.LAUNCH: ("a larger GPU: it is filled even less",),
}

#: What is smaller than all of a GPU, or than the present one, must have this much more memory than was ever used.
MEMORY_ROOM = 1.2
_SERIAL = "loading and computing take turns now, and the GPU part stays as it is"


def sped_up(busy: float, factor: float) -> tuple[float, float]:
    """Time factor and utilisation when the waiting part goes `factor` times as fast."""
    time = busy + (1 - busy) / factor
    return time, min(1.0, busy / time) if time else 0.0


def changes(cause: Cause, profile: Profile, hardware: HardwareLimits, holding: Holding) -> list[Advice]:
    """What can be done in the job itself."""
    texts = {
        Cause.NETWORK: _overlap,
        Cause.DISK: _overlap,
        Cause.CPU: _more_workers,
        Cause.LAUNCH: _larger_batch,
        Cause.SYNCHRONISATION: _fewer_waits,
        Cause.PCIE: _pinned,
        Cause.MEMORY: _fused,
        Cause.REQUESTS: _batched,
        Cause.IDLE: _released,
        Cause.START_UP: _warm,
        Cause.COMPUTE: _nothing,
    }
    return [priced(advice, holding) for advice in texts[cause](cause, profile, hardware)]


def priced(advice: Advice, holding: Holding, usd_hour: float | None = None) -> Advice:
    """The advice with its price: the present one unless it is said."""
    hourly = usd_hour if usd_hour is not None else advice.usd_hour
    if hourly is None:
        hourly = holding.usd_hour
    per_job = None
    if hourly is not None and advice.time_factor is not None:
        per_job = hourly * holding.hours * advice.time_factor
    return Advice(
        advice.kind,
        advice.cause,
        advice.text,
        advice.utilisation,
        advice.time_factor,
        hourly,
        per_job,
        advice.assumptions,
        advice.confidence,
    )


def shares(cause: Cause, profile: Profile, holding: Holding) -> list[Advice]:
    """A part of a GPU instead of all of it, where the work is little and its memory small enough to have neighbours."""
    if (
        cause not in (Cause.REQUESTS, Cause.IDLE, Cause.LAUNCH)
        or holding.share is not None
        or len(profile.used) > 1
    ):
        return []
    busy = profile.busy if not isnan(profile.busy) else 0.0
    if cause is Cause.LAUNCH:
        busy = profile.sm_active if not isnan(profile.sm_active) else busy
    # A share is one of the memory too. Where that is not known, a job that ran would perhaps run no more.
    memory = profile.gpu_memory_peak_bytes * MEMORY_ROOM / profile.gpu_memory_bytes
    needed = next((share for share in (0.1, 0.25, 0.5) if max(busy * 2, memory) <= share), None)
    if needed is None or isnan(memory):
        return []
    text = (
        f"hold {needed:g} of one GPU instead of all of it (tag windfall:gpu-share={needed:g}): that is"
        f" {gib(needed * profile.gpu_memory_bytes)} of its memory, and it used"
        f" {gib(profile.gpu_memory_peak_bytes)} at most"
    )
    hourly = None if holding.usd_hour is None else holding.usd_hour * needed / max(holding.gpus, 1.0)
    advice = Advice(
        AdviceKind.SHARE,
        cause,
        text,
        min(1.0, busy / needed),
        1.0,
        assumptions=(
            "the host's GPUs can be shared (MPS or MIG)",
            "twice its mean use is enough for its bursts",
            f"it will not use {MEMORY_ROOM:g} times as much memory as it did",
        ),
        confidence=0.7,
    )
    return [priced(advice, holding, hourly)]


def link_is_full(profile: Profile, hardware: HardwareLimits) -> bool:
    """Whether a faster link would help: not known counts as yes, because nothing speaks against it."""
    limit = hardware.network_bytes_s
    return limit is None or isnan(profile.rx_idle) or profile.rx_idle >= at.LINK_FULL[0] * limit


def _overlap(cause: Cause, profile: Profile, hardware: HardwareLimits) -> list[Advice]:
    busy = profile.busy
    time = max(busy, 1 - busy)
    text = "load the next batches while the GPU works (prefetch, more loader workers), move fewer bytes: compressed,"
    if cause is Cause.NETWORK:
        text += (
            " cached on the local disk after the first pass, as a channel that is brought before the start"
        )
        seen = profile.rx_idle
    else:
        text += " in few large files that are read in order, or kept in memory where they fit"
        seen = profile.read_idle
    assumptions = (
        [_SERIAL] if isnan(seen) else [_SERIAL, f"the same {rate(seen)} arrive: fewer bytes bring more"]
    )
    prefetch = Advice(
        AdviceKind.CHANGE, cause, text, busy / time, time, assumptions=tuple(assumptions), confidence=0.6
    )
    if cause is not Cause.NETWORK or link_is_full(profile, hardware):
        return [prefetch]
    source = (
        "the link has room: fetch over more connections at once, or from a source that is nearer or faster"
    )
    return [Advice(AdviceKind.CHANGE, cause, source, confidence=0.6), prefetch]


def _more_workers(cause: Cause, profile: Profile, hardware: HardwareLimits) -> list[Advice]:
    if isnan(profile.cores_idle):
        text = "prepare data on more of its vCPUs (in PyTorch num_workers), on the GPU, or store it ready"
        return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.5)]
    used = max(profile.cores_idle, 1.0)
    factor = min(hardware.vcpus / used, 16.0)
    if factor < 1.5:
        text = (
            f"it uses {used:.1f} of its {hardware.vcpus:g} vCPUs: ask for more (resourceRequirements VCPU), or prepare"
            " the data once and store it ready"
        )
        return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.6)]
    time, utilisation = sped_up(profile.busy, factor)
    text = (
        f"prepare data on more of its {hardware.vcpus:g} vCPUs: it uses {used:.1f}. In PyTorch num_workers="
        f"{max(2, int(hardware.vcpus) - 1)}; or decode and augment on the GPU, or store the data ready"
    )
    assumptions = (_SERIAL, f"preparing scales to {factor:.1f} times as many cores")
    return [
        Advice(AdviceKind.CHANGE, cause, text, utilisation, time, assumptions=assumptions, confidence=0.6)
    ]


def _larger_batch(cause: Cause, profile: Profile, _: HardwareLimits) -> list[Advice]:
    text = (
        "make each launch do more: a larger batch, fused layers (torch.compile), CUDA graphs"
        " (torch.compile(mode='reduce-overhead')); several such jobs can share one GPU"
    )
    if isnan(profile.sm_active):
        return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.6)]
    best = max(0.05, profile.sm_active)
    return [
        Advice(
            AdviceKind.CHANGE,
            cause,
            text,
            None,
            best,
            assumptions=("the best case: all launch overhead is gone and every SM has work",),
            confidence=0.4,
        )
    ]


def _fewer_waits(cause: Cause, profile: Profile, _: HardwareLimits) -> list[Advice]:
    text = (
        "ask the GPU for values less often: collect losses on the GPU and read them every hundred steps, no .item(),"
        " .cpu() or print in the loop"
    )
    if len(profile.used) > 1:
        text = "give every GPU the same amount of work, and overlap or group the exchange of gradients"
        return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.4)]
    best = ("the best case: host and GPU never wait for one another",)
    return [
        Advice(AdviceKind.CHANGE, cause, text, 1.0, max(profile.busy, 0.05), assumptions=best, confidence=0.4)
    ]


def _pinned(cause: Cause, profile: Profile, hardware: HardwareLimits) -> list[Advice]:
    text = (
        "copy from pinned memory (pin_memory=True, non_blocking=True), and keep on the GPU what is used again"
    )
    if not hardware.pcie_bytes_s or isnan(profile.pcie_idle):
        return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.5)]
    factor = max(1.0, 0.8 * hardware.pcie_bytes_s / max(profile.pcie_idle, 1.0))
    time, utilisation = sped_up(profile.busy, factor)
    pinned = rate(0.8 * hardware.pcie_bytes_s)
    assumptions = (
        f"pinned memory gives 80 % of the link, {pinned}; now it is {rate(profile.pcie_idle)}",
        "the host fills the pinned memory as fast",
    )
    return [
        Advice(AdviceKind.CHANGE, cause, text, utilisation, time, assumptions=assumptions, confidence=0.5)
    ]


def _fused(cause: Cause, _: Profile, __: HardwareLimits) -> list[Advice]:
    text = "move fewer bytes per operation: fuse elementwise work (torch.compile, XLA), bf16 instead of fp32"
    half = ("bf16 halves the bytes of an fp32 job that is bound by memory alone",)
    return [Advice(AdviceKind.CHANGE, cause, text, 1.0, 0.5, assumptions=half, confidence=0.4)]


def _batched(cause: Cause, _: Profile, __: HardwareLimits) -> list[Advice]:
    text = (
        "collect requests and answer them together: where nobody waits for the answer, run it as a batch job over what"
        " has gathered, and hold the GPU only then"
    )
    return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.6)]


def _released(cause: Cause, profile: Profile, _: HardwareLimits) -> list[Advice]:
    unused = profile.gpus - len(profile.used)
    if profile.used:
        text = (
            f"ask for {len(profile.used)} instead of {profile.gpus} GPUs (resourceRequirements GPU), or use all: one"
            " process per GPU (torchrun), DistributedDataParallel"
        )
        return [Advice(AdviceKind.CHANGE, cause, text, profile.busy, 1.0, confidence=0.8)]
    text = (
        f"end it, or ask for no GPU: {unused} {'was' if unused == 1 else 'were'} held for nothing. If it should"
        " use one, see that it does: torch.cuda.is_available(), .to('cuda'), a CUDA build of its framework"
    )
    return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.8)]


def _warm(cause: Cause, profile: Profile, _: HardwareLimits) -> list[Advice]:
    text = (
        "begin later, or begin faster: prepare data in a job without a GPU before it (dependsOn), keep compiled kernels"
        " in a cache that survives (checkpoint directory), and give many short tasks one warm process"
        " (tag windfall:worker)"
    )
    started = profile.start_up_s / profile.span_s
    return [
        Advice(
            AdviceKind.CHANGE,
            cause,
            text,
            min(1.0, profile.busy),
            1 - started,
            assumptions=("the best case: nothing of the start-up happens while the GPU is held",),
            confidence=0.5,
        )
    ]


def _nothing(cause: Cause, profile: Profile, _: HardwareLimits) -> list[Advice]:
    text = f"leave it: the GPU is busy for {percent(profile.busy)} of the time; lower precision would make it faster"
    return [Advice(AdviceKind.CHANGE, cause, text, confidence=0.5)]
