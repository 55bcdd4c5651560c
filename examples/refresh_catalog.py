"""Refreshes Windfall's catalog of instance types from AWS's own APIs, for those who have an account.

    pip install boto3
    python examples/refresh_catalog.py                      # prints the new table
    python examples/refresh_catalog.py --add g7e --write    # adds a family, and writes it into the installed package

Asks EC2 for shapes (DescribeInstanceTypes) and spot prices (DescribeSpotPriceHistory), and the price list for on-demand
prices (GetProducts). A figure that AWS does not give stays as it was, with its own date.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from windfall.capacity.catalog import InstanceType, Price, figures, read_figures, write_figures

LOCATIONS = {
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-west-2": "US West (Oregon)",
}
NETWORK = re.compile(r"(?P<bursts>up to )?(?:(?P<cards>\d+)x )?(?P<gbps>[\d.]+) gigabit", re.IGNORECASE)
AT_ONCE = 100


def shape(described: dict[str, Any], known: InstanceType | None) -> InstanceType:
    """What DescribeInstanceTypes says of one type; its prices, and its GPU's name if it has one, stay as known."""
    network = NETWORK.fullmatch(described.get("NetworkInfo", {}).get("NetworkPerformance", ""))
    stored = described.get("InstanceStorageInfo", {}).get("TotalSizeInGB")
    new = InstanceType(
        name=described["InstanceType"],
        vcpus=described["VCpuInfo"]["DefaultVCpus"],
        memory_mib=described["MemoryInfo"]["SizeInMiB"],
        network_gbps=float(network["gbps"]) * int(network["cards"] or 1) if network else None,
        network_bursts=bool(network and network["bursts"]),
        local_disk_gb=stored if described.get("InstanceStorageSupported") else 0,
        on_demand=known.on_demand if known else None,
        spot=known.spot if known else None,
        retired=bool(known and known.retired),
    )
    if new.network_gbps is None and known is not None:
        new = replace(new, network_gbps=known.network_gbps, network_bursts=known.network_bursts)
    return with_accelerators(new, described, known)


def with_accelerators(
    new: InstanceType, described: dict[str, Any], known: InstanceType | None
) -> InstanceType:
    """The GPUs, or the chips that are none, of a description."""
    neuron = described.get("NeuronInfo", {}).get("NeuronDevices", [])
    inference = described.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
    for chip in [*neuron, *inference]:
        return replace(new, chips=f"{chip['Count']} {chip['Name'].split()[-1]}")
    for gpu in described.get("GpuInfo", {}).get("Gpus", []):
        if gpu.get("Manufacturer") == "Habana":
            return replace(new, chips=f"{gpu['Count']} Gaudi")
        return replace(
            new,
            gpus=gpu["Count"],
            gpu_model=known.gpu_model if known and known.gpu_model else gpu["Name"].split()[-1],
            gpu_memory_mib=gpu.get("MemoryInfo", {}).get("SizeInMiB"),
        )
    return new


def on_demand_usd(price_list: Iterable[str]) -> float | None:
    """Dollars an hour in an answer of GetProducts: a list of JSON documents, of which one has an hourly price."""
    for document in price_list:
        for term in json.loads(document).get("terms", {}).get("OnDemand", {}).values():
            for dimension in term["priceDimensions"].values():
                usd = float(dimension["pricePerUnit"].get("USD", 0))
                if dimension["unit"] == "Hrs" and usd > 0:
                    return usd
    return None


def typical_spot_usd(history: Iterable[dict[str, Any]], since: datetime, until: datetime) -> float | None:
    """The median over the zones of each zone's mean over time; each entry is a price from its time on."""
    zones: dict[str, list[tuple[datetime, float]]] = {}
    for entry in history:
        zones.setdefault(entry["AvailabilityZone"], []).append(
            (entry["Timestamp"], float(entry["SpotPrice"]))
        )
    means = [mean for changes in zones.values() if (mean := _mean(sorted(changes), since, until)) is not None]
    return round(statistics.median(means), 4) if means else None


