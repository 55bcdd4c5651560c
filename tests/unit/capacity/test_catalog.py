"""What the catalog holds, and what names and needs lead to."""

from __future__ import annotations

import re

import pytest

from windfall.capacity import catalog
from windfall.jobs.attempts import Market
from windfall.jobs.errors import Invalid
from windfall.jobs.resources import Resources

EVERYTHING = catalog.select(include_retired=True)


def names(types):
    return [one.name for one in types]


def test_a_type_has_what_aws_says():
    p3 = catalog.find("p3.8xlarge")
    assert (p3.gpus, p3.gpu_model, p3.gpu_memory_mib) == (4, "V100", 16 * 1024)
    assert p3.resources == Resources(32, 244 * 1024, 4)
    assert p3.on_demand_usd_hour == 12.24
    assert p3.usd_gpu_hour(Market.ON_DEMAND) == pytest.approx(3.06)
    assert p3.family == "p3"


@pytest.mark.parametrize(
    ("name", "means"),
    [("ml.g5.xlarge", "g5.xlarge"), ("p6-b200.48xlarge", "p6-b200.48xlarge"), ("p2.xlarge", "p2.xlarge")],
)
def test_a_type_is_found_under_its_names(name, means):
    assert catalog.find(name).name == means


@pytest.mark.parametrize("name", ["", "ml.", "p3", "p3.3xlarge", "ml.ml.p3.2xlarge", "P3.2xlarge"])
def test_what_is_no_type_is_not_found(name):
    assert catalog.find(name) is None


def test_types_are_selected_by_what_they_have():
    eight = catalog.select(gpus_min=8, gpu_model="a100")
    assert names(eight) == ["p4d.24xlarge", "p4de.24xlarge"]
    assert names(catalog.select(family="g5", vcpus_min=64, memory_mib_min=300 * 1024)) == [
        "g5.24xlarge",
        "g5.48xlarge",
    ]
    assert names(catalog.select(family="p2")) == names(catalog.select(family="p3")) == []
    assert names(catalog.select(family="p3", vcpus_min=64, include_retired=True)) == ["p3.16xlarge"]
    assert len(catalog.select(family="p2", include_retired=True)) == 3
    assert len(catalog.select()) == len(EVERYTHING) - sum(one.retired for one in EVERYTHING)


def test_batch_names_types_families_and_optimal():
    assert names(catalog.expand(["g5.2xlarge", "p3"])) == [
        "g5.2xlarge",
        "p3.2xlarge",
        "p3.8xlarge",
        "p3.16xlarge",
    ]
    assert names(catalog.expand(["p3.8xlarge", "p3", "p3.8xlarge"]))[0] == "p3.8xlarge"
    assert len(catalog.expand(["p3.8xlarge", "p3"])) == 3
    general = catalog.expand(["optimal"])
    assert {one.family for one in general} == {"c5", "c6i", "c7i", "m5", "m6i", "m7i", "r5", "r6i"}
    assert general == catalog.expand(["default_x86_64"])
    assert all(one.gpus == 0 and not one.retired for one in general)
    assert catalog.expand([]) == []


def test_a_retired_family_that_is_named_is_meant():
    assert all(one.retired for one in catalog.expand(["p2", "p3", "g3.4xlarge"]))
    assert not catalog.find("p3dn.24xlarge").retired


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p3.3xlarge", "of the family p3 it has p3.2xlarge, p3.8xlarge, p3.16xlarge"),
        ("p33", "neither an instance type nor a family of the catalog; its families in p are p2, p3, "),
        ("zz9", "name a type, a family or `optimal`; `windfall catalog` lists all of it"),
        ("ml.eia2.medium", "Elastic Inference was ended by AWS in April 2024"),
        ("default_arm64", "Arm types are not offered"),
        ("", "name a type, a family or `optimal`"),
    ],
)
def test_an_unknown_name_is_refused_with_advice(name, text):
    with pytest.raises(catalog.UnknownInstanceType, match=re.escape(text)) as raised:
        catalog.expand(["g5", name])
    assert raised.value.name == name
    assert isinstance(raised.value, Invalid)


def test_a_missing_spot_figure_is_a_share_of_the_on_demand_price():
    known, unknown = catalog.find("p5.48xlarge"), catalog.find("p4d.24xlarge")
    assert known.usd_hour(Market.SPOT) == known.spot_usd_hour == known.spot.usd_hour
    assert unknown.spot_usd_hour is None
    assert unknown.usd_gpu_hour(Market.SPOT) is None
    assert unknown.usd_hour(Market.SPOT) == pytest.approx(0.3 * unknown.on_demand_usd_hour)
    assert unknown.usd_hour(Market.SPOT, spot_factor=0.5) == pytest.approx(0.5 * unknown.on_demand_usd_hour)
    nobody_knows = catalog.find("p6-b300.48xlarge")
    assert nobody_knows.usd_hour(Market.SPOT) is None
    assert nobody_knows.usd_hour(Market.ON_DEMAND) is None


@pytest.mark.parametrize("one", EVERYTHING, ids=lambda one: one.name)
def test_every_line_makes_sense(one):
    assert one.vcpus > 0
    assert one.memory_mib >= 512
    assert (one.gpus > 0) == (one.gpu_model is not None)
    assert not (one.gpus and one.chips)
    for price in (one.on_demand, one.spot):
        if price is not None:
            assert price.usd_hour > 0
            assert re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", price.as_of)
    if one.spot is not None and one.on_demand is not None:
        assert one.spot.usd_hour < one.on_demand.usd_hour


def test_larger_sizes_of_a_cpu_family_cost_more_in_proportion():
    for family in ("c5", "c6i", "c7i", "m5", "m6i", "m7i", "r5", "r6i"):
        shares = {round(one.on_demand_usd_hour / one.vcpus, 6) for one in catalog.select(family=family)}
        assert len(shares) == 1, family


def test_the_table_reads_back_as_it_was_written():
    assert catalog.read_figures(catalog.write_figures(EVERYTHING)) == EVERYTHING


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x.large 2 4 - 10 0 0.1@2026 - retired extra", "this one does not"),
        ("x.large 2 4 - 10 0", "this one does not"),
        ("x.large two 4 - 10 0 0.1@2026 -", "two"),
        ("x.large 2 4 - 10 0 0.1 -", "'0.1' is not a price with its date"),
        ("x.large 2 4 V100/16 10 0 - -", "V100"),
    ],
)
def test_a_line_that_is_none_is_named(line, text):
    with pytest.raises(catalog.BadFigures, match=re.escape(text)):
        catalog.read_figures(f"# comment\n\n{line}\n")
