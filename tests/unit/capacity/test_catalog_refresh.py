"""examples/refresh_catalog.py over answers made by hand, in the form that botocore's models give them."""

from __future__ import annotations

import importlib.util
import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.stub import ANY, Stubber

from tests.tidy.tree import ROOT
from windfall.capacity import catalog
from windfall.capacity.catalog import Price, figures

NOW = datetime(2026, 11, 1, tzinfo=UTC)
P3 = {
    "InstanceType": "p3.2xlarge",
    "VCpuInfo": {"DefaultVCpus": 8},
    "MemoryInfo": {"SizeInMiB": 62464},
    "InstanceStorageSupported": False,
    "NetworkInfo": {"NetworkPerformance": "Up to 10 Gigabit"},
    "GpuInfo": {
        "Gpus": [{"Name": "V100", "Manufacturer": "NVIDIA", "Count": 1, "MemoryInfo": {"SizeInMiB": 16384}}],
        "TotalGpuMemoryInMiB": 16384,
    },
}


@pytest.fixture(scope="module")
def refresh():
    spec = importlib.util.spec_from_file_location("refresh_catalog", ROOT / "examples" / "refresh_catalog.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_type(name, **more):
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": 192},
        "MemoryInfo": {"SizeInMiB": 2048},
        **more,
    }


def a_product(*dimensions):
    priced = {
        str(number): {"unit": unit, "pricePerUnit": {"USD": usd}}
        for number, (unit, usd) in enumerate(dimensions)
    }
    return json.dumps({"product": {}, "terms": {"OnDemand": {"x": {"priceDimensions": priced}}}})


def a_change(zone, hours, usd):
    return {"AvailabilityZone": zone, "Timestamp": NOW - timedelta(hours=hours), "SpotPrice": usd}


def test_a_description_is_what_the_table_has(refresh):
    known = catalog.find("p3.2xlarge")
    assert refresh.shape(P3, known) == known


def test_a_new_type_has_no_prices_yet(refresh):
    one = refresh.shape(
        a_type(
            "g9.48xlarge",
            InstanceStorageSupported=True,
            InstanceStorageInfo={"TotalSizeInGB": 7600},
            NetworkInfo={"NetworkPerformance": "8x 200 Gigabit"},
            GpuInfo={"Gpus": [{"Name": "RTX PRO Server 6000", "Manufacturer": "NVIDIA", "Count": 8}]},
        ),
        None,
    )
    assert (one.gpus, one.gpu_model, one.gpu_memory_mib) == (8, "6000", None)
    assert (one.network_gbps, one.network_bursts, one.local_disk_gb) == (1600.0, False, 7600)
    assert (one.on_demand, one.spot, one.retired) == (None, None, False)


@pytest.mark.parametrize(
    ("described", "chips"),
    [
        ({"NeuronInfo": {"NeuronDevices": [{"Count": 16, "Name": "Trainium"}]}}, "16 Trainium"),
        (
            {"InferenceAcceleratorInfo": {"Accelerators": [{"Count": 4, "Name": "Inferentia"}]}},
            "4 Inferentia",
        ),
        ({"GpuInfo": {"Gpus": [{"Name": "Gaudi HL-205", "Manufacturer": "Habana", "Count": 8}]}}, "8 Gaudi"),
    ],
)
def test_chips_that_are_no_gpus(refresh, described, chips):
    one = refresh.shape(a_type("x.large", **described), None)
    assert (one.gpus, one.chips) == (0, chips)


def test_a_network_that_is_no_number_stays_as_known(refresh):
    described = P3 | {"NetworkInfo": {"NetworkPerformance": "High"}}
    assert refresh.shape(described, catalog.find("p3.2xlarge")).network_gbps == 10
    assert refresh.shape(described, None).network_gbps is None


def test_the_hourly_price_is_found_among_others(refresh):
    assert (
        refresh.on_demand_usd([a_product(("Quantity", "5.0")), a_product(("Hrs", "0.0"), ("Hrs", "3.06"))])
        == 3.06
    )
    assert refresh.on_demand_usd([]) is None
    assert refresh.on_demand_usd([json.dumps({"terms": {}})]) is None


def test_a_typical_spot_price_is_the_median_zone_over_time(refresh):
    history = [
        a_change("a", 48, "1.0"),
        a_change("a", 12, "3.0"),
        a_change("b", 48, "1.5"),
        a_change("c", 24, "9.0"),
    ]
    since = NOW - timedelta(hours=24)
    # Zone a: half of the time 1, half of it 3.
    assert refresh.typical_spot_usd(history, since, NOW) == 2.0
    assert refresh.typical_spot_usd([], since, NOW) is None


def test_the_table_keeps_its_order_and_headings(refresh):
    table = (
        "type vCPUs GiB accelerators Gbps disk_GB on_demand spot\n"
        "\n# one\na.large 2 4 - ~10 0 1@2020 -\n"
        "\n# two\nb.large 2 4 - 10 0 - - retired\n"
    )
    new = catalog.read_figures("b.large 2 4 - 10 0 7@2026 - retired\nc.large 8 16 - - - - -\n")
    updated = refresh.updated_table(table, new)
    assert [line.split()[:1] for line in updated.splitlines()] == [
        ["type"],
        [],
        ["#"],
        ["a.large"],
        [],
        ["#"],
        ["b.large"],
        ["c.large"],
    ]
    read = catalog.read_figures(updated)
    assert [(one.name, one.on_demand_usd_hour, one.retired) for one in read] == [
        ("a.large", 1, False),
        ("b.large", 7, True),
        ("c.large", None, False),
    ]


def test_the_packages_own_table_is_not_changed_by_nothing(refresh):
    assert refresh.updated_table(figures.FIGURES, []) == figures.FIGURES.lstrip("\n")


def test_the_calls_are_those_that_botocore_knows(refresh):
    """botocore checks parameters and answers against its models; only the network is left out."""
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    ec2, pricing = boto3.client("ec2", **keys), boto3.client("pricing", **keys)
    asked_ec2, asked_pricing = Stubber(ec2), Stubber(pricing)
    asked_ec2.add_response("describe_instance_types", {"InstanceTypes": [P3]}, {"Filters": ANY})
    asked_pricing.add_response(
        "get_products",
        {"FormatVersion": "aws_v1", "PriceList": [a_product(("Hrs", "2.5"))]},
        {"ServiceCode": "AmazonEC2", "Filters": ANY},
    )
    asked_ec2.add_response(
        "describe_spot_price_history",
        {"SpotPriceHistory": [{"InstanceType": "p3.2xlarge"} | a_change("a", 99, "0.9")]},
        {
            "InstanceTypes": ["p3.2xlarge"],
            "ProductDescriptions": ["Linux/UNIX"],
            "StartTime": ANY,
            "EndTime": NOW,
        },
    )
    # Descriptions are asked for a hundred types at a time, and dealt with before the next hundred.
    asked_ec2.add_response("describe_instance_types", {"InstanceTypes": []}, {"Filters": ANY})
    with asked_ec2, asked_pricing:
        found = list(refresh.refreshed(ec2, pricing, [], "US East (N. Virginia)", NOW, days=2))
    (one,) = found
    assert (one.name, one.on_demand, one.spot) == (
        "p3.2xlarge",
        Price(2.5, "2026-11-01"),
        Price(0.9, "2026-11-01"),
    )