def _mean(changes: Sequence[tuple[datetime, float]], since: datetime, until: datetime) -> float | None:
    weighed = whole = 0.0
    for number, (begin, price) in enumerate(changes):
        end = changes[number + 1][0] if number + 1 < len(changes) else until
        seconds = max(0.0, (min(end, until) - max(begin, since)).total_seconds())
        weighed += price * seconds
        whole += seconds
    return weighed / whole if whole else None


def updated_table(table: str, types: Iterable[InstanceType]) -> str:
    """The table with these types in their old places, new ones at the end, and its headings as they were."""
    new = {one.name: one for one in types}
    order = {one.name: new.pop(one.name, one) for one in read_figures(table)}
    titles, *lines = write_figures([*order.values(), *new.values()]).splitlines()
    by_name = {line.split()[0]: line for line in lines}
    kept = [
        by_name[line.split()[0]] if line.strip() and not line.startswith("#") else line.rstrip()
        for line in table.strip().splitlines()[1:]
    ]
    return "\n".join([titles, *kept, *(by_name[name] for name in new)]) + "\n"


def described_types(ec2: Any, patterns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All descriptions of types that these names or globs mean."""
    for first in range(0, len(patterns), AT_ONCE):
        values = list(patterns[first : first + AT_ONCE])
        filters = [{"Name": "instance-type", "Values": values}]
        for page in ec2.get_paginator("describe_instance_types").paginate(Filters=filters):
            yield from page["InstanceTypes"]


def on_demand(pricing: Any, name: str, location: str) -> float | None:
    """The price of a type on demand: Linux, shared tenancy, nothing preinstalled."""
    wanted = {
        "instanceType": name,
        "location": location,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    return on_demand_usd(pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"])


def spot(ec2: Any, name: str, since: datetime, until: datetime) -> float | None:
    """The typical spot price of a type in that time, over all zones of the region."""
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=[name], ProductDescriptions=["Linux/UNIX"], StartTime=since, EndTime=until
    )
    return typical_spot_usd((entry for page in pages for entry in page["SpotPriceHistory"]), since, until)


def refreshed(
    ec2: Any, pricing: Any, families: Sequence[str], location: str, now: datetime, days: float
) -> Iterator[InstanceType]:
    """Every type of the table, and of these families, with the figures that AWS gives now."""
    known = {one.name: one for one in read_figures(figures.FIGURES)}
    today = now.strftime("%Y-%m-%d")
    for described in described_types(ec2, [*known, *(f"{family}.*" for family in families)]):
        one = shape(described, known.get(described["InstanceType"]))
        if (usd := on_demand(pricing, one.name, location)) is not None:
            one = replace(one, on_demand=Price(usd, today))
        if (usd := spot(ec2, one.name, now - timedelta(days=days), now)) is not None:
            one = replace(one, spot=Price(usd, today))
        print(f"{one.name}: {one.on_demand} {one.spot}", file=sys.stderr)
        yield one


def main() -> None:
    """Ask AWS, and print or write the table."""
    parser = argparse.ArgumentParser(description="Refresh Windfall's catalog from AWS's own APIs.")
    parser.add_argument("--region", default="us-east-1", choices=sorted(LOCATIONS), help="whose prices")
    parser.add_argument("--days", type=float, default=7, help="spot prices of the last so many days")
    parser.add_argument("--add", action="append", default=[], metavar="FAMILY", help="a family to add")
    parser.add_argument("--write", action="store_true", help="write it into the installed package")
    arguments = parser.parse_args()

    import boto3

    ec2 = boto3.client("ec2", region_name=arguments.region)
    # The price list of all regions is served from a few.
    pricing = boto3.client("pricing", region_name="us-east-1")
    location = LOCATIONS[arguments.region]
    types = refreshed(ec2, pricing, arguments.add, location, datetime.now(UTC), arguments.days)
    table = updated_table(figures.FIGURES, types)
    if not arguments.write:
        print(table, end="")
        return
    place = Path(figures.__file__)
    place.write_text(
        place.read_text(encoding="utf-8").replace(figures.FIGURES, f"\n{table}"), encoding="utf-8"
    )
    print(f"written: {place}", file=sys.stderr)


if __name__ == "__main__":
    main()
