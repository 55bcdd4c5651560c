"""The service over the real reactor and a real SQLite store, spoken to by boto3: the sides fit together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.aws_api.batch.fakes import ARN

CONTAINER = {
    "image": "busybox",
    "command": ["echo", "Ref::word"],
    "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}],
    "mountPoints": [],
}


@pytest.fixture
def client(core_client):
    client = core_client
    client.register_job_definition(
        jobDefinitionName="echo",
        type="container",
        containerProperties=CONTAINER,
        parameters={"word": "hello"},
    )
    return client


def submit(client: Any, name: str, **params: Any) -> str:
    return client.submit_job(jobName=name, jobQueue="queue", jobDefinition="echo", **params)["jobId"]


def statuses(client: Any, *jobs: str) -> list[str]:
    return [job["status"] for job in client.describe_jobs(jobs=list(jobs))["jobs"]]


def test_a_job_is_described_as_it_was_submitted(client):
    job = submit(
        client, "one", tags={"a": "b"}, containerOverrides={"environment": [{"name": "X", "value": "1"}]}
    )
    (detail,) = client.describe_jobs(jobs=[job])["jobs"]
    assert (detail["status"], detail["jobQueue"]) == ("RUNNABLE", f"{ARN}:job-queue/queue")
    assert detail["container"]["command"] == ["echo", "hello"]
    assert detail["container"]["environment"] == [{"name": "X", "value": "1"}]
    assert detail["container"]["mountPoints"] == []
    assert (detail["tags"], detail["jobDefinition"]) == ({"a": "b"}, f"{ARN}:job-definition/echo:1")


def test_an_array_s_children_are_listed_whether_recorded_or_not(client):
    array = submit(client, "many", arrayProperties={"size": 100})
    client.cancel_job(jobId=f"{array}:7", reason="not this one")
    failed = client.list_jobs(arrayJobId=array, jobStatus="FAILED")["jobSummaryList"]
    assert [(job["jobId"], job["statusReason"]) for job in failed] == [(f"{array}:7", "not this one")]
    pages = client.get_paginator("list_jobs").paginate(
        arrayJobId=array, jobStatus="RUNNABLE", PaginationConfig={"PageSize": 30}
    )
    indices = [job["arrayProperties"]["index"] for page in pages for job in page["jobSummaryList"]]
    assert indices == [index for index in range(100) if index != 7]
    (parent,) = client.describe_jobs(jobs=[array])["jobs"]
    assert parent["arrayProperties"]["statusSummary"]["RUNNABLE"] == 99
    assert parent["arrayProperties"]["statusSummary"]["FAILED"] == 1
    assert statuses(client, f"{array}:6", f"{array}:7") == ["RUNNABLE", "FAILED"]


def test_a_failed_dependency_fails_what_waits_for_it_even_long_after(client):
    first = submit(client, "first")
    second = submit(client, "second", dependsOn=[{"jobId": first}])
    assert statuses(client, first, second) == ["RUNNABLE", "PENDING"]
    client.terminate_job(jobId=first, reason="enough")
    late = submit(client, "late", dependsOn=[{"jobId": first}])
    details = client.describe_jobs(jobs=[first, second, late])["jobs"]
    assert [job["status"] for job in details] == ["FAILED"] * 3
    assert [job["statusReason"] for job in details] == [
        "enough",
        "Dependent Job failed",
        "Dependent Job failed",
    ]
    assert details[0]["isTerminated"]


def test_jobs_are_filtered_by_name_definition_and_age(client):
    jobs = [submit(client, name) for name in ("Alpha", "alphabet", "beta")]

    def found(name: str, value: str) -> list[str]:
        listed = client.list_jobs(jobQueue="queue", filters=[{"name": name, "values": [value]}])[
            "jobSummaryList"
        ]
        return [job["jobName"] for job in listed]

    assert found("JOB_NAME", "ALPHA") == ["Alpha"]
    assert found("JOB_NAME", "alpha*") == ["alphabet", "Alpha"]
    assert found("JOB_DEFINITION", "echo") == ["beta", "alphabet", "Alpha"]
    assert found("JOB_DEFINITION", "ech") == []
    assert found("JOB_DEFINITION", "ec*") == ["beta", "alphabet", "Alpha"]
    assert found("JOB_DEFINITION", f"{ARN}:job-definition/echo:1") == ["beta", "alphabet", "Alpha"]
    created = client.describe_jobs(jobs=[jobs[1]])["jobs"][0]["createdAt"]
    assert found("BEFORE_CREATED_AT", str(created)) == ["Alpha"]
    assert found("AFTER_CREATED_AT", str(created)) == ["beta"]


def test_updates_tags_and_deletions(client):
    client.tag_resource(resourceArn=f"{ARN}:job-queue/queue", tags={"a": "b", "c": "d"})
    client.untag_resource(resourceArn=f"{ARN}:job-queue/queue", tagKeys=["c"])
    assert client.list_tags_for_resource(resourceArn=f"{ARN}:job-queue/queue")["tags"] == {"a": "b"}
    refused = client.exceptions.ClientException
    with pytest.raises(refused, match="does not exist"):
        client.update_job_queue(jobQueue="nope", state="DISABLED")
    with pytest.raises(refused, match="does not exist"):
        client.update_compute_environment(computeEnvironment="nope", state="DISABLED")
    client.update_compute_environment(
        computeEnvironment="env", state="DISABLED", computeResources={"maxvCpus": 2}
    )
    with pytest.raises(refused, match="found existing JobQueue relationship"):
        client.delete_compute_environment(computeEnvironment="env")
    client.update_job_queue(jobQueue="queue", state="DISABLED")
    with pytest.raises(refused, match="DISABLED"):
        submit(client, "late")
    client.delete_job_queue(jobQueue="queue")
    client.delete_compute_environment(computeEnvironment="env")
    assert client.describe_job_queues()["jobQueues"] == []
    assert client.describe_compute_environments()["computeEnvironments"] == []


def test_definitions_have_revisions(client):
    again = client.register_job_definition(
        jobDefinitionName="echo", type="container", containerProperties=CONTAINER
    )
    assert again["revision"] == 2
    with pytest.raises(client.exceptions.ClientException, match="No parameter found for reference word"):
        submit(client, "two")
    client.deregister_job_definition(jobDefinition="echo:2")
    found = client.describe_job_definitions(jobDefinitionName="echo")["jobDefinitions"]
    assert [(d["revision"], d["status"]) for d in found] == [(1, "ACTIVE"), (2, "INACTIVE")]
    assert submit(client, "one")


def test_a_forged_position_does_not_reach_the_store(client):
    submit(client, "one")
    for token in ("x", "cXVldWUvLTE=", "queue/1-1"):
        with pytest.raises(client.exceptions.ClientException, match="nextToken is not valid"):
            client.list_jobs(jobQueue="queue", nextToken=token)
