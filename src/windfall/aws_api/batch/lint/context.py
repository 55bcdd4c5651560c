"""What the rules about a job definition know of the places that it may run in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windfall.capacity import catalog
from windfall.capacity.catalog import InstanceType
from windfall.capacity.catalog.errors import UnknownInstanceType

_SPOT = ("SPOT", "FARGATE_SPOT")


@dataclass(frozen=True, slots=True)
class LintContext:
    """The compute environments beside a definition; without any, nothing is assumed of them."""

    spot: bool = False
    #: What they may launch; None when that is unknown, and then nothing is concluded from it.
    types: tuple[InstanceType, ...] | None = None


NOWHERE = LintContext()


def surroundings_of(environments: Sequence[Mapping[str, Any]]) -> LintContext:
    """What a set of compute environments offers to a job."""
    resources = [environment.get("computeResources") or {} for environment in environments]
    types: dict[str, InstanceType] = {}
    open_ended = not resources
    for compute in resources:
        named = compute.get("instanceTypes") or []
        if not named:
            open_ended = True
        types.update((instance_type.name, instance_type) for instance_type in known_types(named))
    return LintContext(
        any(compute.get("type") in _SPOT for compute in resources),
        None if open_ended else tuple(types.values()),
    )


def as_served_here(environment: Mapping[str, Any], engine: str | None) -> dict[str, Any]:
    """An environment of this daemon: its `optimal` is whatever its machines have, unless it names a market."""
    resources = environment.get("computeResources") or {}
    if engine not in {None, "local", "hosts"} or resources.get("instanceTypes") != ["optimal"]:
        return dict(environment)
    return {**environment, "computeResources": {**resources, "instanceTypes": []}}


def known_types(names: Sequence[str]) -> list[InstanceType]:
    """The types that these names mean, as far as the catalog has them."""
    types: list[InstanceType] = []
    for name in names:
        try:
            types += catalog.expand([name])
        except UnknownInstanceType:
            continue
    return types
