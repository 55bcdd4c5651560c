"""For each cause, how strongly a profile points at it, and the sentence that says so.

A sign is between 0 and 1. It says nothing about the others: finding.py weighs them. Every sign of an input that is slow
is scaled by how idle the GPU is, because a fast network beside a busy GPU is not a bottleneck.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan

from windfall.advisor import thresholds as at
from windfall.advisor.causes import Cause, Gap
from windfall.advisor.profile import Profile
from windfall.advisor.wording import gbits, percent, rate


@dataclass(frozen=True, slots=True)
class HardwareLimits:
    """The limits of the hardware that a recording was made on; None is unknown."""

    vcpus: float
    network_bytes_s: float | None = None
    disk_bytes_s: float | None = None
    pcie_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sign:
    """How strongly one cause is pointed at."""

    cause: Cause
    strength: float
    evidence: tuple[str, ...] = ()
    #: Set when the strength is only what is known without this.
    gap: Gap | None = None


def ramp(value: float, bounds: tuple[float, float]) -> float:
    """0 before the first bound, 1 after the second (which may be the lower one), straight between; 0 for NaN."""
    first, second = bounds
    if isnan(value):
        return 0.0
    return min(1.0, max(0.0, (value - first) / (second - first)))


def signs_of(profile: Profile, hardware: HardwareLimits) -> list[Sign]:
    """All signs, the strongest first."""
    signs = [
        _network(profile, hardware),
        _disk(profile, hardware),
        _cpu(profile, hardware),
        _launch(profile),
        _synchronisation(profile),
        _pcie(profile, hardware),
        _memory(profile),
        _requests(profile, hardware),
        _compute(profile),
    ]
    return sorted(signs, key=lambda sign: -sign.strength)


def filled(profile: Profile) -> float:
    """How much of the GPU its kernels fill while they run, 0 to 1; NaN without counters and without power."""
    if isnan(profile.busy) or profile.busy <= at.UNUSED:
        return float("nan")
    if not isnan(profile.sm_active):
        return ramp(min(1.0, profile.sm_active / profile.busy), at.FILLED)
    if isnan(profile.power):
        return float("nan")
    above = max(0.0, profile.power - at.IDLE_POWER) / (1 - at.IDLE_POWER)
    return ramp(min(1.0, above / profile.busy), at.FILLED_BY_POWER)


def _idle(profile: Profile) -> float:
    """How much room there is: 0 for a busy GPU."""
    return 0.0 if isnan(profile.busy) else 1.0 - ramp(profile.busy, at.WELL_BUSY)


def _waits(profile: Profile) -> float:
    """What the job's own word about waiting for data does to the signs of a slow input: 1 when it says nothing."""
    if isnan(profile.data_wait):
        return 1.0
    return 0.15 + 0.85 * ramp(profile.data_wait, at.DATA_WAIT)


def _reported_wait(profile: Profile) -> tuple[str, ...]:
    if isnan(profile.data_wait):
        return ()
    return (f"its own loop says that it waits for data in {percent(profile.data_wait)} of its time",)


def _network(profile: Profile, hardware: HardwareLimits) -> Sign:
    limit = hardware.network_bytes_s
    whose = "the host receives" if profile.rx_is_hosts else "it receives"
    if isnan(profile.rx_idle):
        unseen = Gap(
            "how much it receives over the network", "run it where its sockets can be read (Linux 4.2, root)"
        )
        return Sign(Cause.NETWORK, 0.0, gap=unseen)
    seen = f"while the GPU is idle {whose} {rate(profile.rx_idle)} ({gbits(profile.rx_idle)})"
    gap: Gap | None = None
    if limit is None:
        strength = ramp(profile.rx_idle, at.RECEIVES) * at.UNPROVEN
        if strength:
            how = "name the instance type, or compare with a download on the idle machine"
            gap = Gap("how fast its network is", how)
    else:
        # A link that is not full may still be what the GPU waits for: then the other end is slow.
        source = ramp(profile.rx_idle, at.RECEIVES) * at.SLOW_SOURCE
        strength = max(ramp(profile.rx_idle / limit, at.LINK_FULL), source)
        seen += f", {percent(profile.rx_idle / limit)} of the link's {gbits(limit)}"
    if profile.rx_is_hosts:
        strength *= at.UNPROVEN
    return Sign(
        Cause.NETWORK, strength * _idle(profile) * _waits(profile), (seen, *_reported_wait(profile)), gap
    )


