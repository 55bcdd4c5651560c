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
    found = types.select(
        family=None if family is None else family.removeprefix("ml."),
        gpus_min=gpus,
        gpu_model=gpu_model,
        vcpus_min=min_vcpus,
        memory_mib_min=round(memory_gib * 1024),
        include_retired=retired,
    )
    if as_json:
        print_json({"instanceTypes": [_document(one) for one in found]})
        return
    if not found:
        note("no type has all of that; ask for less, or see --retired")
        return
    _print(found)
    if unknown := sum(one.spot is None for one in found):
        share = f"{types.SPOT_FACTOR:.0%} of the on-demand price"
        note(f"{unknown} of {len(found)} have no spot figure ({UNKNOWN}); {share} is assumed for those")


def _check_names(gpu_model: str | None, family: str | None) -> None:
    everything = types.select(include_retired=True)
    models = {one.gpu_model.lower(): one.gpu_model for one in everything if one.gpu_model}
    if gpu_model is not None and gpu_model.lower() not in models:
        raise BadUsage(
            f"no type of the catalog has a GPU called {gpu_model!r}; it knows {', '.join(sorted(models.values()))}"
        )
    families = {one.family for one in everything}
    if family is not None and family.removeprefix("ml.") not in families:
        raise BadUsage(f"the catalog has no family {family!r}; it has {', '.join(sorted(families))}")


def _print(found: list[InstanceType]) -> None:
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
    rows = [_row(one) for one in found]
    # Types without GPUs, or without disks, need no column that says so line by line.
    kept = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    print_table([columns[number] for number in kept], [[row[number] for number in kept] for row in rows])


def _row(one: InstanceType) -> list[str]:
    disk = UNKNOWN if one.local_disk_gb is None else f"{one.local_disk_gb:,} GB"
    return [
        one.name,
        str(one.vcpus),
        memory(one.memory_mib),
        _accelerators(one),
        _network(one),
        "" if one.local_disk_gb == 0 else disk,
        _usd(one.on_demand_usd_hour),
        _usd(one.spot_usd_hour),
        _usd(one.usd_gpu_hour(Market.ON_DEMAND)) if one.gpus else "",
        _usd(one.usd_gpu_hour(Market.SPOT)) if one.gpus else "",
        " / ".join(price.as_of for price in (one.on_demand, one.spot) if price is not None),
        "retired" if one.retired else "",
    ]


def _accelerators(one: InstanceType) -> str:
    if one.chips is not None:
        return one.chips
    if not one.gpus:
        return ""
    size = UNKNOWN if one.gpu_memory_mib is None else f"{one.gpu_memory_mib / 1024:g} GiB"
    return f"{one.gpus} {one.gpu_model} ({size})"


def _network(one: InstanceType) -> str:
    if one.network_gbps is None:
        return UNKNOWN
    return f"{'up to ' if one.network_bursts else ''}{amount(one.network_gbps)} Gbps"


def _usd(price: float | None) -> str:
    return UNKNOWN if price is None else f"{price:,.4f}" if price < 0.1 else f"{price:,.3f}"


def _document(one: InstanceType) -> dict[str, Any]:
    return {
        "instanceType": one.name,
        "family": one.family,
        "vcpus": one.vcpus,
        "memoryMib": one.memory_mib,
        "gpus": one.gpus,
        "gpuModel": one.gpu_model,
        "gpuMemoryMib": one.gpu_memory_mib,
        "chips": one.chips,
        "networkGbps": one.network_gbps,
        "networkBursts": one.network_bursts,
        "localDiskGb": one.local_disk_gb,
        "onDemand": _dated(one.on_demand),
        "spot": _dated(one.spot),
        "onDemandUsdGpuHour": one.usd_gpu_hour(Market.ON_DEMAND),
        "spotUsdGpuHour": one.usd_gpu_hour(Market.SPOT),
        "retired": one.retired,
    }


def _dated(price: Price | None) -> dict[str, Any] | None:
    return None if price is None else {"usdHour": price.usd_hour, "asOf": price.as_of}
