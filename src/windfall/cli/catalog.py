"""`windfall catalog`: the instance types that can be simulated and calculated with, and what each costs.

Needs no daemon: the catalog comes with the package. An unknown figure is shown as `-`.
"""

from __future__ import annotations

from typing import Any

import click

from windfall.capacity import catalog as types
from windfall.capacity.catalog import InstanceType, Price
from windfall.cli.errors import BadUsage
from windfall.cli.notes import note
from windfall.cli.options import json_option, print_json
from windfall.cli.wording import amount, memory
from windfall.jobs.attempts import Market

UNKNOWN = "-"


@click.command()
@click.option("--gpu", "gpu_model", metavar="MODEL", help="Only types with this GPU, such as a100.")
@click.option("--gpus", type=click.IntRange(min=0), default=0, help="At least this many GPUs.")
@click.option("--family", metavar="FAMILY", help="Only this family, such as p3.")
@click.option("--min-vcpus", type=click.IntRange(min=0), default=0, help="At least this many vCPUs.")
@click.option(
    "--min-memory", "memory_gib", type=click.FloatRange(min=0), default=0, help="At least this many GiB."
)
@click.option("--retired", is_flag=True, help="Also types that AWS has ended or is ending.")
@json_option
def catalog(
    gpu_model: str | None,
    gpus: int,
    family: str | None,
    min_vcpus: int,
    memory_gib: float,
    retired: bool,
    as_json: bool,
) -> None:
    """List EC2 instance types with what they have and what they cost.

    Prices are US dollars an hour for Linux in us-east-1, typical ones; AS OF says of when (spot after the stroke).
    """
    _check_names(gpu_model, family)
    instance_types = types.select(
        family=None if family is None else family.removeprefix("ml."),
        gpus_min=gpus,
        gpu_model=gpu_model,
        vcpus_min=min_vcpus,
        memory_mib_min=round(memory_gib * 1024),
        include_retired=retired,
    )
    if as_json:
        print_json({"instanceTypes": [_document(instance_type) for instance_type in instance_types]})
        return
    if not instance_types:
        note("no type has all of that; ask for less, or see --retired")
        return
    _print(instance_types)
    if unknown := sum(instance_type.spot is None for instance_type in instance_types):
        share = f"{types.SPOT_FACTOR:.0%} of the on-demand price"
        note(
            f"{unknown} of {len(instance_types)} have no spot figure ({UNKNOWN}); {share} is assumed for those"
        )


def _check_names(gpu_model: str | None, family: str | None) -> None:
    everything = types.select(include_retired=True)
    models = {
        instance_type.gpu_model.lower(): instance_type.gpu_model
        for instance_type in everything
        if instance_type.gpu_model
    }
    if gpu_model is not None and gpu_model.lower() not in models:
        raise BadUsage(
            f"no type of the catalog has a GPU called {gpu_model!r}; it knows {', '.join(sorted(models.values()))}"
        )
    families = {instance_type.family for instance_type in everything}
    if family is not None and family.removeprefix("ml.") not in families:
        raise BadUsage(f"the catalog has no family {family!r}; it has {', '.join(sorted(families))}")


def _print(instance_types: list[InstanceType]) -> None:
    from windfall.cli.tables import Column, print_table

    columns = [
        Column("TYPE"),
        Column("VCPUS", right=True),
        Column("MEMORY", right=True),
        Column("ACCELERATORS"),
        Column("NETWORK", right=True, optional=True),
        Column("DISK", right=True, optional=True),
        Column("ON DEMAND $/H", right=True),
        Column("SPOT $/H", right=True),
        Column("$/GPU H", right=True),
        Column("SPOT $/GPU H", right=True, optional=True),
        Column("AS OF", optional=True),
        Column(""),
    ]
    rows = [_row(instance_type) for instance_type in instance_types]
    # Types without GPUs, or without disks, need no column that says so line by line.
    shown_columns = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    print_table(
        [columns[number] for number in shown_columns],
        [[row[number] for number in shown_columns] for row in rows],
    )


def _row(instance_type: InstanceType) -> list[str]:
    disk = UNKNOWN if instance_type.local_disk_gb is None else f"{instance_type.local_disk_gb:,} GB"
    return [
        instance_type.name,
        str(instance_type.vcpus),
        memory(instance_type.memory_mib),
        _accelerators(instance_type),
        _network(instance_type),
        "" if instance_type.local_disk_gb == 0 else disk,
        _usd(instance_type.on_demand_usd_hour),
        _usd(instance_type.spot_usd_hour),
        _usd(instance_type.usd_gpu_hour(Market.ON_DEMAND)) if instance_type.gpus else "",
        _usd(instance_type.usd_gpu_hour(Market.SPOT)) if instance_type.gpus else "",
        " / ".join(
            price.as_of for price in (instance_type.on_demand, instance_type.spot) if price is not None
        ),
        "retired" if instance_type.retired else "",
    ]


def _accelerators(instance_type: InstanceType) -> str:
    if instance_type.chips is not None:
        return instance_type.chips
    if not instance_type.gpus:
        return ""
    size = UNKNOWN if instance_type.gpu_memory_mib is None else f"{instance_type.gpu_memory_mib / 1024:g} GiB"
    return f"{instance_type.gpus} {instance_type.gpu_model} ({size})"


def _network(instance_type: InstanceType) -> str:
    if instance_type.network_gbps is None:
        return UNKNOWN
    return f"{'up to ' if instance_type.network_bursts else ''}{amount(instance_type.network_gbps)} Gbps"


def _usd(price: float | None) -> str:
    return UNKNOWN if price is None else f"{price:,.4f}" if price < 0.1 else f"{price:,.3f}"


def _document(instance_type: InstanceType) -> dict[str, Any]:
    return {
        "instanceType": instance_type.name,
        "family": instance_type.family,
        "vcpus": instance_type.vcpus,
        "memoryMib": instance_type.memory_mib,
        "gpus": instance_type.gpus,
        "gpuModel": instance_type.gpu_model,
        "gpuMemoryMib": instance_type.gpu_memory_mib,
        "chips": instance_type.chips,
        "networkGbps": instance_type.network_gbps,
        "networkBursts": instance_type.network_bursts,
        "localDiskGb": instance_type.local_disk_gb,
        "onDemand": _dated(instance_type.on_demand),
        "spot": _dated(instance_type.spot),
        "onDemandUsdGpuHour": instance_type.usd_gpu_hour(Market.ON_DEMAND),
        "spotUsdGpuHour": instance_type.usd_gpu_hour(Market.SPOT),
        "retired": instance_type.retired,
    }


def _dated(price: Price | None) -> dict[str, Any] | None:
    return None if price is None else {"usdHour": price.usd_hour, "asOf": price.as_of}
