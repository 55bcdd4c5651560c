"""Service environments, their queues and service jobs as boto3 sees them, over the real reactor and a real store."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.batch.fakes import ARN, NOW, World
from tests.unit.aws_api.core_gate import CoreGate
from windfall.aws_api.batch.arns import Arns
from windfall.aws_api.batch.service_job_views import detail, summary
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import ServiceAttempt, ServiceJob, ServiceState
from windfall.store.opening import open_store

PAYLOAD = json.dumps({"TrainingJobName": "t", "ResourceConfig": {"InstanceType": "ml.m5.large"}})
TOO_LARGE = "MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE"


@pytest.fixture
def client(tmp_path):
    store = open_store(str(tmp_path / "windfall.db"))
    client = World(CoreGate(store, NOW)).client()
    client.create_service_environment(
        serviceEnvironmentName="training",
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=[{"maxCapacity": 2, "capacityUnit": "NUM_INSTANCES"}],
        tags={"a": "b"},
    )
    client.create_job_queue(
        jobQueueName="q",
        priority=1,
        serviceEnvironmentOrder=[{"order": 3, "serviceEnvironment": "training"}],
        jobStateTimeLimitActions=[
            {"reason": TOO_LARGE, "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "TERMINATE"}
        ],
    )
    yield client
    store.close()


def submit(client: Any, name: str = "job", **params: Any) -> dict[str, Any]:
    asked = {"jobQueue": "q", "serviceJobType": "SAGEMAKER_TRAINING", "serviceRequestPayload": PAYLOAD}
    answer: dict[str, Any] = client.submit_service_job(jobName=name, **{**asked, **params})
    return answer


def refusal(call: Any, **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**params)
    assert caught.value.response["Error"]["Code"] == "ClientException"
    return str(caught.value)


def test_a_service_environment_is_described_changed_and_deleted(client):
    (found,) = client.describe_service_environments()["serviceEnvironments"]
    assert found == {
        "serviceEnvironmentName": "training",
        "serviceEnvironmentArn": f"{ARN}:service-environment/training",
        "serviceEnvironmentType": "SAGEMAKER_TRAINING",
        "state": "ENABLED",
        "status": "VALID",
        "capacityLimits": [{"maxCapacity": 2, "capacityUnit": "NUM_INSTANCES"}],
        "tags": {"a": "b"},
    }
    arn = found["serviceEnvironmentArn"]
    limits = [{"maxCapacity": 4, "capacityUnit": "ml.g5.xlarge"}]
    client.update_service_environment(serviceEnvironment=arn, state="DISABLED", capacityLimits=limits)
    (found,) = client.describe_service_environments(serviceEnvironments=[arn, "gone"])["serviceEnvironments"]
    assert (found["state"], found["capacityLimits"]) == ("DISABLED", limits)
    delete = client.delete_service_environment
    assert "found existing JobQueue relationship" in refusal(delete, serviceEnvironment="training")
    client.update_job_queue(jobQueue="q", state="DISABLED")
    client.delete_job_queue(jobQueue="q")
    delete(serviceEnvironment="training")
    assert client.describe_service_environments()["serviceEnvironments"] == []
    assert "does not exist" in refusal(delete, serviceEnvironment="training")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([], "1 to 5"),
        ([{"maxCapacity": 1}], "capacityUnit"),
        ([{"maxCapacity": 1, "capacityUnit": "GPU"}], "it is 'GPU'"),
        ([{"maxCapacity": -1, "capacityUnit": "NUM_INSTANCES"}], "negative"),
        ([{"maxCapacity": 1, "capacityUnit": "NUM_INSTANCES"}] * 2, "twice"),
        (
            [
                {"maxCapacity": 1, "capacityUnit": "NUM_INSTANCES"},
                {"maxCapacity": 1, "capacityUnit": "ml.m5.large"},
            ],
            "not both",
        ),
    ],
)
def test_limits_that_are_refused(client, limits, words):
    said = refusal(
        client.create_service_environment,
        serviceEnvironmentName="other",
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=limits,
    )
    assert words in said


def test_a_queue_of_service_jobs_is_described(client):
    (queue,) = client.describe_job_queues(jobQueues=["q"])["jobQueues"]
    assert queue["jobQueueType"] == "SAGEMAKER_TRAINING"
    assert queue["computeEnvironmentOrder"] == []
    assert queue["serviceEnvironmentOrder"] == [
        {"order": 3, "serviceEnvironment": f"{ARN}:service-environment/training"}
    ]


def test_what_a_queue_of_service_jobs_refuses(client):
    create, one = client.create_job_queue, [{"order": 1, "serviceEnvironment": "training"}]
    named = {"jobQueueName": "other", "priority": 1}
    assert "must name the service environment" in refusal(create, **named, jobQueueType="SAGEMAKER_TRAINING")
    assert "of type SAGEMAKER_TRAINING" in refusal(
        create, **named, jobQueueType="ECS", serviceEnvironmentOrder=one
    )
    assert "one service environment" in refusal(create, **named, serviceEnvironmentOrder=one * 2)
    assert "does not exist" in refusal(
        create, **named, serviceEnvironmentOrder=[{"order": 1, "serviceEnvironment": "gone"}]
    )
    action = {"reason": TOO_LARGE, "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "CANCEL"}
    assert "must be TERMINATE" in refusal(
        client.update_job_queue, jobQueue="q", jobStateTimeLimitActions=[action]
    )
    assert "keeps its kind" in refusal(
        client.update_job_queue,
        jobQueue="q",
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "env"}],
    )


def test_a_service_job_is_described_listed_and_terminated(client):
    job = submit(
        client,
        schedulingPriority=4,
        timeoutConfig={"attemptDurationSeconds": 60},
        retryStrategy={"attempts": 2, "evaluateOnExit": [{"action": "retry", "onStatusReason": "a: (b)*"}]},
        tags={"k": "v"},
    )
    assert job["jobArn"] == f"{ARN}:service-job/{job['jobId']}"
    found = client.describe_service_job(jobId=job["jobArn"])
    assert (found["status"], found["startedAt"], found["isTerminated"]) == ("RUNNABLE", 0, False)
    assert (found["schedulingPriority"], found["timeoutConfig"]) == (4, {"attemptDurationSeconds": 60})
    assert found["retryStrategy"]["evaluateOnExit"] == [{"action": "RETRY", "onStatusReason": "a: (b)*"}]
    assert found["serviceRequestPayload"] == PAYLOAD
    client.update_service_job(jobId=job["jobId"], schedulingPriority=9)
    assert client.describe_service_job(jobId=job["jobId"])["schedulingPriority"] == 9
    (listed,) = client.list_service_jobs(jobQueue="q", jobStatus="RUNNABLE")["jobSummaryList"]
    assert (listed["jobId"], listed["serviceJobType"]) == (job["jobId"], "SAGEMAKER_TRAINING")
    assert client.list_service_jobs(jobQueue="q")["jobSummaryList"] == []
    # To the operations on jobs it is an unknown job: no error, and nothing done.
    client.terminate_job(jobId=job["jobId"], reason="other call")
    client.cancel_job(jobId=job["jobId"], reason="other call")
    untouched = client.describe_service_job(jobId=job["jobId"])
    assert (untouched["status"], untouched["isTerminated"]) == ("RUNNABLE", False)
    answer = client.terminate_service_jobs(jobs=[job["jobId"], "unknown", "?"], reason="enough")
    assert answer["successful"] == [job["jobId"], "unknown"]
    assert [error["job"] for error in answer["errors"]] == ["?"]
    ended = client.describe_service_job(jobId=job["jobId"])
    assert (ended["status"], ended["statusReason"], ended["isTerminated"]) == ("FAILED", "enough", True)
    client.terminate_service_job(jobId=job["jobId"], reason="again")
    assert "has finished" in refusal(client.update_service_job, jobId=job["jobId"], schedulingPriority=1)
    assert "does not exist" in refusal(client.describe_service_job, jobId="gone")


def test_the_same_request_with_the_same_token_is_refused(client):
    first = submit(client, clientToken="t")
    assert first["jobId"] in refusal(lambda: submit(client, clientToken="t"))
    client.terminate_service_job(jobId=first["jobId"], reason="over")
    assert first["jobId"] in refusal(lambda: submit(client, clientToken="t"))
    assert submit(client, "another", clientToken="t")["jobId"] != first["jobId"]
    assert submit(client, clientToken="u")["jobId"] != first["jobId"]


def test_pages_and_filters(client):
    ids = [submit(client, f"job-{n}")["jobId"] for n in range(3)]
    page = client.list_service_jobs(jobQueue="q", jobStatus="RUNNABLE", maxResults=2)
    rest = client.list_service_jobs(jobQueue="q", jobStatus="RUNNABLE", nextToken=page["nextToken"])
    listed = page["jobSummaryList"] + rest["jobSummaryList"]
    assert [job["jobId"] for job in listed] == ids[::-1]

    def filtered(name: str, value: str, **more: Any) -> int:
        filters = [{"name": name, "values": [value]}]
        return len(client.list_service_jobs(jobQueue="q", filters=filters, **more)["jobSummaryList"])

    assert filtered("JOB_NAME", "JOB-*") == 3
    assert filtered("JOB_NAME", "job-1") == 1
    assert filtered("BEFORE_CREATED_AT", str(NOW)) == 0
    assert filtered("AFTER_CREATED_AT", str(NOW)) == 3
    assert filtered("SHARE_IDENTIFIER", "nobody") == filtered("QUOTA_SHARE_NAME", "nobody") == 0
    assert "is not valid" in refusal(lambda: filtered("JOB_DEFINITION", "x"))
    assert "nextToken" in refusal(client.list_service_jobs, jobQueue="q", nextToken="x")
    assert "does not exist" in refusal(client.list_service_jobs, jobQueue="gone")
    assert "jobQueue" in refusal(client.list_service_jobs)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"jobName": "?"}, "valid pattern"),
        ({"jobQueue": "gone"}, "does not exist"),
        ({"serviceRequestPayload": "x" * 10_241}, "10 KiB"),
        ({"schedulingPriority": 10_000}, "between 0 and 9999"),
        ({"timeoutConfig": {"attemptDurationSeconds": 5}}, "at least 60"),
        ({"retryStrategy": {"attempts": 11}}, "between 1 and 10"),
        ({"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "RETRY"}]}}, "onStatusReason"),
        (
            {"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "*", "onStatusReason": "x*"}]}},
            "RETRY or EXIT",
        ),
        (
            {
                "retryStrategy": {
                    "attempts": 2,
                    "evaluateOnExit": [{"action": "RETRY", "onStatusReason": "a*b"}],
                }
            },
            "asterisk",
        ),
        ({"shareIdentifier": "a"}, "fair share"),
        ({"quotaShareName": "a"}, "quota share"),
        ({"preemptionConfiguration": {"preemptionRetriesBeforeTermination": -2}}, "below -1"),
    ],
)
def test_submissions_that_are_refused(client, params, words):
    assert words in refusal(lambda: submit(client, **{"name": params.pop("jobName", "job"), **params}))
    assert client.list_service_jobs(jobQueue="q", jobStatus="RUNNABLE")["jobSummaryList"] == []


def test_tags_of_both(client):
    job = submit(client, tags={"a": "b"})
    for arn in (job["jobArn"], f"{ARN}:service-environment/training"):
        client.tag_resource(resourceArn=arn, tags={"c": "d"})
        client.untag_resource(resourceArn=arn, tagKeys=["a"])
        assert client.list_tags_for_resource(resourceArn=arn)["tags"] == {"c": "d"}
    assert "does not exist" in refusal(client.list_tags_for_resource, resourceArn=f"{ARN}:service-job/gone")


def test_attempts_preemptions_and_capacity_are_shown():
    arns = Arns("eu-west-1", "123456789012")
    tries = [
        ServiceAttempt("AWSBatch1", None, {"ml.g5.xlarge": 2.0}, 1, 2, 3, "made room", preempted=True),
        ServiceAttempt("AWSBatch2", None, {"ml.g5.xlarge": 2.0}, 4, 5, 6, "failed"),
        ServiceAttempt("AWSBatch3", None, {"ml.g5.xlarge": 2.0}, 7, 8),
    ]
    job = ServiceJob(
        JobId("i"),
        "n",
        QueueName("q"),
        PAYLOAD,
        ServiceState.RUNNING,
        quota_share="team",
        preemptions_max=3,
        attempts=tries,
    )
    shown = detail(job, arns)
    arn = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/"
    assert [it["serviceResourceId"]["value"] for it in shown["attempts"]] == [f"{arn}AWSBatch2"]
    assert shown["latestAttempt"]["serviceResourceId"]["value"] == f"{arn}AWSBatch3"
    assert shown["preemptionSummary"]["preemptedAttemptCount"] == 1
    (recent,) = shown["preemptionSummary"]["recentPreemptedAttempts"]
    assert recent["statusReason"] == "made room"
    assert shown["preemptionConfiguration"] == {"preemptionRetriesBeforeTermination": 3}
    assert summary(job, arns)["capacityUsage"] == [{"capacityUnit": "ml.g5.xlarge", "quantity": 2.0}]
