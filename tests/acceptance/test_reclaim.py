"""Spare capacity of this host goes to spot jobs until an on-demand job needs it: notice, save, hand-over, resume."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until

#: Saves when it is told to leave, and says when it was told before.
SPOT_JOB = """
trap 'echo saved > $WINDFALL_CHECKPOINT_DIR/state; exit 143' TERM
if [ -e $WINDFALL_CHECKPOINT_DIR/state ]; then echo resumed; exit 0; fi
echo ready
while :; do sleep 0.1; done
"""


@pytest.fixture
def host(fresh) -> tuple[RunningWindfall, Any]:
    """A host with one GPU, an on-demand queue and a spot queue of higher priority."""
    running = fresh("--vcpus", "4", "--memory-mib", "8192", "--gpus", "simulated:1")
    batch = a_queue(running, "demand")
    batch.create_compute_environment(
        computeEnvironmentName="spare",
        type="MANAGED",
        computeResources={
            "type": "SPOT",
            "minvCpus": 0,
            "maxvCpus": 4,
            "instanceTypes": ["optimal"],
            "subnets": ["subnet-1"],
            "instanceRole": "ecsInstanceRole",
        },
    )
    order = [{"order": 1, "computeEnvironment": "spare"}]
    batch.create_job_queue(jobQueueName="spare", priority=50, computeEnvironmentOrder=order)
    return running, batch


def logged(running: RunningWindfall, job_id: str) -> str:
    return running.windfall("logs", job_id, check=False).stdout


def test_an_on_demand_job_takes_the_place_of_a_spot_job_which_resumes_afterwards(host):
    running, batch = host
    a_definition(batch, "train", "sh", "-c", SPOT_JOB, gpus=1)
    a_definition(batch, "urgent", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done", gpus=1)
    tags = {"windfall:checkpoint": "true"}
    spot = batch.submit_job(jobName="spot", jobQueue="spare", jobDefinition="train", tags=tags)["jobId"]
    running.wait_for([spot], "RUNNING")
    wait_until(lambda: "ready" in logged(running, spot), "the spot job listens")
    urgent = batch.submit_job(jobName="urgent", jobQueue="demand", jobDefinition="urgent")["jobId"]
    running.wait_for([urgent], "RUNNING")
    (waiting,) = batch.describe_jobs(jobs=[spot])["jobs"]
    assert waiting["status"] == "RUNNABLE"
    assert waiting["attempts"][0]["statusReason"].startswith("Host EC2 (instance i-")
    why = running.windfall("why", spot).stdout
    assert urgent in why or "urgent" in why, f"the victim says for whom it left: {why}"
    batch.terminate_job(jobId=urgent, reason="enough")
    (ended,) = running.wait_for([spot])
    assert ended["status"] == "SUCCEEDED"
    assert logged(running, spot).split() == ["resumed"]
    assert len(ended["attempts"]) == 2


def test_a_spot_job_takes_nothing_from_another_one_whatever_its_priority(host):
    running, batch = host
    a_definition(batch, "train", "sh", "-c", SPOT_JOB, gpus=1)
    first = batch.submit_job(jobName="first", jobQueue="spare", jobDefinition="train")["jobId"]
    running.wait_for([first], "RUNNING")
    second = batch.submit_job(jobName="second", jobQueue="spare", jobDefinition="train")["jobId"]
    running.wait_for([second], "RUNNABLE")
    assert "GPU" in running.windfall("why", second).stdout
    (still,) = batch.describe_jobs(jobs=[first])["jobs"]
    assert still["status"] == "RUNNING"
    assert still["attempts"] == []
