"""Which other instance types would help with a cause, and what they would cost: from the catalog's figures.

Only what a cause waits for counts: network for the network, vCPUs per GPU for the CPU, local disk for the disk, smaller
GPUs where there is too little work, faster ones where there is too much. Prices are the catalog's. How fast GPUs are
beside one another is from NVIDIA's data sheets, dense, without sparsity: a ratio of peaks is what a job can gain at
most, and a model that is not there has no prediction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isnan

from windfall.advisor.advice import MEMORY_ROOM, Advice, AdviceKind, Holding, link_is_full, priced, sped_up
from windfall.advisor.causes import Cause
from windfall.advisor.profile import Profile
from windfall.advisor.signs import HardwareLimits
from windfall.advisor.wording import percent, usd
from windfall.capacity.catalog import Catalog, InstanceType


@dataclass(frozen=True, slots=True)
class GpuSpeed:
    """Peaks of one GPU."""

    #: TFLOP/s on the tensor cores in fp16 or bf16.
    tensor_tflops: float
    #: GB/s of its own memory.
    memory_gb_s: float


SPEEDS: dict[str, GpuSpeed] = {
    "T4": GpuSpeed(65, 320),
    "V100": GpuSpeed(125, 900),
    "A10G": GpuSpeed(70, 600),
    "L4": GpuSpeed(121, 300),
    "L40S": GpuSpeed(362, 864),
    "A100": GpuSpeed(312, 1555),
    "H100": GpuSpeed(989, 3350),
    "H200": GpuSpeed(989, 4800),
}


def model_of(name: str) -> str | None:
    """The model in a device's name, such as H200 in `NVIDIA H200`; None for one without figures."""
    words = re.split(r"[\s-]+", name.upper())
    return next((model for model in SPEEDS if model in words), None)


def slower_by(now: str | None, other: str | None, *, by_memory: bool | None = None) -> float | None:
    """By how much GPU work takes longer on `other`; below 1 it is faster. None when a figure is missing.

    `by_memory` takes bandwidth alone (True) or arithmetic alone (False); None takes the worse of both.
    """
    if now == other and now is not None:
        return 1.0
    have, would = SPEEDS.get(now or ""), SPEEDS.get(other or "")
    if have is None or would is None:
        return None
    memory, tensor = have.memory_gb_s / would.memory_gb_s, have.tensor_tflops / would.tensor_tflops
    if by_memory is None:
        return max(memory, tensor)
    return memory if by_memory else tensor


#: A smaller GPU must stay below this use.
BUSY_ROOM = 0.7
#: A link of 3,200 Gbit/s does not make one data source a hundred times as fast.
MOST_FASTER = 4.0
#: More vCPUs help only where this share of the present ones is used.
FULL_CPUS = 0.7
MOST = 3


def instances(
    cause: Cause, profile: Profile, hardware: HardwareLimits, holding: Holding, catalog: Catalog
) -> list[Advice]:
    """Other instance types for a cause, the best first; none where the present one is not known."""
    now = catalog.find(holding.instance_type) if holding.instance_type else None
    if cause is Cause.NETWORK and now is not None and link_is_full(profile, hardware):
        return _more_network(cause, profile, holding, now, catalog)
    if cause is Cause.CPU and now is not None:
        return _more_vcpus(cause, profile, holding, now, catalog)
    if cause is Cause.DISK and now is not None and not now.local_disk_gb:
        return _local_disk(cause, holding, now, catalog)
    if cause in (Cause.REQUESTS, Cause.IDLE) and profile.worked:
        return _smaller(cause, profile, holding, now, catalog)
    if cause in (Cause.MEMORY, Cause.COMPUTE):
        return _faster(cause, profile, holding, now, catalog)
    return []


def _peers(now: InstanceType, catalog: Catalog) -> list[InstanceType]:
    """Types with at least as many GPUs of at least this memory; a GPU of another model must have a known speed."""
    return [
        type_
        for type_ in catalog.select(gpus_min=max(now.gpus, 1))
        if type_.name != now.name
        and type_.on_demand is not None
        and (type_.gpu_memory_mib or 0) >= (now.gpu_memory_mib or 0)
        and slower_by(now.gpu_model, type_.gpu_model) is not None
    ]


