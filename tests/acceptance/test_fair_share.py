"""Fair share through boto3: two shares take turns by their weights, `windfall why` and `windfall shares` say so."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until

HOLD = ("sleep", "600")


def test_two_shares_take_turns_and_the_wait_is_explained(windfall: RunningWindfall, tmp_path):
    batch = a_queue(windfall, "plain", max_vcpus=4)
    policy = batch.create_scheduling_policy(
        name="research",
        fairsharePolicy={
            "shareDecaySeconds": 3600,
            "shareDistribution": [
                {"shareIdentifier": "blue", "weightFactor": 1.0},
                {"shareIdentifier": "green", "weightFactor": 0.5},
            ],
        },
    )
    [environment] = batch.describe_job_queues(jobQueues=["plain"])["jobQueues"][0]["computeEnvironmentOrder"]
    batch.create_job_queue(
        jobQueueName="fair",
        priority=1,
        schedulingPolicyArn=policy["arn"],
        computeEnvironmentOrder=[environment],
    )
    a_definition(batch, "hold", *HOLD)

    def submit(name: str, **more: object) -> str:
        return batch.submit_job(jobName=name, jobQueue="fair", jobDefinition="hold", **more)["jobId"]

    with pytest.raises(ClientError, match="shareIdentifier must be specified"):
        submit("none")
    with pytest.raises(ClientError, match="can only be submitted to job queue with fair share"):
        batch.submit_job(jobName="x", jobQueue="plain", jobDefinition="hold", shareIdentifier="blue")
    first = [submit(f"blue{number}", shareIdentifier="blue") for number in range(6)]
    windfall.wait_for(first[:4], "RUNNING")
    late = submit("late", shareIdentifier="green")
    urgent = submit("urgent", shareIdentifier="green", schedulingPriorityOverride=9)

    # Green has used nothing, so its jobs go before those of blue that came earlier; the more urgent one first.
    front = batch.get_job_queue_snapshot(jobQueue="fair")
    order = [job["jobArn"].rpartition("/")[2] for job in front["frontOfQueue"]["jobs"]]
    assert order == [urgent, late, *first[4:]]
    used = front["queueUtilization"]["fairshareUtilization"]
    assert used["activeShareCount"] == 2
    assert used["topCapacityUtilization"][0]["shareIdentifier"] == "blue"
    assert {"capacityUnit": "VCPU", "quantity": 4.0} in used["topCapacityUtilization"][0]["capacityUsage"]

    said = " ".join(windfall.windfall("why", first[4]).stdout.split())
    assert "its share blue of queue fair holds 4 vCPUs" in said
    assert "before it go green (0)" in said
    shares = json.loads(windfall.windfall("shares", "fair", "--json").stdout)["queues"][0]["shares"]
    assert [(one["share"], one["weight"], one["waiting"]) for one in shares] == [
        ("blue", 1.0, 2),
        ("green", 0.5, 2),
    ]
    assert "blue" in windfall.windfall("shares").stdout

    batch.terminate_job(jobId=first[0], reason="make room")
    windfall.wait_for([urgent], "RUNNING")
    [detail] = batch.describe_jobs(jobs=[urgent])["jobs"]
    assert (detail["shareIdentifier"], detail["schedulingPriority"]) == ("green", 9)
    found = batch.list_jobs(
        jobQueue="fair", jobStatus="RUNNABLE", filters=[{"name": "SHARE_IDENTIFIER", "values": ["green"]}]
    )["jobSummaryList"]
    assert [(job["jobId"], job["shareIdentifier"]) for job in found] == [(late, "green")]
    with pytest.raises(ClientError, match="job queue fair uses it"):
        batch.delete_scheduling_policy(arn=policy["arn"])

    # What a share has used outlives the daemon.
    windfall.kill_daemon()
    windfall.up()
    wait_until(
        lambda: "4 vCPUs" in windfall.windfall("shares", "fair").stdout, "the jobs in the shares' sums"
    )
    batch = windfall.client("batch")
    for job_id in [*first, late, urgent]:
        batch.terminate_job(jobId=job_id, reason="done")
