"""Quota shares on the wire, over the real reactor and store: five operations, tags, and submitting under one."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.batch.fakes import ARN
from tests.unit.aws_api.batch.test_with_the_core import client

__all__ = ["client"]

SHARE = f"{ARN}:job-queue/shared/quota-share/research"
ORDER = [{"order": 1, "computeEnvironment": "env"}]


@pytest.fixture
def shared(client: Any) -> Any:
    policy = client.create_scheduling_policy(
        name="quotas", quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"}
    )
    client.create_job_queue(
        jobQueueName="shared",
        priority=1,
        schedulingPolicyArn=policy["arn"],
        computeEnvironmentOrder=ORDER,
    )
    return client


def a_share(client: Any, name: str = "research", **changes: Any) -> dict[str, Any]:
    request = {
        "quotaShareName": name,
        "jobQueue": "shared",
        "capacityLimits": [{"maxCapacity": 4, "capacityUnit": "VCPU"}],
        "resourceSharingConfiguration": {"strategy": "LEND_AND_BORROW", "borrowLimit": 50},
        "preemptionConfiguration": {"inSharePreemption": "ENABLED"},
        **changes,
    }
    return client.create_quota_share(**request)


def refusal(call: Any, **params: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**params)
    assert refused.value.response["Error"]["Code"] == "ClientException"
    return refused.value.response["Error"]["Message"]


def body(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def test_a_share_is_created_described_changed_and_deleted(shared):
    assert body(a_share(shared, tags={"a": "b"})) == {
        "quotaShareName": "research",
        "quotaShareArn": SHARE,
    }
    detail = {
        "quotaShareName": "research",
        "quotaShareArn": SHARE,
        "jobQueueArn": f"{ARN}:job-queue/shared",
        "capacityLimits": [{"maxCapacity": 4, "capacityUnit": "VCPU"}],
        "resourceSharingConfiguration": {"strategy": "LEND_AND_BORROW", "borrowLimit": 50},
        "preemptionConfiguration": {"inSharePreemption": "ENABLED"},
        "state": "ENABLED",
        "status": "VALID",
        "tags": {"a": "b"},
    }
    assert body(shared.describe_quota_share(quotaShareArn=SHARE)) == detail
    shared.update_quota_share(
        quotaShareArn=SHARE,
        capacityLimits=[{"maxCapacity": 2, "capacityUnit": "GPU"}],
        resourceSharingConfiguration={"strategy": "RESERVE"},
        state="DISABLED",
    )
    changed = body(shared.describe_quota_share(quotaShareArn=SHARE))
    assert changed == {
        **detail,
        "capacityLimits": [{"maxCapacity": 2, "capacityUnit": "GPU"}],
        "resourceSharingConfiguration": {"strategy": "RESERVE"},
        "state": "DISABLED",
    }
    shared.delete_quota_share(quotaShareArn=SHARE)
    assert "does not exist" in refusal(shared.describe_quota_share, quotaShareArn=SHARE)


def test_shares_are_listed_by_queue_and_page_by_page(shared):
    for name in ("c", "a", "b"):
        a_share(shared, name)
    pages = shared.get_paginator("list_quota_shares").paginate(
        jobQueue=f"{ARN}:job-queue/shared", PaginationConfig={"PageSize": 2}
    )
    assert [one["quotaShareName"] for page in pages for one in page["quotaShares"]] == ["a", "b", "c"]
    assert shared.list_quota_shares(jobQueue="queue")["quotaShares"] == []
    assert "nowhere does not exist" in refusal(shared.list_quota_shares, jobQueue="nowhere")


def test_what_the_core_refuses_is_a_client_exception(shared):
    assert "has no quota share policy" in refusal(a_share, client=shared, jobQueue="queue")
    assert "quotaShareName" in refusal(a_share, client=shared, name="no blanks please")
    assert "1 to 5 capacityLimits" in refusal(a_share, client=shared, capacityLimits=[])
    a_share(shared)
    assert "must be DISABLED" in refusal(shared.delete_quota_share, quotaShareArn=SHARE)
    other = f"{ARN}:job-queue/shared"
    assert "is not the ARN of a quota-share" in refusal(shared.describe_quota_share, quotaShareArn=other)
    assert "no quota share b" in refusal(
        shared.update_quota_share, quotaShareArn=f"{ARN}:job-queue/shared/quota-share/b"
    )


def test_a_share_has_tags(shared):
    a_share(shared, tags={"a": "1"})
    shared.tag_resource(resourceArn=SHARE, tags={"b": "2"})
    shared.untag_resource(resourceArn=SHARE, tagKeys=["a"])
    assert shared.list_tags_for_resource(resourceArn=SHARE)["tags"] == {"b": "2"}
    gone = f"{ARN}:job-queue/shared/quota-share/gone"
    assert "does not exist" in refusal(shared.list_tags_for_resource, resourceArn=gone)


def test_a_job_names_its_share_and_the_snapshot_tells_who_is_first_in_it(shared):
    a_share(shared)
    a_share(shared, "other")
    submit = {"jobQueue": "shared", "jobDefinition": "echo"}
    assert "shareIdentifier" in refusal(shared.submit_job, jobName="a", **submit)
    assert "no quota share nobody" in refusal(
        shared.submit_job, jobName="a", shareIdentifier="nobody", **submit
    )
    shared.submit_job(jobName="low", shareIdentifier="research", **submit)
    high = shared.submit_job(
        jobName="high", shareIdentifier="research", schedulingPriorityOverride=9, **submit
    )["jobId"]
    snapshot = shared.get_job_queue_snapshot(jobQueue="shared")
    fronts = snapshot["frontOfQuotaShares"]["quotaShares"]
    assert {share: [one["jobArn"] for one in jobs] for share, jobs in fronts.items()} == {
        "research": [f"{ARN}:job/{high}"]
    }
    assert snapshot["queueUtilization"]["quotaShareUtilization"]["topCapacityUtilization"] == [
        {"quotaShareName": name, "capacityUsage": [{"capacityUnit": "VCPU", "quantity": 0.0}]}
        for name in ("other", "research")
    ]