def _disk(profile: Profile, hardware: HardwareLimits) -> Sign:
    if isnan(profile.read_idle) and isnan(profile.disk_waiters_idle):
        gap = Gap("what it reads from storage", "run it where /proc/PID/io may be read, or in a cgroup")
        return Sign(Cause.DISK, 0.0, gap=gap)
    by_rate = ramp(profile.read_idle, at.READS) * at.UNPROVEN
    if hardware.disk_bytes_s:
        by_rate = ramp(profile.read_idle / hardware.disk_bytes_s, at.LINK_FULL)
    # Waiting for a disk without reading much is still waiting for it: small or scattered files.
    waiting = ramp(profile.disk_waiters_idle, at.DISK_WAITERS)
    strength = max(by_rate, waiting, min(1.0, by_rate + 0.5 * waiting))
    seen = (
        f"while the GPU is idle it reads {rate(profile.read_idle)} from storage" if profile.read_idle else ""
    )
    if not isnan(profile.disk_waiters_idle):
        seen += f", and {profile.disk_waiters_idle:.1f} of its threads wait for the disk on average"
    return Sign(
        Cause.DISK, strength * _idle(profile) * _waits(profile), (seen.lstrip(", "), *_reported_wait(profile))
    )


def _cpu(profile: Profile, hardware: HardwareLimits) -> Sign:
    if isnan(profile.thread_idle) and isnan(profile.cores_idle):
        return Sign(Cause.CPU, 0.0, gap=Gap("its processor time", "run it where /proc/PID/stat may be read"))
    whole = ramp(profile.cores_idle / hardware.vcpus, at.CPU_FULL) if hardware.vcpus else 0.0
    strength = max(
        ramp(profile.thread_idle, at.THREAD_FULL), whole, ramp(profile.throttled, (0.0, at.THROTTLED))
    )
    # A thread that launches tiny kernels is as busy as one that prepares data: what tells them apart is how full the
    # GPU is when it works, and how much it works at all.
    full = filled(profile)
    doubt = 1.0 if isnan(full) else 0.3 + 0.7 * max(full, 1 - ramp(profile.busy, at.LAUNCHES))
    # Pageable copies keep a host thread busy too, and so does waiting for a GPU that is busy for most of the time.
    doubt *= (1 - 0.6 * ramp(profile.pcie_idle, at.PCIE_RATE)) * (1 - 0.6 * ramp(profile.busy, (0.35, 0.7)))
    used = f"while the GPU is idle it uses {profile.cores_idle:.1f} of {hardware.vcpus:g} vCPUs"
    evidence = [f"{used}, its busiest thread {percent(profile.thread_idle)} of one"]
    if profile.throttled > at.THROTTLED:
        evidence.append(f"its vCPU limit holds it back for {percent(profile.throttled)} of the time")
    return Sign(
        Cause.CPU, strength * _idle(profile) * doubt * _waits(profile), (*evidence, *_reported_wait(profile))
    )


def _launch(profile: Profile) -> Sign:
    full = filled(profile)
    if isnan(full):
        gap = Gap(
            "how full the GPU is while it works",
            "a GPU with profiling counters (Hopper and later), or its power",
        )
        return Sign(Cause.LAUNCH, 0.0, gap=gap)
    busy_host = ramp(profile.thread, at.THREAD_FULL) if not isnan(profile.thread) else 0.5
    # Longer gaps than a launch takes have another reason; copies count as busy and fill nothing.
    steady = ramp(profile.busy, at.LAUNCHES) * (1 - 0.5 * ramp(profile.unevenness, (0.3, 0.8)))
    steady *= 1 - 0.8 * ramp(profile.pcie, at.PCIE_RATE)
    waits = 1.0 if isnan(profile.data_wait) else 1.0 - 0.7 * ramp(profile.data_wait, at.DATA_WAIT)
    evidence = [f"a kernel runs in {percent(profile.busy)} of the time, but {_fullness(profile)}"]
    if not isnan(profile.thread):
        evidence.append(f"its busiest thread uses {percent(profile.thread)} of a core")
    return Sign(Cause.LAUNCH, (1 - full) * busy_host * steady * waits, tuple(evidence))


def _fullness(profile: Profile) -> str:
    if not isnan(profile.sm_active):
        return f"work is resident on {percent(profile.sm_active)} of the SMs' time"
    return f"it draws {percent(profile.power)} of its power limit"


def _synchronisation(profile: Profile) -> Sign:
    full = filled(profile)
    if isnan(full) or isnan(profile.thread):
        return Sign(Cause.SYNCHRONISATION, 0.0)
    evidence = [
        f"the GPU is busy for {percent(profile.busy)} of the time, evenly",
        f"a host thread never rests ({percent(profile.thread)} of a core): one waits for the other again and again",
    ]
    if len(profile.used) > 1:
        # A collective that waits for the slowest GPU is a kernel that runs, and takes little power.
        waiting = ramp(profile.busy, at.WELL_BUSY) * (1 - full)
        seen = f"{len(profile.used)} GPUs are busy for {percent(profile.busy)}, but {_fullness(profile)}"
        return Sign(Cause.SYNCHRONISATION, 0.9 * waiting, (seen,))
    between = ramp(profile.busy, (0.2, 0.4)) * (1 - ramp(profile.busy, (0.85, 0.97)))
    even = 1 - ramp(profile.unevenness, (0.1, 0.4))
    waits = 1.0 if isnan(profile.data_wait) else 1.0 - ramp(profile.data_wait, at.DATA_WAIT)
    moved = 1 - ramp(profile.pcie, at.PCIE_RATE)
    strength = between * even * waits * moved * ramp(profile.thread, at.THREAD_FULL) * (0.35 + 0.55 * full)
    return Sign(Cause.SYNCHRONISATION, strength, tuple(evidence))


