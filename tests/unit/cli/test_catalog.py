"""`windfall catalog`, which needs no daemon."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from windfall.cli.catalog import catalog
from windfall.cli.errors import BadUsage


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """What runs the tests may have said how wide its terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)


def run(*arguments):
    return CliRunner().invoke(catalog, arguments, catch_exceptions=False)


def test_gpus_with_their_price_per_gpu_hour():
    ran = run("--gpu", "v100", "--gpus", "8", "--retired")
    title, *lines = ran.stdout.splitlines()
    assert "$/GPU H" in title
    assert [line.split()[0] for line in lines] == ["p3.16xlarge", "p3dn.24xlarge"]
    assert "24.480" in lines[0]
    assert "3.060" in lines[0]


def test_columns_that_say_nothing_are_left_out():
    title = run("--family", "c5").stdout.splitlines()[0]
    assert "GPU" not in title
    assert "DISK" not in title


def test_retired_types_are_shown_when_asked_for():
    ran = run("--family", "p2")
    assert ran.stdout == ""
    assert "see --retired" in ran.stderr
    assert all(
        line.endswith("retired") for line in run("--family", "ml.p2", "--retired").stdout.splitlines()[1:]
    )


def test_unknown_figures_are_a_dash_and_said_so():
    ran = run("--family", "p5e")
    assert ran.stdout.splitlines()[1].split()[-2:] == ["-", "-"]
    assert "1 of 1 have no spot figure" in ran.stderr


def test_programs_get_every_figure_with_its_date():
    document = json.loads(run("--family", "p3", "--min-vcpus", "8", "--retired", "--json").stdout)
    small = document["instanceTypes"][0]
    assert small["instanceType"] == "p3.2xlarge"
    assert small["onDemand"] == {"usdHour": 3.06, "asOf": "2026-02-09"}
    assert small["memoryMib"] == 61 * 1024
    assert document["instanceTypes"][1]["spot"] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--gpu", "v1000"], "it knows A100, A10G"), (["--family", "q7"], "it has c5, c6i")],
)
def test_a_name_that_is_not_there_is_refused_with_those_that_are(arguments, text):
    with pytest.raises(BadUsage, match=text):
        run(*arguments)
