"""The tutorials, typed as a reader types them: every shell block of a page, in order, against a real daemon."""

from __future__ import annotations

import getpass
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.reader import typed
from tests.docs.pages import FENCE
from tests.tidy.tree import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"


@pytest.fixture
def reader() -> Iterator[tuple[RunningWindfall, Path]]:
    """A daemon whose jobs run as the reader, and an empty directory to work in."""
    running = RunningWindfall("--vcpus", "8", "--memory-mib", "16384", "--job-user", getpass.getuser())
    place = Path(tempfile.mkdtemp(prefix="tutorial-", dir="/var/tmp"))
    try:
        yield running.up(), place
    finally:
        running.close()
        shutil.rmtree(place, ignore_errors=True)


def blocks(page: str) -> str:
    """All shell blocks of a page, in order."""
    text = (TUTORIALS / page).read_text(encoding="utf-8")
    return "\n".join(fence[3] for fence in FENCE.finditer(text) if fence[2] == "sh")


def test_a_plain_program_goes_on_where_it_was(reader):
    printed = typed(*reader, blocks("plain-program.md"))
    assert "sum 179999700000" in printed, "the sum of an uninterrupted run"
    started = re.findall(r"starting at (\d+)", printed)
    assert started, printed
    assert int(started[-1]) > 0, "the last attempt did not begin from nothing"
    assert "progress.json" in printed, "describe shows what was saved"


def test_a_batch_job_resumes_at_the_step_where_it_stopped(reader):
    printed = typed(*reader, blocks("batch-job.md"))
    hashes = re.findall(r"weights ([0-9a-f]{64})", printed)
    assert len(hashes) == 2, printed
    assert hashes[0] == hashes[1], "the interrupted and the uninterrupted run end with the same bits"
    resumed = [int(step) for step in re.findall(r"training from step (\d+)", printed)]
    assert resumed[0] > 0, "the log shown is that of the second attempt"
    assert resumed[-1] == 0, "the reference began at the beginning"
