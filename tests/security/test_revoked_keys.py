"""A key that was revoked: nothing that it could do before can be done with it, or on its behalf, any more."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from tests.security.attacked import QUEUE, Attacked, refusal
from tests.waiting import wait_until


def test_the_next_request_is_refused_on_the_same_connection(attacked: Attacked):
    key = attacked.key()
    batch = attacked.client(key)
    assert batch.describe_job_queues()["jobQueues"]
    attacked.revoke(key)
    assert refusal(batch.describe_job_queues)[0] == "UnrecognizedClientException"


@pytest.mark.parametrize("service", ["logs", "sagemaker", "scheduler", "sts", "cloudwatch"])
def test_no_service_answers_it(attacked: Attacked, service: str):
    key = attacked.key("admin")
    attacked.revoke(key)
    ask = {
        "logs": lambda client: client.describe_log_groups(),
        "sagemaker": lambda client: client.list_training_jobs(),
        "scheduler": lambda client: client.list_schedules(),
        "sts": lambda client: client.get_caller_identity(),
        "cloudwatch": lambda client: client.list_metrics(),
    }[service]
    with pytest.raises(ClientError):
        ask(attacked.client(key, service))


@pytest.mark.long
def test_its_schedules_start_nothing_more(attacked: Attacked):
    key = attacked.key()
    batch, scheduler = attacked.client(key), attacked.client(key, "scheduler")
    job = attacked.submitted(batch, "true")
    definition = attacked.windfall.wait_for([job])[0]["jobDefinition"]
    target = {
        "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
        "RoleArn": "arn:aws:iam::123456789012:role/any",
        "Input": json.dumps({"JobName": "from-revoked", "JobQueue": QUEUE, "JobDefinition": definition}),
    }
    scheduler.create_schedule(
        Name="every-minute",
        ScheduleExpression="rate(1 minutes)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target,
    )
    windfall, wanted = attacked.windfall, [{"name": "JOB_NAME", "values": ["from-revoked"]}]

    def started() -> list[str]:
        found = attacked.admin.list_jobs(jobQueue=QUEUE, filters=wanted)["jobSummaryList"]
        return [job["jobId"] for job in found]

    # A rate begins with its first tick.
    before = wait_until(started, "the first tick has started a job")
    attacked.revoke(key)

    def failed() -> str | None:
        history = windfall.windfall("schedules", "every-minute", "--json").stdout
        return history if "is revoked" in history else None

    wait_until(failed, "the next tick failed with its reason", deadline_s=150, interval_s=1)
    assert started() == before
    attacked.client(attacked.key("admin"), "scheduler").delete_schedule(Name="every-minute")
