"""docs/sagemaker.md, followed as a reader follows it: its files saved, its programs run, its commands typed."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.reader import typed
from tests.conftest import require_part
from tests.docs.pages import FENCE
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from windfall.daemon.seaweedfs import S3ServerError, find_program

GROUP = "/aws/sagemaker/TrainingJobs"
PAGE = (ROOT / "docs" / "sagemaker.md").read_text(encoding="utf-8")

#: What the reader has said before.
LOGGED_IN = 'eval "$(windfall env)"\n'


@pytest.fixture
def reader() -> Iterator[tuple[RunningWindfall, Path]]:
    """A daemon with an S3 server, and a directory with the files that the page has the reader save."""
    try:
        find_program()
    except S3ServerError as error:
        require_part(False, str(error))
    running = RunningWindfall("--vcpus", "8", "--memory-mib", "32768", "--s3", "--s3-port", "0")
    place = Path(tempfile.mkdtemp(prefix="sagemaker-page-"))
    for name, content in re.findall(
        r"<!-- file: (\S+) -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    ):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(content)
    try:
        yield running.up(), place
    finally:
        running.close()
        shutil.rmtree(place, ignore_errors=True)


def test_the_page_does_what_it_says(reader):
    running, place = reader
    typed(running, place, LOGGED_IN + "python run.py")
    logs = running.client("logs")

    def trains() -> bool:
        events = logs.filter_log_events(logGroupName=GROUP, logStreamNamePrefix="by-boto3/")["events"]
        return any("step 5 " in event["message"] for event in events)

    wait_until(lambda: logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"], "a log")
    wait_until(trains, "the job trains")
    (block,) = [fence[3] for fence in FENCE.finditer(PAGE) if fence[2] == "sh" and "interrupt" in fence[3]]
    printed = typed(running, place, LOGGED_IN + block)
    statuses = [status for status, _ in json.loads(printed[printed.index("[\n") : printed.rindex("]") + 1])]
    assert statuses[:4] == ["Starting", "Downloading", "Training", "Interrupted"]
    assert statuses[-1] == "Completed"
    with tarfile.open(place / "model.tar.gz") as archive:
        model = json.load(archive.extractfile("model.json") or pytest.fail("no model"))
    assert model == {"step": 300, "sum": 600}


def test_every_block_of_python_can_be_compiled():
    blocks = [fence[3] for fence in FENCE.finditer(PAGE) if fence[2] == "python"]
    assert len(blocks) == 5
    for block in blocks:
        assert compile(block, "docs/sagemaker.md", "exec")
