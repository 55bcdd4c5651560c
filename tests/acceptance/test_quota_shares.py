"""Quota shares of an ordinary queue with a real daemon: one borrows, the owner takes back, the victim resumes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until

#: Saves when it is told to leave, and says when it was told before.
KEEPS_STATE = """
trap 'echo saved > $WINDFALL_CHECKPOINT_DIR/state; exit 143' TERM
if [ -e $WINDFALL_CHECKPOINT_DIR/state ]; then echo resumed; exit 0; fi
echo ready
while :; do sleep 0.1; done
"""
CROSS_SHARE = "Cross-share preemption triggered to reclaim borrowed capacity"


@pytest.fixture
def shared(fresh) -> tuple[RunningWindfall, Any]:
    """A host with two GPUs: one is the owner's, who lends it; one is the guest's, who borrows."""
    running = fresh("--vcpus", "4", "--memory-mib", "8192", "--gpus", "simulated:2")
    batch = a_queue(running, "plain")
    policy = batch.create_scheduling_policy(
        name="quotas", quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"}
    )
    (plain,) = batch.describe_job_queues(jobQueues=["plain"])["jobQueues"]
    batch.create_job_queue(
        jobQueueName="team",
        priority=1,
        schedulingPolicyArn=policy["arn"],
        computeEnvironmentOrder=plain["computeEnvironmentOrder"],
    )
    for name, strategy in (("owner", "LEND"), ("guest", "LEND_AND_BORROW")):
        batch.create_quota_share(
            quotaShareName=name,
            jobQueue="team",
            capacityLimits=[{"maxCapacity": 1, "capacityUnit": "GPU"}],
            resourceSharingConfiguration={"strategy": strategy},
            preemptionConfiguration={"inSharePreemption": "DISABLED"},
        )
    a_definition(batch, "train", "sh", "-c", KEEPS_STATE, gpus=1)
    return running, batch


def test_the_cheaper_of_two_borrowers_leaves_for_the_owner_and_resumes(shared):
    running, batch = shared

    def submitted(name: str, share: str) -> str:
        tags = {"windfall:checkpoint": "true"}
        return batch.submit_job(
            jobName=name, jobQueue="team", jobDefinition="train", shareIdentifier=share, tags=tags
        )["jobId"]

    def is_ready(job_id: str) -> bool:
        return "ready" in running.windfall("logs", job_id, check=False).stdout

    old, new = submitted("old", "guest"), ""
    running.wait_for([old], "RUNNING")
    wait_until(lambda: is_ready(old), "the first borrower listens")
    new = submitted("new", "guest")
    running.wait_for([new], "RUNNING")
    wait_until(lambda: is_ready(new), "the second borrower listens")
    utilization = batch.get_job_queue_snapshot(jobQueue="team")["queueUtilization"]
    top = utilization["quotaShareUtilization"]["topCapacityUtilization"]
    assert {one["quotaShareName"]: one["capacityUsage"][0]["quantity"] for one in top} == {
        "guest": 2.0,
        "owner": 0.0,
    }
    third = submitted("third", "guest")
    running.wait_for([third], "RUNNABLE")
    assert "quota share guest holds 2 GPUs of 1 GPU" in running.windfall("why", third).stdout

    mine = submitted("mine", "owner")
    running.wait_for([mine], "RUNNING")
    (victim,) = batch.describe_jobs(jobs=[new])["jobs"]
    assert victim["status"] == "RUNNABLE", "the one that ran for a shorter time loses less"
    assert [one["statusReason"] for one in victim["attempts"]] == [CROSS_SHARE]
    (other,) = batch.describe_jobs(jobs=[old])["jobs"]
    assert (other["status"], other["attempts"]) == ("RUNNING", [])

    batch.terminate_job(jobId=mine, reason="enough")
    (ended,) = running.wait_for([new])
    assert ended["status"] == "SUCCEEDED"
    assert len(ended["attempts"]) == 2
    assert running.windfall("logs", new).stdout.split() == ["resumed"]
    for job_id in (old, third):
        batch.terminate_job(jobId=job_id, reason="enough")
