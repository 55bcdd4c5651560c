"""From SageMaker's instance type to what the core places: an environment, and amounts of vCPUs, memory and
GPUs.

Decides how much of a type machines of one's own can give, and says so. Must not know what is free.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from windfall.aws_api.sagemaker.rejections import invalid
from windfall.capacity import catalog
from windfall.capacity.environments import (
    ENDPOINTS,
    TRAINING_ON_DEMAND,
    TRAINING_SPOT,
    ComputeEnvironment,
    Provisioning,
)
from windfall.jobs.ids import EnvironmentName
from windfall.jobs.resources import Resources

#: The environments of training jobs have no bound of their own: the engine's machines are the bound.
UNBOUNDED_VCPUS = 1_000_000
_MIB_PER_GIB = 1024
_NEAR_MAX = 5


@dataclass(frozen=True, slots=True)
class InstancePlacement:
    """What a training job is placed by."""

    #: EC2's name for the type, without `ml.`.
    instance_type: str
    resources: Resources
    has_accelerator: bool
    #: What its machine lacks of the type, in words; None when it lacks nothing.
    note: str | None = None


def place_for(wanted: str, machines: Sequence[Resources]) -> InstancePlacement:
    """What a type asks for; no more than one of the machines has, where jobs run on machines of one's own."""
    kind = catalog.find(wanted)
    if kind is None:
        raise invalid(_unknown_type(wanted))
    requested = kind.resources
    accelerated = bool(requested.gpus or kind.chips)
    if not machines or any(requested.fits_in(machine) for machine in machines):
        return InstancePlacement(kind.name, requested, accelerated)
    nearest = max(machines, key=lambda machine: _rank(_clipped(requested, machine)))
    whose = "this host" if len(machines) == 1 else "the machine that comes nearest"
    return InstancePlacement(
        kind.name, _clipped(requested, nearest), accelerated, _shortfall(wanted, requested, nearest, whose)
    )


def _rank(resources: Resources) -> tuple[float, float, int]:
    return (resources.gpus, resources.vcpus, resources.memory_mib)


def places_for(groups: Sequence[tuple[str, int]], machines: Sequence[Resources]) -> list[InstancePlacement]:
    """What each of several kinds of instances asks for, given how many there are.

    If they do not fit together on the only machine, each gets at most an equal part of it. With several machines each
    gets what one of them can give.
    """
    total = sum(count for _, count in groups)
    wanted = [place_for(kind, ()) for kind, _ in groups]
    if total == 1 or len(machines) != 1:
        return [place_for(kind, machines) for kind, _ in groups]
    host = machines[0]
    together = Resources(
        sum(place.resources.vcpus * count for place, (_, count) in zip(wanted, groups, strict=True)),
        sum(place.resources.memory_mib * count for place, (_, count) in zip(wanted, groups, strict=True)),
        sum(place.resources.gpus * count for place, (_, count) in zip(wanted, groups, strict=True)),
    )
    if together.fits_in(host):
        return wanted
    # In parts of a vCPU that floats hold exactly, rounded down: all together must not be more than the whole.
    part = Resources(int(host.vcpus * 1024 / total) / 1024, host.memory_mib // total, int(host.gpus) // total)
    note = (
        f"{total} instances share this host, which has {host.vcpus:g} vCPUs, {_gib(host.memory_mib)} GiB of memory and"
        f" {host.gpus or 'no'} GPU{'' if host.gpus == 1 else 's'}: each gets at most {part.vcpus:g} vCPUs,"
        f" {_gib(part.memory_mib)} GiB and {part.gpus or 'no'} GPU{'' if part.gpus == 1 else 's'}"
    )
    return [
        InstancePlacement(place.instance_type, _clipped(place.resources, part), place.has_accelerator, note)
        for place in wanted
    ]


def _clipped(requested: Resources, most: Resources) -> Resources:
    return Resources(
        min(requested.vcpus, most.vcpus),
        min(requested.memory_mib, most.memory_mib),
        min(requested.gpus, most.gpus),
    )


def environment(spot: bool, engine: str | None, created_at: int) -> ComputeEnvironment:
    """The environment of all training jobs of one kind of capacity; its queue has the same name."""
    provisioning = Provisioning.SPOT if spot else Provisioning.EC2
    return _unbounded(TRAINING_SPOT if spot else TRAINING_ON_DEMAND, provisioning, engine, created_at)


def endpoint_environment(engine: str | None, created_at: int) -> ComputeEnvironment:
    """The environment of all replicas of endpoints; its queue has the same name."""
    return _unbounded(ENDPOINTS, Provisioning.EC2, engine, created_at)


def _unbounded(
    name: EnvironmentName, provisioning: Provisioning, engine: str | None, created_at: int
) -> ComputeEnvironment:
    return ComputeEnvironment(
        name=name,
        provisioning=provisioning,
        min_vcpus=0,
        max_vcpus=UNBOUNDED_VCPUS,
        engine=engine,
        uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, f"windfall:{name}")),
        created_at=created_at,
        # Each job names its own type; retired ones too, for programs that were written when they were new.
        instance_types=tuple(kind.name for kind in catalog.select(include_retired=True)),
    )


def _unknown_type(wanted: str) -> str:
    try:
        several = catalog.expand([wanted])
    except catalog.UnknownInstanceType as unknown:
        return f"InstanceType: {unknown}"
    # A family, or a word that stands for many.
    near = ", ".join(f"ml.{instance_type.name}" for instance_type in several[:_NEAR_MAX])
    return f"InstanceType: {wanted} stands for several types; choose one, such as {near}"


def _shortfall(wanted: str, requested: Resources, host: Resources, whose: str) -> str:
    lacks = []
    if requested.gpus > host.gpus:
        lacks.append(
            f"{requested.gpus} GPU{'s' if requested.gpus > 1 else ''}, {whose} has {host.gpus or 'none'}"
        )
    if requested.vcpus > host.vcpus:
        lacks.append(f"{requested.vcpus:g} vCPUs, {whose} has {host.vcpus:g}")
    if requested.memory_mib > host.memory_mib:
        lacks.append(f"{_gib(requested.memory_mib)} GiB of memory, {whose} has {_gib(host.memory_mib)}")
    return f"{wanted} asks for {'; for '.join(lacks)}"


def _gib(memory_mib: int) -> str:
    return f"{memory_mib / _MIB_PER_GIB:.3g}"
