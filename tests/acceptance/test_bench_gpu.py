"""`windfall bench gpu` under a real daemon: real jobs under a real Python with numpy, measured, told and drawn."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from tests.acceptance.daemon import RunningWindfall


@pytest.fixture(scope="module")
def windfall() -> Iterator[RunningWindfall]:
    """Jobs run as this user, because only this user may be able to reach this Python."""
    cores = str(min(4, os.cpu_count() or 1))
    running = RunningWindfall(
        *("--vcpus", cores, "--memory-mib", "8192", "--gpus", "simulated:1", "--job-user", getpass.getuser())
    )
    try:
        yield running.up()
    finally:
        running.close()


def test_the_suite_runs_as_a_job_and_takes_no_simulated_gpu_for_a_real_one(windfall, tmp_path):
    files = ["--json", str(tmp_path / "gpu.json"), "--plot", str(tmp_path / "gpu.svg")]
    ran = windfall.windfall(
        "bench", "gpu", "--quick", "--frameworks", "numpy", "--python", sys.executable, *files
    )
    assert "no real GPU is offered here (1 simulated, which compute nothing)" in ran.stderr
    assert "Matrix 1000x1000" in ran.stdout
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["gpus"] == []
    assert {one["device"] for one in document["measurements"]} == {"cpu"}
    samples = [sample for one in document["measurements"] for sample in one["samplesS"]]
    assert samples
    assert min(samples) > 0
    assert {one["name"] for one in document["ceilings"]} == {"fp32_flop_s", "memory_bytes_s"}
    [job] = windfall.client("batch").describe_jobs(jobs=[document["jobs"][0]["jobId"]])["jobs"]
    assert (job["jobName"], job["status"]) == ("bench-gpu-cpu", "SUCCEEDED")
    assert ET.parse(tmp_path / "gpu.svg").getroot().tag.endswith("svg")


def test_small_tasks_run_in_all_four_ways(windfall):
    ran = windfall.windfall(
        "bench", "gpu", "--pack", "4", "--frameworks", "numpy", "--python", sys.executable, "--json", "-"
    )
    pack = json.loads(ran.stdout)["pack"]
    assert (pack["tasks"], pack["device"]) == (4, "cpu")
    assert [way["reason"] for way in pack["ways"]] == [""] * 4
    assert all(way["wallS"] > 0 for way in pack["ways"])


def test_a_python_that_jobs_cannot_run_is_told(windfall, tmp_path):
    broken = tmp_path / "python3"
    broken.write_text(f'#!/bin/sh\ncase "$2" in *b64decode*) exit 126;; esac\nexec {sys.executable} "$@"\n')
    broken.chmod(0o755)
    ran = windfall.windfall("bench", "gpu", "--quick", "--python", str(broken), check=False)
    assert ran.returncode == 1
    assert "the job bench-gpu-cpu" in ran.stderr
    assert "failed" in ran.stderr
    assert "name one that jobs may run with --python" in ran.stderr
