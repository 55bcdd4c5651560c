"""How `windfall cost` asks, and how it lays out what the daemon answers."""

from __future__ import annotations

import json
import re
import time

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from windfall.cli.cost import adding_up, cost, ledger_bar
from windfall.cli.errors import BadUsage

ID = "0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11"
NOTHING = {"useful": 0, "checkpoint": 0, "lost": 0, "startUp": 0, "idle": 0, "waiting": 0}


def a_sum(paid=0.0, on_demand=0.0, unpriced=0, saved=None, **ms):
    usd = {name: paid if name == "useful" else 0.0 for name in NOTHING if name != "waiting"}
    return {
        "jobs": 1,
        "attempts": 1,
        "ms": NOTHING | ms,
        "usd": usd,
        "paidUsd": paid,
        "onDemandUsd": on_demand,
        "savedPercent": saved,
        "unpricedMs": unpriced,
    }


def rows(*some, total, by="queue", truncated=False):
    return {"by": by, "rows": list(some), "total": total, "truncated": truncated, "now": 0, "sinceAt": 0}


@pytest.fixture
def asking(daemon, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    daemon.answers["FindJobs"] = {"jobIds": [ID]}

    def run(*arguments):
        return CliRunner().invoke(cost, arguments, catch_exceptions=False)

    return run


def test_rows_and_a_total_that_they_add_up_to(daemon, asking):
    third = 20 * 3_600_000 // 3
    daemon.answers["Cost"] = rows(
        *({"key": name, "name": None} | a_sum(1.0, 4.0, saved=75.0, useful=third) for name in "abc"),
        total=a_sum(3.0, 12.0, saved=75.0, useful=3 * third) | {"jobs": 3},
    )
    title, *lines = asking().stdout.splitlines()
    assert "USEFUL h" in title
    assert "LOST h" in title
    assert [line.split()[0] for line in lines] == ["a", "b", "c", "total"]
    useful = [float(line.split()[2]) for line in lines]
    assert useful[:3] in ([6.67, 6.66, 6.67], [6.67, 6.67, 6.66], [6.66, 6.67, 6.67])
    assert round(sum(useful[:3]), 2) == useful[3] == 20.0
    assert lines[-1].split()[-4:] == ["3.00", "12.00", "75.0", "%"]


def test_short_jobs_are_told_in_seconds(daemon, asking):
    daemon.answers["Cost"] = rows(
        {"key": "q", "name": None} | a_sum(useful=12_340), total=a_sum(useful=12_340)
    )
    assert "USEFUL s" in asking().stdout
    assert "12.34" in asking().stdout


def test_what_it_asks_for(daemon, asking):
    daemon.answers["Cost"] = rows(total=a_sum())
    before = time.time_ns() // 1_000_000
    assert "see --since" in asking("--by", "tag:team", "--since", "12h").stderr
    asking("--since", "all")
    asked, everything = daemon.params_of("Cost")
    assert asked["by"] == "tag:team"
    assert 0 <= asked["sinceAt"] - (before - 12 * 3_600_000) < 60_000
    assert everything == {"by": "queue", "sinceAt": 0}


@pytest.mark.parametrize("since", ["", "7", "d", "-1d", "1y", "1 d", "9999999d"])
def test_a_span_that_is_none_is_refused(daemon, asking, since):
    with pytest.raises(BadUsage, match="write it as 30m, 12h, 7d, 2w or all"):
        asking("--since", since)
    assert daemon.params_of("Cost") == []


def test_one_job_has_one_ledger(daemon, asking):
    with pytest.raises(BadUsage, match="one job has one ledger"):
        asking("train", "--by", "day")


def test_rows_without_a_key_and_with_a_name(daemon, asking):
    daemon.answers["Cost"] = rows(
        {"key": "id-1", "name": "train"} | a_sum(useful=1000),
        {"key": None, "name": "7 others"} | a_sum(useful=1000),
        {"key": None, "name": None} | a_sum(useful=1000),
        total=a_sum(useful=3000),
        by="job",
        truncated=True,
    )
    ran = asking("--by", "job")
    assert "train id-1" in ran.stdout
    assert "7 others" in ran.stdout
    assert "(none)" in ran.stdout
    assert "more jobs than one answer looks at" in ran.stderr


def test_what_has_no_price_is_said(daemon, asking):
    daemon.answers["Cost"] = rows(
        {"key": "q", "name": None} | a_sum(useful=90_000, unpriced=90_000),
        total=a_sum(useful=90_000, unpriced=90_000),
    )
    assert "1 min 30 s on instances have no price" in asking().stderr
    ran = asking()
    assert "--usd-gpu-hour" in ran.stderr
    assert "GPU s" in ran.stdout
    assert not re.search(r"0\.0000|PAID|SAVED|%", ran.stdout)


def a_ledger():
    first = NOTHING | {"useful": 50_000, "lost": 10_000, "startUp": 5_000, "waiting": 15_000}
    second = NOTHING | {"useful": 30_000, "checkpoint": 10_000}
    whole = {name: first[name] + second[name] for name in NOTHING}
    common = {"instance": "i-1", "instanceType": "p3.2xlarge", "market": "spot"}
    return {
        "jobId": ID,
        "jobName": "train",
        "state": "SUCCEEDED",
        "budgetUsd": 5.0,
        "attempts": [
            common | {"number": 1, "ms": first, "paidUsd": 0.02, "stopCause": "interrupted"},
            common | {"number": 2, "ms": second, "paidUsd": None, "stopCause": None},
            {"number": None, "ms": NOTHING | {"waiting": 1_000}},
        ],
        "total": a_sum(0.02, 0.08, saved=75.0, **whole),
        "trainingSeconds": 105,
        "billableSeconds": 26,
        "savingsPercent": (1 - 26 / 105) * 100,
    }


def test_the_ledger_of_a_job(daemon, asking):
    daemon.answers["Cost"] = a_ledger()
    ran = asking("train")
    assert daemon.params_of("Cost") == [{"jobId": ID}]
    first, second, third = ran.stdout.splitlines()[2:5]
    assert "p3.2xlarge spot, interrupted" in first
    assert first.endswith("·" * 7 + "░" * 3 + "█" * 25 + "▒" * 5)
    assert second.endswith("█" * 15 + "▓" * 5)
    assert second.split()[5] == "-"
    assert "(no place)" in third
    assert "wall clock  2 min" in ran.stdout
    assert "paid $0.0200, on demand $0.0800 for the same hours, 75.0 % saved; budget $5.0000" in ran.stdout
    assert "105 s of training, 26 s billable, 75.2 % saved" in ran.stdout


def test_a_job_without_prices_says_so(daemon, asking):
    answer = a_ledger()
    answer["total"] |= {"paidUsd": 0.0, "onDemandUsd": 0.0, "savedPercent": None}
    answer["trainingSeconds"] = None
    daemon.answers["Cost"] = answer
    ran = asking("train")
    assert "no price is known" in ran.stdout
    assert "AWS's formula" not in ran.stdout


def test_programs_get_the_answer_as_it_is(daemon, asking):
    daemon.answers["Cost"] = a_ledger()
    assert json.loads(asking("train", "--json").stdout) == a_ledger()


def test_a_bar_of_nothing_is_empty():
    assert ledger_bar(NOTHING, 0).plain == ""


@given(st.lists(st.floats(0, 1e6), max_size=20), st.sampled_from([2, 4]))
def test_rounded_parts_add_up_to_the_rounded_whole(values, digits):
    parts = adding_up(values, digits)
    assert sum(parts) == pytest.approx(round(sum(values), digits), abs=10**-digits / 2)
    assert all(part >= 0 for part in parts)
    assert all(abs(part - value) < 1.01 * 10**-digits for part, value in zip(parts, values, strict=True))