def _more_network(
    cause: Cause, profile: Profile, holding: Holding, now: InstanceType, catalog: Catalog
) -> list[Advice]:
    if now.network_gbps is None:
        return []
    options = []
    for peer in _peers(now, catalog):
        if peer.network_gbps is None or peer.network_bursts or peer.network_gbps <= now.network_gbps:
            continue
        options.append(_with_network(cause, profile, holding, now, peer, catalog))
    # The same GPU first, because nothing else changes with it; then the cheapest per job.
    same = {type_.name for type_ in catalog.select(include_retired=True) if type_.gpu_model == now.gpu_model}
    options.sort(key=lambda each: (each.text.split()[2] not in same, each.usd_job or each.usd_hour or 0.0))
    return options[:MOST]


def _with_network(
    cause: Cause, profile: Profile, holding: Holding, now: InstanceType, other: InstanceType, catalog: Catalog
) -> Advice:
    assert now.network_gbps is not None
    assert other.network_gbps is not None
    factor = min(other.network_gbps / now.network_gbps, MOST_FASTER)
    slower = slower_by(now.gpu_model, other.gpu_model) or 1.0
    gpu_part, waiting = profile.busy * slower, (1 - profile.busy) / factor
    time = gpu_part + waiting
    text = (
        f"move to {other.name} ({other.gpus} x {other.gpu_model}, {other.network_gbps:g} instead of"
        f" {now.network_gbps:g} Gbit/s, {_prices(now, other)})"
    )
    overlapped = max(gpu_part, 1 / factor)
    turns = "loading and computing take turns; where they overlap already, the time falls to"
    assumptions = [
        f"{turns} {percent(overlapped)} and the GPU is busy for {percent(gpu_part / overlapped)} of it",
        f"the other end of the network gives as much; no more than {factor:g} times the present rate is counted on",
    ]
    if other.gpu_model != now.gpu_model:
        assumptions.append(f"the GPU part changes as the peaks of {other.gpu_model} and {now.gpu_model} do")
    assumptions += _worth(now, other, factor)
    slow = _slower_networks(now, catalog)
    if other.gpu_model == now.gpu_model and slow:
        assumptions.append(f"{slow} less than {now.network_gbps:g} Gbit/s")
    confidence = 0.7 if other.gpu_model == now.gpu_model else 0.5
    advice = Advice(
        AdviceKind.INSTANCE,
        cause,
        text,
        min(1.0, gpu_part / time),
        time,
        assumptions=tuple(assumptions),
        confidence=confidence,
    )
    return priced(advice, holding, other.on_demand_usd_hour)


def _worth(now: InstanceType, other: InstanceType, factor: float) -> list[str]:
    """From which waiting part the more expensive type is the cheaper one per job."""
    before, after = now.on_demand_usd_hour, other.on_demand_usd_hour
    if before is None or after is None:
        return []
    if after <= before:
        return ["it costs no more per hour"]
    needed = (1 - before / after) / (1 - 1 / factor)
    extra = f"costs more per hour by {percent(after / before - 1)}"
    return [
        f"{extra}: worth it only if the GPU waits for the network for more than {percent(needed)} of the time"
    ]


def _slower_networks(now: InstanceType, catalog: Catalog) -> str:
    """The smaller types of the same family, which are not a way out."""
    names = [
        type_.name
        for type_ in catalog.select(family=now.family, include_retired=True)
        if type_.network_gbps is not None
        and now.network_gbps is not None
        and type_.network_gbps < now.network_gbps
    ]
    if not names:
        return ""
    return f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'}"


def _prices(now: InstanceType, other: InstanceType) -> str:
    after, before = other.on_demand_usd_hour, now.on_demand_usd_hour
    price = usd(after) + " an hour" if after is not None else "no known price"
    return price + (f" instead of {usd(before)}" if before is not None and after is not None else "")


def _more_vcpus(
    cause: Cause, profile: Profile, holding: Holding, now: InstanceType, catalog: Catalog
) -> list[Advice]:
    options: list[Advice] = []
    if not profile.cores_idle >= FULL_CPUS * now.vcpus:
        return options  # those that it has are not used: that is a change in the job
    for peer in _peers(now, catalog):
        factor = (peer.vcpus / peer.gpus) / (now.vcpus / max(now.gpus, 1))
        if peer.gpu_model != now.gpu_model or peer.gpus != now.gpus or factor < 1.5:
            continue
        time, utilisation = sped_up(profile.busy, factor)
        text = f"move to {peer.name} ({peer.vcpus} instead of {now.vcpus} vCPUs, the same GPUs, {_prices(now, peer)})"
        assumptions = ("preparing runs on all vCPUs, and scales with them",)
        advice = Advice(
            AdviceKind.INSTANCE, cause, text, utilisation, time, assumptions=assumptions, confidence=0.5
        )
        options.append(priced(advice, holding, peer.on_demand_usd_hour))
    return sorted(options, key=_dollars)[:MOST]


