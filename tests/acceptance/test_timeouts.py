"""A timeout on the real clock. AWS's smallest is a minute, so this file takes a little more than one."""

from __future__ import annotations

import pytest

from tests.acceptance.daemon import a_definition, a_queue


@pytest.mark.long
def test_a_timeout_stops_the_attempt_and_is_not_retried(fresh):
    windfall = fresh("--vcpus", "2", "--stop-grace-s", "2")
    batch = a_queue(windfall)
    a_definition(batch, "stubborn", "sh", "-c", "trap 'echo asked to stop' TERM; while :; do sleep 1; done")
    with pytest.raises(batch.exceptions.ClientException, match="60"):
        batch.submit_job(
            jobName="too-short", jobQueue="q", jobDefinition="stubborn", timeout={"attemptDurationSeconds": 1}
        )
    job_id = batch.submit_job(
        jobName="slow",
        jobQueue="q",
        jobDefinition="stubborn",
        timeout={"attemptDurationSeconds": 60},
        retryStrategy={"attempts": 3},
    )["jobId"]
    [job] = windfall.wait_for([job_id], deadline_s=150)
    assert (job["status"], job["statusReason"]) == ("FAILED", "Job attempt duration exceeded timeout")
    assert len(job["attempts"]) == 1
    assert job["container"]["exitCode"] == 137
    assert job["stoppedAt"] - job["startedAt"] >= 60_000
    events = windfall.client("logs").get_log_events(
        logGroupName="/aws/batch/job", logStreamName=job["container"]["logStreamName"], startFromHead=True
    )["events"]
    assert "asked to stop" in [event["message"] for event in events]
