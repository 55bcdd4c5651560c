"""A daemon on an EC2 spot instance: EC2 announces that the host goes, and every job there saves and waits."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from tests.acceptance.daemon import a_definition, a_queue
from tests.metadata_server import ACTION, MetadataServer
from tests.waiting import wait_until

TRAIN = """
trap 'echo saved > $WINDFALL_CHECKPOINT_DIR/state; exit 143' TERM
if [ -e $WINDFALL_CHECKPOINT_DIR/state ]; then echo resumed; exit 0; fi
echo ready
while :; do sleep 0.1; done
"""


def test_a_job_saves_when_ec2_takes_its_host_and_goes_on_when_there_is_one(fresh, monkeypatch):
    with MetadataServer() as metadata:
        monkeypatch.setenv("WINDFALL_EC2_METADATA", metadata.address)
        running = fresh("--vcpus", "2")
        batch = a_queue(running, "queue")
        a_definition(batch, "train", "sh", "-c", TRAIN)
        job = batch.submit_job(
            jobName="train", jobQueue="queue", jobDefinition="train", tags={"windfall:checkpoint": "true"}
        )["jobId"]
        running.wait_for([job], "RUNNING")
        wait_until(lambda: "ready" in running.windfall("logs", job, check=False).stdout, "the job listens")
        at = datetime.fromtimestamp(int(time.time()) + 120, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata.says[ACTION] = f'{{"action": "terminate", "time": "{at}"}}'
        running.wait_for([job], "RUNNABLE")
        (waiting,) = batch.describe_jobs(jobs=[job])["jobs"]
        assert waiting["attempts"][0]["statusReason"].startswith("Host EC2 (instance i-")
        assert "EC2 will terminate it" in running.windfall("why", job).stdout
        del metadata.says[ACTION]
        running.wait_for([job], "SUCCEEDED")
        assert running.windfall("logs", job).stdout.split() == ["resumed"]
