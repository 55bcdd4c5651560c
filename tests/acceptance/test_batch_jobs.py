"""Jobs through boto3 against a real daemon: what a user of AWS Batch does, and what they then read."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def batch(windfall: RunningWindfall):
    return a_queue(windfall)


def submit(batch, definition, name="job", **more):
    return batch.submit_job(jobName=name, jobQueue="q", jobDefinition=definition, **more)["jobId"]


def log_of(windfall, job):
    logs = windfall.client("logs")
    stream = job["container"]["logStreamName"]
    events = logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True)[
        "events"
    ]
    return [event["message"] for event in events]


def test_a_job_runs_and_its_log_is_whole(windfall, batch):
    a_definition(batch, "two-lines", "sh", "-c", "echo first; echo second >&2; printf last")
    [job] = windfall.wait_for([submit(batch, "two-lines")])
    assert job["status"] == "SUCCEEDED"
    assert job["container"]["exitCode"] == 0
    assert job["statusReason"] == "Essential container in task exited"
    assert job["createdAt"] <= job["startedAt"] <= job["stoppedAt"]
    assert log_of(windfall, job) == ["first", "second", "last"]


def test_the_environment_that_aws_injects(windfall, batch):
    a_definition(batch, "env", "env")
    [job] = windfall.wait_for([submit(batch, "env")])
    seen = dict(line.split("=", 1) for line in log_of(windfall, job))
    assert seen["AWS_BATCH_JOB_ID"] == job["jobId"]
    assert seen["AWS_BATCH_JOB_ATTEMPT"] == "1"
    assert seen["AWS_BATCH_JQ_NAME"] == seen["AWS_BATCH_CE_NAME"] == "q"
    assert "AWS_EXECUTION_ENV" in seen
    assert "AWS_BATCH_JOB_ARRAY_INDEX" not in seen


def test_parameters_and_overrides(windfall, batch):
    a_definition(
        batch, "greet", "sh", "-c", "echo $GREETING $0 $EXTRA", "Ref::who", parameters={"who": "world"}
    )
    job_id = submit(
        batch,
        "greet",
        parameters={"who": "you"},
        containerOverrides={"environment": [{"name": "GREETING", "value": "hello"}]},
    )
    [job] = windfall.wait_for([job_id])
    assert log_of(windfall, job) == ["hello you"]
    assert job["container"]["command"][-1] == "you"


def test_an_array_runs_every_index_once(windfall, batch):
    a_definition(batch, "index", "sh", "-c", "echo $AWS_BATCH_JOB_ARRAY_INDEX of $AWS_BATCH_JOB_ARRAY_SIZE")
    job_id = submit(batch, "index", arrayProperties={"size": 25})
    [parent] = windfall.wait_for([job_id])
    assert parent["status"] == "SUCCEEDED"
    assert parent["arrayProperties"]["statusSummary"]["SUCCEEDED"] == 25
    children = windfall.wait_for([f"{job_id}:{index}" for index in range(25)])
    assert [log_of(windfall, child) for child in children] == [[f"{index} of 25"] for index in range(25)]
    listed = batch.list_jobs(arrayJobId=job_id, jobStatus="SUCCEEDED")["jobSummaryList"]
    assert len(listed) == 25


def test_a_failed_child_fails_its_array_after_all_have_ended(windfall, batch):
    a_definition(batch, "third-fails", "sh", "-c", "test $AWS_BATCH_JOB_ARRAY_INDEX != 2")
    [parent] = windfall.wait_for([submit(batch, "third-fails", arrayProperties={"size": 4})])
    assert parent["status"] == "FAILED"
    assert parent["statusReason"] == "Array Child Job failed"
    assert parent["arrayProperties"]["statusSummary"]["SUCCEEDED"] == 3


def test_dependencies_run_in_order(windfall, batch):
    a_definition(batch, "now", "date", "+%s%N")
    first = submit(batch, "now", arrayProperties={"size": 3})
    second = submit(batch, "now", arrayProperties={"size": 3}, dependsOn=[{"jobId": first, "type": "N_TO_N"}])
    third = submit(
        batch, "now", arrayProperties={"size": 3}, dependsOn=[{"jobId": second}, {"type": "SEQUENTIAL"}]
    )
    last = submit(batch, "now", dependsOn=[{"jobId": third}])
    windfall.wait_for([first, second, third, last])

    def times(job_id):
        return [int(log_of(windfall, c)[0]) for c in windfall.wait_for([f"{job_id}:{i}" for i in range(3)])]

    one, two, three = times(first), times(second), times(third)
    assert all(a < b for a, b in zip(one, two, strict=True))
    assert max(two) < min(three)
    assert three == sorted(three)


def test_a_failed_dependency_fails_the_dependant(windfall, batch):
    a_definition(batch, "false", "false")
    a_definition(batch, "true", "true")
    first = submit(batch, "false")
    second = submit(batch, "true", dependsOn=[{"jobId": first}])
    third = submit(batch, "true", dependsOn=[{"jobId": second}])
    jobs = windfall.wait_for([first, second, third])
    assert [job["status"] for job in jobs] == ["FAILED"] * 3
    assert [job["statusReason"] for job in jobs[1:]] == ["Dependent Job failed"] * 2
    assert jobs[2]["attempts"] == []


def test_retries_count_every_try_and_stop_by_rule(windfall, batch):
    a_definition(batch, "code", "sh", "-c", "exit $CODE")
    rules = [
        {"action": "EXIT", "onExitCode": "7"},
        {"action": "RETRY", "onExitCode": "*"},
    ]
    strategy = {"attempts": 3, "evaluateOnExit": rules}

    def run(code):
        overrides = {"environment": [{"name": "CODE", "value": str(code)}]}
        return submit(batch, "code", retryStrategy=strategy, containerOverrides=overrides)

    thrice, once = windfall.wait_for([run(3), run(7)])
    assert [attempt["container"]["exitCode"] for attempt in thrice["attempts"]] == [3, 3, 3]
    assert [attempt["container"]["exitCode"] for attempt in once["attempts"]] == [7]
    streams = {attempt["container"]["logStreamName"] for attempt in thrice["attempts"]}
    assert len(streams) == 3


def test_terminate_stops_a_running_job(windfall, batch):
    a_definition(batch, "long", "sleep", "300")
    job_id = submit(batch, "long")
    windfall.wait_for([job_id], "RUNNING")
    batch.terminate_job(jobId=job_id, reason="enough")
    [job] = windfall.wait_for([job_id])
    assert (job["status"], job["statusReason"]) == ("FAILED", "enough")
    assert job["container"]["exitCode"] == 143


def test_cancel_and_terminate_mean_what_they_mean_on_aws(windfall, batch):
    a_definition(batch, "hold-gpus", "sleep", "300", gpus=8)
    running, waiting = submit(batch, "hold-gpus"), submit(batch, "hold-gpus")
    windfall.wait_for([running], "RUNNING")
    batch.cancel_job(jobId=running, reason="no effect on what runs")
    batch.cancel_job(jobId=waiting, reason="not needed")
    [cancelled] = windfall.wait_for([waiting])
    assert (cancelled["status"], cancelled["statusReason"]) == ("FAILED", "not needed")
    [still] = windfall.wait_for([running], "RUNNING")
    assert still["status"] == "RUNNING"
    batch.terminate_job(jobId=running, reason="stop")
    batch.terminate_job(jobId=running, reason="stopping twice is no error")
    [terminated] = windfall.wait_for([running])
    assert (terminated["status"], terminated["statusReason"]) == ("FAILED", "stop")


def test_many_jobs_are_stopped_by_one_call_each_with_its_own_answer(windfall, batch):
    a_definition(batch, "hold-all-gpus", "sleep", "600", gpus=8)
    running, waiting, last = (submit(batch, "hold-all-gpus") for _ in range(3))
    windfall.wait_for([running], "RUNNING")
    unknown = "00000000-0000-4000-8000-000000000000"
    answer = batch.cancel_jobs(jobs=[running, waiting, unknown, "not a job"], reason="not needed")
    assert answer["successful"] == [running, waiting, unknown]
    [error] = answer["errors"]
    assert (error["job"], error["code"]) == ("not a job", "ValidationException")
    [now_running, cancelled] = batch.describe_jobs(jobs=[running, waiting])["jobs"]
    assert now_running["status"] == "RUNNING", "what runs is not cancelled"
    assert (cancelled["status"], cancelled["statusReason"]) == ("FAILED", "not needed")
    assert batch.terminate_jobs(jobs=[running, last], reason="enough")["successful"] == [running, last]
    ended = windfall.wait_for([running, last])
    assert [(job["status"], job["statusReason"], job["isTerminated"]) for job in ended] == [
        ("FAILED", "enough", True)
    ] * 2


def test_gpus_are_allotted_one_by_one_whatever_the_definition_says(windfall, batch, gate):
    a_definition(
        batch,
        "gpu",
        "sh",
        "-c",
        f"echo $NVIDIA_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES; {gate.meet(4)}",
        gpus=2,
        container={"environment": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
    )
    jobs = windfall.wait_for([submit(batch, "gpu") for _ in range(4)])
    seen = [log_of(windfall, job)[0].split() for job in jobs]
    assert all(nvidia == cuda and len(nvidia.split(",")) == 2 for nvidia, cuda in seen)
    assert len({device for nvidia, _ in seen for device in nvidia.split(",")}) == 8


def test_a_job_over_its_memory_limit_is_killed_and_says_so(windfall, batch):
    hungry = "x = bytearray(400 << 20); import time; time.sleep(60)"
    a_definition(batch, "hungry", "/usr/bin/python3", "-c", hungry, memory_mib=100)
    [job] = windfall.wait_for([submit(batch, "hungry")])
    assert job["status"] == "FAILED"
    assert job["container"]["exitCode"] == 137
    assert job["container"]["reason"] == "OutOfMemoryError: Container killed due to memory usage"


@pytest.fixture
def open_place():
    """A directory that jobs of another user can read, and those in a sandbox; those of pytest are not."""
    place = Path(tempfile.mkdtemp(prefix="windfall-open-", dir="/var/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_an_image_mapped_without_a_directory_gives_each_job_its_own(windfall, batch, open_place):
    program = open_place / "only-here"
    program.write_text("#!/bin/sh\ncat job.tar 2>/dev/null; echo $1 > job.tar; sleep 1; cat job.tar\n")
    program.chmod(0o755)
    name = "flow/python:3"
    said = windfall.windfall("image", "add", name, "--env", f"PATH={open_place}:/usr/bin:/bin").stdout
    assert "a directory of its own for each job" in said
    ids = []
    for number in ("1", "2"):
        a_definition(batch, f"task{number}", "only-here", number, container={"image": name})
        ids.append(batch.submit_job(jobName="task", jobQueue="q", jobDefinition=f"task{number}")["jobId"])
    assert [job["status"] for job in windfall.wait_for(ids)] == ["SUCCEEDED"] * 2
    assert [windfall.windfall("logs", job_id).stdout for job_id in ids] == ["1\n", "2\n"]


def test_an_image_that_is_not_mapped_names_the_command_that_maps_it(windfall, batch):
    batch.register_job_definition(
        jobDefinitionName="unmapped",
        type="container",
        containerProperties={
            "image": "example.org/unmapped:1",
            "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}],
        },
    )
    [job] = windfall.wait_for([submit(batch, "unmapped")])
    assert job["status"] == "FAILED"
    assert "windfall image add example.org/unmapped:1" in job["container"]["reason"]


def test_a_job_that_waits_can_say_why(windfall, batch):
    a_definition(batch, "too-many-gpus", "true", gpus=9)
    job_id = submit(batch, "too-many-gpus")
    windfall.wait_for([job_id], "RUNNABLE")
    said = windfall.windfall("why", job_id).stdout
    assert "asks for 9 GPUs" in said
    assert "8" in said
    wait_until(
        lambda: (
            windfall.wait_for([job_id], "RUNNABLE")[0].get("statusReason", "").startswith("MISCONFIGURATION:")
        ),
        "AWS's own reason for a head that blocks its queue",
    )
    batch.cancel_job(jobId=job_id, reason="never fits")


def test_a_job_cannot_read_the_keys_the_store_or_another_jobs_files(windfall, batch, require):
    apart = os.geteuid() == 0 or shutil.which("bwrap") is not None
    require(apart, "without root and bubblewrap, jobs are the daemon's own user")
    data = windfall.data
    peek = f"cat {data}/keys.json; ls {data}/store {data}/attempts {data}/logs {data}/agent; id -u"
    a_definition(batch, "peek", "sh", "-c", peek)
    [job] = windfall.wait_for([submit(batch, "peek")])
    said = "\n".join(log_of(windfall, job))
    assert "secret" not in said
    assert ".db" not in said
    assert "No such file" in said or "ermission denied" in said
