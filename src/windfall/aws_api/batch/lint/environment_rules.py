"""Rules about compute environments: AMIs for GPUs, types that AWS ends, how spot types are chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from windfall.aws_api.batch.lint.context import known_types
from windfall.aws_api.batch.lint.findings import Rule, Severity
from windfall.capacity.catalog import InstanceType

Document = Mapping[str, Any]
Check = Callable[[Document, list[InstanceType]], tuple[str, str] | None]

CURRENT_GPU_AMI = "ECS_AL2023_NVIDIA"
ENDING_GPU_AMI = "ECS_AL2_NVIDIA"
_SPOT_STRATEGIES = (
    "SPOT_PRICE_CAPACITY_OPTIMIZED",
    "SPOT_CAPACITY_OPTIMIZED",
    "SPOT_CAPACITY_OPTIMIZED_PRIORITIZED",
)
_FEW = 3


def _ami_types(resources: Document) -> list[str]:
    return [configuration.get("imageType", "") for configuration in resources.get("ec2Configuration", ())]


def _wrong_ami(resources: Document, types: list[InstanceType]) -> tuple[str, str] | None:
    named = _ami_types(resources)
    if (
        not any(instance_type.gpus for instance_type in types)
        or not named
        or any("NVIDIA" in name for name in named)
    ):
        return None
    return (
        f"GPU types with imageType {', '.join(named)}",
        f"use {CURRENT_GPU_AMI}: the others bring no NVIDIA driver, and containers see no GPU",
    )


def _ending_ami(resources: Document, _: list[InstanceType]) -> tuple[str, str] | None:
    if ENDING_GPU_AMI not in _ami_types(resources):
        return None
    return f"imageType {ENDING_GPU_AMI}", f"use {CURRENT_GPU_AMI}, AWS Batch's own default since January 2026"


def _retired(_: Document, types: list[InstanceType]) -> tuple[str, str] | None:
    ended = [instance_type.name for instance_type in types if instance_type.retired]
    if not ended:
        return None
    shown = ", ".join(ended[:4]) + (", ..." if len(ended) > 4 else "")
    return (
        f"{shown}: ended by AWS, or about to be",
        "name newer types; `windfall catalog --gpus 1` lists them",
    )


def _strategy(resources: Document, _: list[InstanceType]) -> tuple[str, str] | None:
    strategy = resources.get("allocationStrategy", "BEST_FIT")
    if resources.get("type") != "SPOT" or strategy in _SPOT_STRATEGIES or not resources.get("instanceTypes"):
        return None
    return (
        f"spot with allocationStrategy {strategy}",
        f"use {_SPOT_STRATEGIES[0]}: it looks at how likely a type is to be taken away",
    )


def _best_fit(resources: Document, _: list[InstanceType]) -> tuple[str, str] | None:
    if resources.get("type") != "EC2" or resources.get("allocationStrategy", "BEST_FIT") != "BEST_FIT":
        return None
    if not resources.get("instanceTypes"):
        return None
    return (
        "allocationStrategy BEST_FIT (the default)",
        "use BEST_FIT_PROGRESSIVE, unless waiting for one type is what you want",
    )


def _one_type(resources: Document, types: list[InstanceType]) -> tuple[str, str] | None:
    if resources.get("type") != "SPOT" or not types or len(types) >= _FEW:
        return None
    return (
        f"spot with {len(types)} instance type" + ("s" if len(types) > 1 else ""),
        "allow more types or whole families: when one runs out, another may be there",
    )


def _never_empty(resources: Document, types: list[InstanceType]) -> tuple[str, str] | None:
    least = resources.get("minvCpus") or 0
    if not least or not any(instance_type.gpus for instance_type in types):
        return None
    return f"minvCpus is {least} with GPU types", "set minvCpus to 0: GPUs that nobody uses are paid for"


RULES: tuple[tuple[Rule, Check], ...] = (
    (
        Rule(
            "WL101",
            Severity.ERROR,
            "GPU types without a GPU image",
            "The image type decides whether the NVIDIA driver and runtime are there.",
        ),
        _wrong_ami,
    ),
    (
        Rule(
            "WL102",
            Severity.WARNING,
            "image type that AWS ends",
            "AMIs of Amazon Linux 2 come to their end; AL2023 is the default since January 2026.",
        ),
        _ending_ami,
    ),
    (
        Rule(
            "WL103",
            Severity.WARNING,
            "retired instance types",
            "Windfall keeps them in its catalog so that older commands still validate; AWS may not.",
        ),
        _retired,
    ),
    (
        Rule(
            "WL104",
            Severity.WARNING,
            "spot types chosen by price or fit alone",
            "The cheapest type is often the one that is about to run out.",
        ),
        _strategy,
    ),
    (
        Rule(
            "WL105",
            Severity.HINT,
            "BEST_FIT waits for one type",
            "It keeps to the type that it chose even when that is sold out. BEST_FIT_PROGRESSIVE goes on to others;"
            " it prefers types by vCPU price and is not simply the cheapest that fits.",
        ),
        _best_fit,
    ),
    (
        Rule(
            "WL106",
            Severity.HINT,
            "few spot types",
            "Each type and zone is a pool of its own that can run dry.",
        ),
        _one_type,
    ),
    (
        Rule(
            "WL107",
            Severity.HINT,
            "GPU instances kept when idle",
            "With minvCpus 0 an idle environment costs nothing.",
        ),
        _never_empty,
    ),
)


def check_environment(environment: Document) -> Iterator[tuple[Rule, str, str]]:
    """What is found in one compute environment: the rule, what was seen, what to do."""
    resources = environment.get("computeResources") or {}
    types = known_types(resources.get("instanceTypes") or [])
    for rule, check in RULES:
        finding = check(resources, types)
        if finding is not None:
            yield rule, *finding
