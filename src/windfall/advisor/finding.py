"""From a recording to a finding: weighs the signs, and says what else it may be.

Start-up and GPUs that are never used come first, because no sign about a loop means anything before there is one.
"""

from __future__ import annotations

from math import isnan

from windfall.advisor import thresholds as at
from windfall.advisor.causes import MEANING, Branch, Cause, Finding, Gap
from windfall.advisor.profile import Profile, profile_of
from windfall.advisor.samples import Recording
from windfall.advisor.signs import HardwareLimits, Sign, gaps, ramp, signs_of
from windfall.advisor.wording import gib, percent

#: What would decide for a cause, where it is not decided.
CONDITIONS: dict[Cause, str] = {
    Cause.NETWORK: "if its network is at its limit while the GPU waits",
    Cause.DISK: "if its threads wait for the disk while the GPU waits",
    Cause.CPU: "if a CPU thread is full while the GPU waits",
    Cause.LAUNCH: "if its kernels are tiny (a profile shows gaps of microseconds between them)",
    Cause.SYNCHRONISATION: "if it asks the GPU for a value in every step (.item(), .cpu(), print of a loss)",
    Cause.PCIE: "if much goes between host and GPU while no kernel runs",
    Cause.MEMORY: "if the GPU's memory bandwidth is full while it is busy",
    Cause.REQUESTS: "if network and CPU are quiet while the GPU waits: there are too few requests",
    Cause.IDLE: "if nobody uses it",
    Cause.COMPUTE: "if the GPU's arithmetic units are full while it is busy",
    Cause.START_UP: "if it is still preparing",
}
_PROFILE_GAP = Gap(
    "how long its own loop waits for data",
    "submit it with the tag windfall:profile=true and wrap its loader: `for batch in StepClock().batches(loader)`",
)
_HOST_GAP = Gap(
    "what the host does while the GPU is idle",
    "run it under Windfall's agent, which samples its CPU, disk and network beside its GPU",
)
#: From here the job's own word would hardly add anything.
SURE = 0.8
#: Which causes a slow loop may have that no sample can exclude when the host was not measured.
_UNSEEN = (Cause.NETWORK, Cause.REQUESTS, Cause.CPU)


def find_cause(recording: Recording, hardware: HardwareLimits) -> Finding:
    """What the recording says about the use of its GPUs."""
    return judged(profile_of(recording), hardware)


def judged(profile: Profile, hardware: HardwareLimits) -> Finding:
    """The same from the recording's numbers."""
    if profile.samples < at.FEWEST_SAMPLES:
        gap = Gap("enough samples", f"let it run for longer; there are {profile.samples} so far")
        return Finding(None, 0.0, (), (gap,), gpus=profile.gpus)
    if isnan(profile.busy_of_all):
        gap = Gap("the use of its GPUs", "run it on a GPU that NVML can read; simulated ones do no work")
        return Finding(None, 0.0, (), (gap,), gpus=profile.gpus)
    unused = profile.gpus - len(profile.used)
    if not profile.worked:
        return _never_used(profile, hardware)
    if unused and unused / profile.gpus >= 0.25:
        return _partly_used(profile, hardware, unused)
    started = profile.start_up_s / profile.span_s
    signs = signs_of(profile, hardware)
    late = ramp(started, at.START_UP)
    if late > max(at.WEAK, (1 - started) * signs[0].strength):
        return _started_late(profile, signs, started, late)
    return _weighed(profile, signs)


def _never_used(profile: Profile, hardware: HardwareLimits) -> Finding:
    work = "did no work in" if not profile.busy_of_all else f"worked for {percent(profile.busy_of_all)} of"
    holding = f"its {_counted(profile.gpus)} {work} {profile.span_s:,.0f} s"
    memory = f"{gib(profile.gpu_memory_peak_bytes)} of GPU memory was held at most"
    active = max(
        ramp(profile.thread, at.THREAD_FULL), ramp(profile.cores / max(hardware.vcpus, 1), at.CPU_FULL)
    )
    evidence = (holding, memory)
    if active > 0.5:
        working = f"its CPUs work ({profile.cores:.1f} cores)"
        branch = Branch(
            Cause.START_UP, "if it is still preparing (its log says so), and will use the GPU later"
        )
        return _finding(Cause.IDLE, 0.6, (*evidence, working), (), (branch,), profile)
    quiet = "an unknown part of a core" if isnan(profile.cores) else f"{profile.cores:.2f} cores"
    return _finding(Cause.IDLE, 0.95, (*evidence, f"its processes use {quiet}"), (), (), profile)


