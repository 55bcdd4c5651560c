"""What-if questions to a real daemon with real jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall


def test_a_question_is_answered_for_the_real_jobs_and_changes_nothing(
    fresh: Callable[..., RunningWindfall], tmp_path: Path
):
    running = fresh("--vcpus", "2", "--memory-mib", "4096", "--gpus", "none")
    run = ("run", "--detach", "--memory", "512M", "--timeout", "600")
    first = running.windfall(*run, "--name", "first", "--vcpus", "2", "--", "sleep", "600").stdout.strip()
    second = running.windfall(*run, "--name", "second", "--", "sleep", "600").stdout.strip()
    running.wait_for([first], "RUNNING")
    file = tmp_path / "job.toml"
    file.write_text('name = "third"\ncommand = ["sleep", "60"]\nmemory = "512M"\ntimeout = "300"\n')
    asked = ("what-if", "--add-machines", "1xm5.large", "--submit", str(file))
    answer = json.loads(running.windfall(*asked, "--json").stdout)
    jobs = {row["jobName"]: row for row in answer["jobs"]}
    assert jobs["second"]["now"]["startAt"] >= jobs["first"]["now"]["endAt"]
    assert jobs["second"]["then"]["startAt"] < jobs["first"]["then"]["endAt"]
    assert (jobs["third"]["isNew"], jobs["third"]["now"]) == (True, None)
    assert jobs["third"]["then"]["endAt"] is not None
    table = running.windfall(*asked).stdout
    assert "1 job ends sooner, by " in table
    batch = running.client("batch")
    states = {job["jobId"]: job["status"] for job in batch.describe_jobs(jobs=[first, second])["jobs"]}
    assert states == {first: "RUNNING", second: "RUNNABLE"}
    listed = json.loads(running.windfall("jobs", "--json").stdout)["jobs"]
    assert {job["jobName"] for job in listed} == {"first", "second"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((), "say what to change"),
        (("--add-machines", "2xnothing.large"), "neither an instance type nor a machine"),
        (("--without", "nowhere"), "there is no machine 'nowhere'"),
        (("--move", "nowhere=nothing"), "there is no job queue nowhere"),
        (("--move", "nowhere"), "write it as QUEUE=ENV"),
        (("--priority", "nobody"), "write it as JOB=5"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    windfall: RunningWindfall, asked: tuple[str, ...], told: str
):
    refused = windfall.windfall("what-if", *asked, check=False)
    assert refused.returncode != 0
    assert told in refused.stderr
