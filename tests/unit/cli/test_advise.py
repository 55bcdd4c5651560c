"""How advice is laid out; what it says is the daemon's."""

from __future__ import annotations

from typing import Any

import pytest

from windfall.cli.advise import gain_text

NOTHING = {"timeFactor": None, "utilisation": None, "usdHour": None, "usdJob": None}


def gain(**more: Any) -> str:
    return gain_text(NOTHING | more)


def test_a_gain_has_the_numbers_that_there_are():
    whole = gain(timeFactor=0.4, utilisation=0.5, usdHour=31.212, usdJob=124.848)
    assert (
        whole == "predicted: 40 % of the time, GPU busy for 50 %, $31.21 an hour, $124.85 for its time so far"
    )
    assert gain(timeFactor=1.0) == "predicted: 100 % of the time"


def test_no_number_is_no_prediction():
    assert gain() == ""
    assert gain(usdHour=3.0) == ""


def a_row(definition: str) -> dict[str, Any]:
    text = "it uses 3.9 of its 4 vCPUs: ask for more (resourceRequirements VCPU), or prepare the data before"
    advice = {"cause": "cpu-preprocessing", "kind": "change", "text": text, "assumptions": ["as before"]}
    return {
        "jobId": "3d2ad55f-c35d-4d37-ab17-20fe5666bfb4",
        "jobName": "train",
        "jobDefinition": definition,
        "state": "RUNNING",
        "gpuHours": 1.0,
        "wastedGpuHours": 0.5,
        "busy": 0.5,
        "note": None,
        "cause": "cpu-preprocessing",
        "confidence": 0.9,
        "meaning": "its loader does not keep up",
        "evidence": ["the CPU is busy while the GPU waits"],
        "branches": [],
        "advice": [advice | NOTHING],
        "noHelp": ["more than one GPU"],
        "missing": [
            {"what": "how long a batch takes", "how": "submit it with the tag windfall:profile=true"}
        ],
    }


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("windfall-run:1", ("ask for more (--vcpus)", "submit it with --tag windfall:profile=true")),
        ("mine:1", ("(resourceRequirements VCPU)", "the tag windfall:profile=true")),
    ],
)
def test_a_job_of_windfall_run_is_told_its_options_and_no_line_ends_with_blanks(
    windfall, daemon, monkeypatch, definition, words
):
    monkeypatch.setenv("COLUMNS", "60")
    daemon.answers["Advise"] = {"jobs": [a_row(definition)], "truncated": False}
    ran = windfall("advise", "3d2ad55f-c35d-4d37-ab17-20fe5666bfb4")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert max(map(len, lines)) <= 60
    assert all(text in " ".join(ran.out.split()) for text in words)