def _partly_used(profile: Profile, hardware: HardwareLimits, unused: int) -> Finding:
    evidence = [
        f"{unused} of its {_counted(profile.gpus)} did no work in {profile.span_s:,.0f} s",
        f"the other {len(profile.used)} worked for {percent(profile.busy)} of the time",
    ]
    rest = signs_of(profile, hardware)[0]
    branches = []
    if rest.strength >= at.WEAK and rest.cause is not Cause.COMPUTE:
        branches.append(Branch(rest.cause, f"for the GPUs that work: {rest.evidence[0]}"))
    return _finding(Cause.IDLE, 0.9, tuple(evidence), (), tuple(branches), profile)


def _started_late(profile: Profile, signs: list[Sign], started: float, late: float) -> Finding:
    evidence = (
        f"{profile.start_up_s:,.0f} of {profile.span_s:,.0f} s ({percent(started)}) passed before the first GPU work",
        f"after that it was busy for {percent(profile.busy)} of the time",
    )
    branches = []
    if signs[0].strength >= at.BRANCH and signs[0].cause is not Cause.COMPUTE:
        branches.append(Branch(signs[0].cause, f"after the start: {MEANING[signs[0].cause]}"))
    return _finding(Cause.START_UP, 0.5 + 0.45 * late, evidence, (), tuple(branches), profile)


def _weighed(profile: Profile, signs: list[Sign]) -> Finding:
    first, second = signs[0], signs[1]
    missing = list(gaps(sign for sign in signs if sign.gap))
    blind = isnan(profile.thread) and isnan(profile.rx)
    idle = profile.busy < at.WELL_BUSY[1]
    notes = list(first.evidence)
    if profile.saving > at.SAVING:
        notes.append(f"saving checkpoints held its loop up for {percent(profile.saving)} of the time")
    if blind and idle:
        seen = f"the GPU is busy for {percent(profile.busy)} of the time; what the host did was not measured"
        branches = tuple(Branch(cause, CONDITIONS[cause]) for cause in _UNSEEN)
        return _finding(None, 0.0, (seen,), (_HOST_GAP, _PROFILE_GAP), branches, profile)
    others = [
        sign for sign in signs[1:] if sign.strength >= at.BRANCH * first.strength and sign.strength >= at.WEAK
    ]
    # Unknown is not zero: what was not measured may be the cause while the GPU is idle.
    hidden = [sign for sign in signs if sign.gap and sign.strength == 0.0 and idle and sign.cause in _UNSEEN]
    branches = tuple(Branch(sign.cause, CONDITIONS[sign.cause]) for sign in (*others, *hidden))
    if idle and isnan(profile.data_wait) and (branches or first.strength < SURE):
        missing.append(_PROFILE_GAP)
    if first.strength < at.WEAK:
        seen = (
            f"the GPU is busy for {percent(profile.busy)} of the time, and nothing measured explains the rest"
        )
        return _finding(None, 0.0, (seen,), tuple(missing), branches, profile)
    margin = first.strength - second.strength
    confidence = first.strength * (0.6 + 0.4 * min(1.0, margin / 0.4)) * (0.7 if hidden else 1.0)
    return _finding(first.cause, confidence, tuple(notes), tuple(missing), branches, profile)


def _finding(
    cause: Cause | None,
    confidence: float,
    evidence: tuple[str, ...],
    missing: tuple[Gap, ...],
    branches: tuple[Branch, ...],
    profile: Profile,
) -> Finding:
    return Finding(
        cause,
        round(min(confidence, 0.95), 2),
        tuple(line for line in evidence if line),
        missing,
        branches,
        busy=profile.busy_of_all,
        unused_gpus=profile.gpus - len(profile.used),
        gpus=profile.gpus,
    )


def _counted(gpus: int) -> str:
    return "GPU" if gpus == 1 else f"{gpus} GPUs"