def _pcie(profile: Profile, hardware: HardwareLimits) -> Sign:
    if isnan(profile.pcie_idle):
        gap = Gap("what goes between host and GPU", "a driver that counts PCIe traffic")
        return Sign(Cause.PCIE, 0.0, gap=gap)
    strength = ramp(profile.pcie_idle, at.PCIE_RATE)
    seen = f"while no kernel runs {rate(profile.pcie_idle)} go between host and GPU"
    if hardware.pcie_bytes_s:
        share = profile.pcie_idle / hardware.pcie_bytes_s
        strength = max(strength, ramp(share, at.PCIE_SHARE))
        seen += f", {percent(share)} of the link"
    return Sign(Cause.PCIE, strength * _idle(profile), (seen,))


def _memory(profile: Profile) -> Sign:
    if isnan(profile.memory_active):
        return Sign(Cause.MEMORY, 0.0)
    arithmetic = ramp(profile.tensor_active, at.TENSOR_ACTIVE)
    strength = ramp(profile.memory_active, at.MEMORY_ACTIVE) * ramp(profile.busy, at.WELL_BUSY)
    tensor = "" if isnan(profile.tensor_active) else f", its tensor cores {percent(profile.tensor_active)}"
    seen = (
        f"the GPU is busy for {percent(profile.busy)} of the time; its memory gives {percent(profile.memory_active)}"
        f" of what it can{tensor}"
    )
    return Sign(Cause.MEMORY, strength * (1 - 0.6 * arithmetic), (seen,))


def _requests(profile: Profile, hardware: HardwareLimits) -> Sign:
    if not profile.worked:
        return Sign(Cause.REQUESTS, 0.0)
    rests = min(
        ramp(profile.thread_idle, at.THREAD_RESTS),
        1 - ramp(profile.cores_idle / hardware.vcpus if hardware.vcpus else 0.0, (0.3, 0.6)),
    )
    quiet = 1 - max(
        ramp(profile.rx_idle, at.RECEIVES),
        ramp(profile.read_idle, at.READS),
        ramp(profile.pcie_idle, at.PCIE_RATE),
    )
    waiters = 1 - ramp(profile.disk_waiters_idle, at.DISK_WAITERS)
    seen = (
        (
            f"the GPU works for {percent(profile.busy)} of the time in bursts; while it is idle the host rests too"
            f" ({percent(profile.thread_idle)} of a core), reads {rate(profile.read_idle)} and receives"
            f" {rate(profile.rx_idle)}"
        )
        .replace("nan MB/s", "an unknown amount")
        .replace("nan %", "an unknown part")
    )
    gap = None
    strength = rests * quiet * waiters * (1 - ramp(profile.busy, (0.5, 0.8)))
    if isnan(profile.thread_idle) or isnan(profile.rx_idle):
        gap = Gap(
            "what the host does while the GPU is idle", "sample the job with Windfall's agent on its machine"
        )
        strength *= 0.5
    return Sign(Cause.REQUESTS, strength, (seen, *_reported_wait(profile)), gap)


def _compute(profile: Profile) -> Sign:
    busy = ramp(profile.busy, at.WELL_BUSY)
    arithmetic = [
        ramp(profile.tensor_active, at.TENSOR_ACTIVE),
        ramp(profile.power, at.POWER),
        0.8 * ramp(profile.sm_active, (0.5, 0.8)) * (1 - ramp(profile.memory_active, at.MEMORY_ACTIVE)),
    ]
    is_measured = not (isnan(profile.tensor_active) and isnan(profile.power) and isnan(profile.sm_active))
    strength = busy * (max(arithmetic) if is_measured else 0.5)
    if profile.memory_active > at.MEMORY_ACTIVE[1]:
        strength *= 0.4 + 0.6 * ramp(profile.tensor_active, at.TENSOR_ACTIVE)
    parts = [f"the GPU is busy for {percent(profile.busy)} of the time"]
    for what, share in (
        ("tensor cores", profile.tensor_active),
        ("SMs", profile.sm_active),
        ("power", profile.power),
    ):
        if not isnan(share):
            parts.append(f"{what} {percent(share)}")
    return Sign(Cause.COMPUTE, strength, (", ".join(parts),))


def gaps(signs: Iterable[Sign]) -> tuple[Gap, ...]:
    """What is missing, each once."""
    return tuple(dict.fromkeys(sign.gap for sign in signs if sign.gap is not None))
