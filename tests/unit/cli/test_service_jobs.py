"""Service jobs in the commands that know jobs: listed, stopped, and where their training job is."""

from __future__ import annotations

import json

import pytest

ID = "0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11"
TRAINING = "arn:aws:sagemaker:us-east-1:123456789012:training-job/AWSBatchweekly0f"
SERVICE_JOB = {
    "jobId": ID,
    "jobName": "weekly",
    "serviceJobType": "SAGEMAKER_TRAINING",
    "status": "SCHEDULED",
    "latestAttempt": {"serviceResourceId": {"name": "TrainingJobArn", "value": TRAINING}},
}
QUEUES = [
    {"jobQueueName": "plain", "computeEnvironmentOrder": [{"order": 1}]},
    {"jobQueueName": "training", "serviceEnvironmentOrder": [{"order": 1}]},
]


def test_they_are_listed_with_the_jobs_and_each_queue_is_asked_for_its_own_states(daemon, windfall):
    def service_jobs(asked):
        return {"jobSummaryList": [SERVICE_JOB] if asked["jobStatus"] == "SCHEDULED" else []}

    daemon.answers.update(
        describejobqueues={"jobQueues": QUEUES}, listjobs={"jobSummaryList": []}, listservicejobs=service_jobs
    )
    found = json.loads(windfall("jobs", "--json").out)["jobs"]
    assert found == [SERVICE_JOB | {"jobQueue": "training"}]
    asked = {name: daemon.params_of(name) for name in ("listjobs", "listservicejobs")}
    assert {one["jobQueue"] for one in asked["listjobs"]} == {"plain"}
    assert "SCHEDULED" not in {one["jobStatus"] for one in asked["listjobs"]}
    assert "PENDING" not in {one["jobStatus"] for one in asked["listservicejobs"]}


@pytest.mark.parametrize(
    ("command", "status", "code"),
    [("terminate", "SCHEDULED", 0), ("cancel", "RUNNABLE", 0), ("cancel", "SCHEDULED", 1)],
)
def test_they_are_stopped_by_their_own_operation(daemon, windfall, command, status, code):
    daemon.answers.update(
        describejobs={"jobs": []},
        describeservicejob=SERVICE_JOB | {"status": status},
        terminateservicejob={},
    )
    assert windfall(command, ID, "--reason", "enough").code == code
    sent = daemon.params_of("terminateservicejob")
    assert sent == ([{"jobId": ID, "reason": "enough"}] if code == 0 else [])


def test_what_is_for_jobs_alone_names_the_training_job(daemon, windfall):
    daemon.answers.update(describejobs={"jobs": []}, describeservicejob=SERVICE_JOB)
    said = windfall("logs", ID).err
    assert f"{ID} is a service job; see `windfall why {ID}`" in said
    assert "its training job is training-AWSBatchweekly0f" in said
