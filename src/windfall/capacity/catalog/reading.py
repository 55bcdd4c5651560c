"""Reads and writes the table of figures; the same form both ways, so that a refresh changes figures and nothing else.

Decides what a line may look like. Must not know which types there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windfall.capacity.catalog.errors import BadFigures
from windfall.capacity.catalog.instance_types import InstanceType, Price

TITLES = ("type", "vCPUs", "GiB", "accelerators", "Gbps", "disk_GB", "on_demand", "spot")
RETIRED = "retired"
UNKNOWN = "-"
#: Accelerators that a job cannot ask for as a GPU.
NOT_GPUS = frozenset({"Gaudi", "Inferentia", "Inferentia2", "Trainium", "Trainium2"})


def read_figures(text: str) -> list[InstanceType]:
    """All types of a table, in its order; BadFigures names the first line that is none."""
    return [
        _read(line)
        for line in text.splitlines()
        if line.strip() and not line.startswith("#") and tuple(line.split()) != TITLES
    ]


def write_figures(types: Iterable[InstanceType]) -> str:
    """A table of these types that `read_figures` reads back unchanged."""
    rows = [list(TITLES), *(_written(type_) for type_ in types)]
    widths = [max(len(row[number]) if number < len(row) else 0 for row in rows) for number in range(9)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() + "\n"
        for row in rows
    )


def _read(line: str) -> InstanceType:
    cells = line.split()
    retired = cells[-1] == RETIRED
    if len(cells) != len(TITLES) + retired:
        raise BadFigures(
            f"a line has {' '.join(TITLES)}, and `{RETIRED}` for some; this one does not: {line}"
        )
    name, vcpus, gib, accelerators, network, disk, on_demand, spot = cells[: len(TITLES)]
    try:
        plain = InstanceType(
            name=name,
            vcpus=int(vcpus),
            memory_mib=round(float(gib) * 1024),
            network_gbps=None if network == UNKNOWN else float(network.removeprefix("~")),
            network_bursts=network.startswith("~"),
            local_disk_gb=None if disk == UNKNOWN else int(disk),
            on_demand=_price(on_demand),
            spot=_price(spot),
            retired=retired,
        )
        return _with_accelerators(plain, accelerators)
    except ValueError as error:
        raise BadFigures(f"{error} in the line: {line}") from None


def _with_accelerators(plain: InstanceType, text: str) -> InstanceType:
    if text == UNKNOWN:
        return plain
    counted, _, memory = text.partition("/")
    count, _, model = counted.partition("x")
    if model in NOT_GPUS:
        return replace(plain, chips=f"{int(count)} {model}")
    return replace(
        plain,
        gpus=int(count),
        gpu_model=model,
        gpu_memory_mib=None if memory == UNKNOWN else int(memory),
    )


def _price(text: str) -> Price | None:
    if text == UNKNOWN:
        return None
    usd_hour, at, as_of = text.partition("@")
    if not at or not as_of:
        raise ValueError(f"{text!r} is not a price with its date, such as 3.06@2026-02-09")
    return Price(float(usd_hour), as_of)


def _written(type_: InstanceType) -> list[str]:
    accelerators = UNKNOWN
    if type_.chips is not None:
        accelerators = f"{type_.chips.replace(' ', 'x')}/{UNKNOWN}"
    elif type_.gpus:
        accelerators = f"{type_.gpus}x{type_.gpu_model}/{type_.gpu_memory_mib or UNKNOWN}"
    network = UNKNOWN if type_.network_gbps is None else f"{'~' * type_.network_bursts}{type_.network_gbps:g}"
    row = [
        type_.name,
        str(type_.vcpus),
        _number(type_.memory_mib / 1024),
        accelerators,
        network,
        UNKNOWN if type_.local_disk_gb is None else str(type_.local_disk_gb),
        *(
            UNKNOWN if price is None else f"{_number(price.usd_hour)}@{price.as_of}"
            for price in (type_.on_demand, type_.spot)
        ),
    ]
    return [*row, RETIRED] if type_.retired else row


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