def _local_disk(cause: Cause, holding: Holding, now: InstanceType, catalog: Catalog) -> list[Advice]:
    options = [
        priced(
            Advice(
                AdviceKind.INSTANCE,
                cause,
                f"move to {peer.name} ({peer.local_disk_gb:,} GB of local disk, the same GPUs, {_prices(now, peer)})",
                assumptions=(
                    "the data fits, and is brought before the start",
                    "no figure for its speed is known",
                ),
                confidence=0.4,
            ),
            holding,
            peer.on_demand_usd_hour,
        )
        for peer in _peers(now, catalog)
        if peer.gpu_model == now.gpu_model and peer.local_disk_gb
    ]
    return sorted(options, key=_dollars)[:MOST]


def _smaller(
    cause: Cause, profile: Profile, holding: Holding, now: InstanceType | None, catalog: Catalog
) -> list[Advice]:
    hourly = holding.usd_hour
    if hourly is None and now is not None:
        hourly = now.on_demand_usd_hour
    present = now.gpu_model if now is not None else holding.gpu_model
    if hourly is None or present is None or isnan(profile.gpu_memory_peak_bytes):
        return []
    room_mib = profile.gpu_memory_peak_bytes / 2**20 * MEMORY_ROOM
    best: dict[str, Advice] = {}
    for type_ in catalog.select(gpus_min=1):
        slower = slower_by(present, type_.gpu_model)
        price = type_.on_demand_usd_hour
        if slower is None or price is None or price >= hourly:
            continue
        busy = profile.busy * len(profile.used) * max(slower, 1.0) / type_.gpus
        if (type_.gpu_memory_mib or 0) < room_mib or busy > BUSY_ROOM:
            continue
        text = f"move to {type_.name} ({type_.gpus} x {type_.gpu_model}, {usd(price)} an hour instead of {usd(hourly)})"
        longer = (
            f"each answer takes up to {max(slower, 1.0):.1f} times as long on the GPU, by the peaks of both"
        )
        assumptions = ("the requests stay as they are, so that the time does too", longer)
        advice = Advice(AdviceKind.INSTANCE, cause, text, busy, 1.0, assumptions=assumptions, confidence=0.6)
        offered = priced(advice, holding, price)
        model = str(type_.gpu_model)
        if model not in best or _dollars(offered) < _dollars(best[model]):
            best[model] = offered
    return sorted(best.values(), key=_dollars)[:2]


def _faster(
    cause: Cause, profile: Profile, holding: Holding, now: InstanceType | None, catalog: Catalog
) -> list[Advice]:
    model = now.gpu_model if now is not None else holding.gpu_model
    memory = cause is Cause.MEMORY
    best: dict[str, Advice] = {}
    for type_ in catalog.select(gpus_min=max(1, round(holding.gpus))):
        slower = slower_by(model, type_.gpu_model, by_memory=memory)
        if slower is None or slower >= 0.9 or type_.on_demand is None or type_.gpu_model is None:
            continue
        per_gpu = type_.on_demand.usd_hour / type_.gpus * holding.gpus
        text = f"move to a {type_.gpu_model} ({type_.name}, {usd(per_gpu)} an hour for as many GPUs)"
        what = "memory bandwidth" if memory else "dense half-precision arithmetic"
        assumptions = (f"by peak {what}: {1 / slower:.1f} times as much; the rest of the time stays",)
        time = profile.busy * slower + (1 - profile.busy)
        advice = Advice(AdviceKind.INSTANCE, cause, text, None, time, assumptions=assumptions, confidence=0.4)
        offered = priced(advice, holding, per_gpu)
        if type_.gpu_model not in best or _dollars(offered) < _dollars(best[type_.gpu_model]):
            best[type_.gpu_model] = offered
    return sorted(best.values(), key=_dollars)[:2]


def _dollars(advice: Advice) -> float:
    return advice.usd_job if advice.usd_job is not None else advice.usd_hour or 0.0
