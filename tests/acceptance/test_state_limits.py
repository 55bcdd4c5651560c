"""jobStateTimeLimitActions through boto3: the time at which a blocked head is cancelled survives a kill -9."""

from __future__ import annotations

import re

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until

REASON = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT"


def due(windfall: RunningWindfall, job_id: str) -> str | None:
    """When the job will be cancelled, as `windfall why` says."""
    said = " ".join(windfall.windfall("why", job_id).stdout.split())
    found = re.search(r"it is cancelled at ([-0-9]+ [:0-9]+ UTC)", said)
    return found and found[1]


def test_a_blocked_head_keeps_its_time_over_a_kill(fresh):
    windfall = fresh()
    batch = a_queue(windfall)
    action = {"reason": REASON, "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "CANCEL"}
    batch.update_job_queue(jobQueue="q", jobStateTimeLimitActions=[action])
    a_definition(batch, "too-large", "true", gpus=9)
    job_id = batch.submit_job(jobName="large", jobQueue="q", jobDefinition="too-large")["jobId"]
    wait_until(
        lambda: due(windfall, job_id) is not None, "a time at which the head is cancelled", interval_s=1
    )
    before = due(windfall, job_id)

    windfall.kill_daemon()
    windfall.up()
    batch = a_queue(windfall, "other")
    batch.update_job_queue(jobQueue="other", jobStateTimeLimitActions=[action])
    other = batch.submit_job(jobName="large", jobQueue="other", jobDefinition="too-large")["jobId"]
    # Once this one has a time, the new daemon has looked at the heads of all queues.
    wait_until(
        lambda: due(windfall, other) is not None, "a time for the head of the other queue", interval_s=1
    )
    assert due(windfall, job_id) == before
    assert due(windfall, other) > before
    [queue] = batch.describe_job_queues(jobQueues=["q"])["jobQueues"]
    assert queue["jobStateTimeLimitActions"] == [action]
