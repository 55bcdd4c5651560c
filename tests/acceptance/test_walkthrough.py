"""The walkthrough, line by line, with the real aws command line: our page, and the guide that it follows."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.docs.pages import FENCE
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "walkthrough.md"
#: The guide itself lies beside the repository on the machines where Windfall is developed.
GUIDE = ROOT.parent / "shared" / "seeds" / "003_dfb57523eabe4264.txt"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/ml-training:latest"


def commands(page: Path) -> list[str]:
    """Every `aws batch` and `aws logs` command of the page's shell blocks."""
    blocks = [match[3] for match in FENCE.finditer(page.read_text()) if match[2] in {"sh", "bash"}]
    found = [re.sub(r"^#.*\n", "", block, flags=re.MULTILINE).strip() for block in blocks]
    return [command for command in found if command.startswith(("aws batch", "aws logs"))]


def mapped_image(windfall: RunningWindfall) -> None:
    # A copy that the job user can read wherever the repository is.
    directory = windfall.root / "ml-training"
    shutil.copytree(ROOT / "examples" / "ml-training", directory)
    windfall.windfall(
        "image", "add", IMAGE, "--dir", str(directory), "--entrypoint", "/usr/bin/python3 train.py"
    )


# Each start of the aws command line takes seconds on a busy machine.
def test_every_command_of_our_page(fresh, require):
    windfall = fresh()
    mapped_image(windfall)
    answers = {}
    for command in commands(PAGE):
        if "list-jobs" in command or "describe-log-streams" in command:
            windfall.wait_for([answers["training-run-001"], answers["multi-gpu-run"]])
        done = windfall.shell(command)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        answer = json.loads(done.stdout)
        answers[answer.get("jobName", command)] = answer.get("jobId", answer)
    listed = next(answer for command, answer in answers.items() if "list-jobs" in command)
    assert {job["jobName"] for job in listed["jobSummaryList"]} == {"training-run-001", "multi-gpu-run"}
    streams = next(answer for command, answer in answers.items() if "describe-log-streams" in command)
    [stream] = streams["logStreams"]
    [job] = windfall.wait_for([answers["training-run-001"]])
    assert stream["logStreamName"] == job["container"]["logStreamName"]
    assert stream["logStreamName"].startswith("training/default/")
    events = windfall.aws(
        f"logs get-log-events --log-group-name /aws/batch/gpu-jobs --log-stream-name {stream['logStreamName']}"
    )["events"]
    lines = [event["message"] for event in events]
    assert lines[0] == "training on 1 GPUs: GPU-simulated-0"
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed, so /dev/shm is the host's")
    assert lines[1] == "shared memory: 8192 MiB"
    assert lines[-1].startswith("epoch 50/50: loss")


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not beside this repository")
def test_every_batch_command_of_the_guide_as_printed(fresh):
    windfall = fresh()
    mapped_image(windfall)
    printed = commands(GUIDE)
    assert len(printed) == 6
    answers = []
    for command in printed:
        done = windfall.shell(command)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        answers.append(json.loads(done.stdout))
    job_id = next(answer["jobId"] for answer in answers if "jobId" in answer)
    [job] = windfall.wait_for([job_id])
    assert job["status"] == "SUCCEEDED"
    assert job["container"]["exitCode"] == 0
