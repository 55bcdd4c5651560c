"""Scheduling policies on the wire, over the real reactor and store: five operations, and what shares look like."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.batch.fakes import ARN
from tests.unit.aws_api.batch.test_with_the_core import client

__all__ = ["client"]

FAIR = {
    "shareDecaySeconds": 3600,
    "computeReservation": 25,
    "shareDistribution": [
        {"shareIdentifier": "blue", "weightFactor": 0.5},
        {"shareIdentifier": "team*", "weightFactor": 2.0},
        {"shareIdentifier": "plain"},
    ],
}
POLICY = f"{ARN}:scheduling-policy/fair"


@pytest.fixture
def fair(client: Any) -> Any:
    client.create_scheduling_policy(name="fair", fairsharePolicy=FAIR, tags={"a": "b"})
    client.create_job_queue(
        jobQueueName="shared",
        priority=1,
        schedulingPolicyArn=POLICY,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "env"}],
    )
    return client


def submit(client: Any, name: str, **params: Any) -> str:
    return client.submit_job(jobName=name, jobQueue="shared", jobDefinition="echo", **params)["jobId"]


def refusal(call: Any, **params: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**params)
    assert refused.value.response["Error"]["Code"] == "ClientException"
    return refused.value.response["Error"]["Message"]


def test_a_policy_is_created_described_listed_changed_and_deleted(client):
    created = client.create_scheduling_policy(name="fair", fairsharePolicy=FAIR, tags={"a": "b"})
    assert (created["name"], created["arn"]) == ("fair", POLICY)
    other = f"{ARN}:scheduling-policy/unknown"
    [detail] = client.describe_scheduling_policies(arns=[POLICY, other, POLICY])["schedulingPolicies"]
    assert detail == {"name": "fair", "arn": POLICY, "fairsharePolicy": FAIR, "tags": {"a": "b"}}
    client.create_scheduling_policy(name="second")
    pages = client.get_paginator("list_scheduling_policies").paginate(PaginationConfig={"PageSize": 1})
    listed = [one["arn"] for page in pages for one in page["schedulingPolicies"]]
    assert listed == [POLICY, f"{ARN}:scheduling-policy/second"]
    client.update_scheduling_policy(arn=POLICY, fairsharePolicy={"shareDecaySeconds": 5})
    client.update_scheduling_policy(arn=POLICY)
    [detail] = client.describe_scheduling_policies(arns=[POLICY])["schedulingPolicies"]
    assert detail["fairsharePolicy"] == {"shareDecaySeconds": 5}
    client.delete_scheduling_policy(arn=POLICY)
    assert client.describe_scheduling_policies(arns=[POLICY])["schedulingPolicies"] == []
    assert "does not exist" in refusal(client.update_scheduling_policy, arn=POLICY)
    assert "does not exist" in refusal(client.delete_scheduling_policy, arn=POLICY)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"shareDecaySeconds": -1}, "shareDecaySeconds must be between 0 and 604800"),
        ({"shareDecaySeconds": 604_801}, "shareDecaySeconds must be between 0 and 604800"),
        ({"computeReservation": 100}, "computeReservation must be between 0 and 99"),
        ({"shareDistribution": [{"shareIdentifier": "a-b"}]}, "letters and digits"),
        ({"shareDistribution": [{"shareIdentifier": "*"}]}, "letters and digits"),
        (
            {"shareDistribution": [{"shareIdentifier": "a", "weightFactor": 0.0}]},
            "between 0.0001 and 999.9999",
        ),
        (
            {"shareDistribution": [{"shareIdentifier": "a", "weightFactor": 1000.0}]},
            "between 0.0001 and 999.9999",
        ),
        ({"shareDistribution": [{"shareIdentifier": "a*"}, {"shareIdentifier": "ab"}]}, "overlap"),
    ],
)
def test_what_a_policy_cannot_say_is_refused(client, policy, text):
    assert text in refusal(client.create_scheduling_policy, name="x", fairsharePolicy=policy)
    assert client.list_scheduling_policies()["schedulingPolicies"] == []


def test_a_policy_is_of_one_kind(client):
    quota = {"idleResourceAssignmentStrategy": "FIFO"}
    both = {"name": "x", "fairsharePolicy": {}, "quotaSharePolicy": quota}
    assert "cannot be used together" in refusal(client.create_scheduling_policy, **both)
    client.create_scheduling_policy(name="quota", quotaSharePolicy=quota)
    [detail] = client.describe_scheduling_policies(arns=[f"{ARN}:scheduling-policy/quota"])[
        "schedulingPolicies"
    ]
    assert (detail["quotaSharePolicy"], "fairsharePolicy" in detail) == (quota, False)


def test_wrong_references_are_refused(client):
    assert "not the ARN of a scheduling-policy" in refusal(
        client.delete_scheduling_policy, arn=f"{ARN}:job-queue/queue"
    )
    assert "1 to 100" in refusal(client.describe_scheduling_policies, arns=[])


def test_tags_of_a_policy(fair):
    fair.tag_resource(resourceArn=POLICY, tags={"c": "d"})
    fair.untag_resource(resourceArn=POLICY, tagKeys=["a"])
    assert fair.list_tags_for_resource(resourceArn=POLICY)["tags"] == {"c": "d"}


def test_a_queue_shows_its_policy_and_keeps_it(fair):
    [queue] = fair.describe_job_queues(jobQueues=["shared"])["jobQueues"]
    assert queue["schedulingPolicyArn"] == POLICY
    fair.update_job_queue(jobQueue="shared", priority=5, schedulingPolicyArn="")
    [queue] = fair.describe_job_queues(jobQueues=["shared"])["jobQueues"]
    assert (queue["schedulingPolicyArn"], queue["priority"]) == (POLICY, 5)
    assert "job queue shared uses it" in refusal(fair.delete_scheduling_policy, arn=POLICY)
    assert "can never have" in refusal(fair.update_job_queue, jobQueue="queue", schedulingPolicyArn=POLICY)
    [plain] = fair.describe_job_queues(jobQueues=["queue"])["jobQueues"]
    assert "schedulingPolicyArn" not in plain


def test_a_share_and_a_priority_come_back_and_can_be_asked_for(fair):
    fair.register_job_definition(
        jobDefinitionName="urgent",
        type="container",
        schedulingPriority=7,
        containerProperties={
            "image": "x",
            "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}],
        },
    )
    one = submit(fair, "one", shareIdentifier="blue", schedulingPriorityOverride=9999)
    two = fair.submit_job(jobName="two", jobQueue="shared", jobDefinition="urgent", shareIdentifier="green")[
        "jobId"
    ]
    details = fair.describe_jobs(jobs=[one, two])["jobs"]
    shown = [(job["shareIdentifier"], job["schedulingPriority"]) for job in details]
    assert shown == [("blue", 9999), ("green", 7)]

    def listed(share: str, **more: str) -> list[str]:
        filters = [{"name": "SHARE_IDENTIFIER", "values": [share]}]
        found = fair.list_jobs(jobQueue="shared", filters=filters, **more)["jobSummaryList"]
        return [job["jobName"] for job in found if job["shareIdentifier"] == share]

    assert (listed("blue"), listed("green"), listed("red")) == (["one"], ["two"], [])
    assert listed("blue", jobStatus="RUNNABLE") == ["one"]
    assert listed("blue", jobStatus="FAILED") == []


def test_a_snapshot_has_the_use_of_the_queue_and_of_its_shares(fair):
    submit(fair, "one", shareIdentifier="blue")
    submit(fair, "two", shareIdentifier="green")
    used = fair.get_job_queue_snapshot(jobQueue="shared")["queueUtilization"]
    assert used["totalCapacityUsage"] == [{"capacityUnit": "VCPU", "quantity": 0.0}]
    shares = used["fairshareUtilization"]
    assert shares["activeShareCount"] == 2
    assert [one["shareIdentifier"] for one in shares["topCapacityUtilization"]] == ["blue", "green"]
    plain = fair.get_job_queue_snapshot(jobQueue="queue")["queueUtilization"]
    assert "fairshareUtilization" not in plain


def test_wrong_shares_and_priorities_are_refused_in_aws_words(fair):
    def refused(queue: str, **more: Any) -> str:
        return refusal(fair.submit_job, jobName="x", jobQueue=queue, jobDefinition="echo", **more)

    assert "shareIdentifier must be specified." in refused("shared")
    only = "can only be submitted to job queue with fair share scheduling policy."
    assert only in refused("queue", shareIdentifier="a")
    assert only in refused("queue", schedulingPriorityOverride=0)
    between = "schedulingPriorityOverride must be between 0 and 9999"
    assert between in refused("shared", shareIdentifier="a", schedulingPriorityOverride=10_000)
    assert between in refused("shared", shareIdentifier="a", schedulingPriorityOverride=-1)
