"""Recordings of real programs on an NVIDIA H200, each made to be bound by one cause by `bench/advisor_gpu.py`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from windfall.advisor import sample_file
from windfall.advisor.causes import Cause, Finding
from windfall.advisor.finding import find_cause
from windfall.advisor.samples import Recording
from windfall.advisor.signs import HardwareLimits

RECORDINGS = Path(__file__).parent / "recordings"
FIRST, SECOND = "h200-2026-11-15-first.zip", "h200-2026-11-15-second.zip"
FOURTH = "h200-2026-11-16-fourth.zip"
MADE = {
    "disk": Cause.DISK,
    "cpu_preprocessing": Cause.CPU,
    "launch_bound": Cause.LAUNCH,
    "synchronisation": Cause.SYNCHRONISATION,
    "pcie_transfer": Cause.PCIE,
    "memory_bound": Cause.MEMORY,
    "few_requests": Cause.REQUESTS,
    "held_but_idle": Cause.IDLE,
    "start_up": Cause.START_UP,
    "compute_bound": Cause.COMPUTE,
}


def recorded(name: str, archive: str = FIRST) -> Recording:
    with zipfile.ZipFile(RECORDINGS / archive) as files:
        found = sample_file.recording(files.read(f"{name}.samples"))
    assert found is not None
    return found


def finding_of(recording: Recording) -> Finding:
    return find_cause(recording, HardwareLimits(recording.vcpus, pcie_bytes_s=recording.gpus[0].pcie_bytes_s))


#: In the second run alone; the last three were made after the thresholds.
MADE_LATER = {
    "network": Cause.NETWORK,
    "loader_workers": Cause.CPU,
    "small_training": Cause.LAUNCH,
    "large_training": Cause.COMPUTE,
}


@pytest.mark.parametrize("name", MADE)
def test_the_cause_that_a_program_was_made_for_is_named(name):
    finding = finding_of(recorded(name))
    assert finding.cause is MADE[name]
    assert finding.confidence > 0.5


@pytest.mark.parametrize("run", [SECOND, FOURTH])
@pytest.mark.parametrize("name", MADE | MADE_LATER)
def test_later_runs_say_the_same(name, run):
    finding = finding_of(recorded(name, run))
    assert finding.cause is (MADE | MADE_LATER)[name]
    assert finding.confidence > 0.5


def test_another_process_on_the_same_gpu_is_no_evidence_about_the_job():
    """The job received 300 MB/s while somebody else kept the GPU busy: nothing is claimed about it."""
    finding = finding_of(recorded("beside_another_process"))
    assert finding.cause is None
    assert finding.confidence == 0
