"""Log groups as Terraform and guides use them: made, read back, tagged, with a retention, deleted."""

from __future__ import annotations

import os
import time

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import a_definition, a_queue
from windfall.agent.attempt_files import AttemptDirectory
from windfall.daemon.log_reaper import reap_logs
from windfall.store.opening import open_store

GROUP = "/aws/batch/gpu-jobs"


def code_of(call, **members):
    with pytest.raises(ClientError) as refused:
        call(**members)
    return refused.value.response["Error"]["Code"]


def found(logs, name):
    groups = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return next((group for group in groups if group["logGroupName"] == name), None)


def test_a_group_goes_through_the_calls_of_terraform(windfall):
    logs = windfall.client("logs")
    name = "/team/terraform"
    logs.create_log_group(logGroupName=name, tags={"team": "vision"})
    group = found(logs, name)
    assert "retentionInDays" not in group
    arn = group["logGroupArn"]
    assert code_of(logs.create_log_group, logGroupName=name) == "ResourceAlreadyExistsException"
    logs.put_retention_policy(logGroupName=name, retentionInDays=30)
    assert found(logs, name)["retentionInDays"] == 30
    assert (
        code_of(logs.put_retention_policy, logGroupName=name, retentionInDays=31)
        == "InvalidParameterException"
    )
    assert logs.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "vision"}
    logs.tag_resource(resourceArn=arn, tags={"cost": "7"})
    logs.untag_resource(resourceArn=arn, tagKeys=["team"])
    assert logs.list_tags_for_resource(resourceArn=arn)["tags"] == {"cost": "7"}
    assert logs.list_tags_log_group(logGroupName=name)["tags"] == {"cost": "7"}
    logs.delete_retention_policy(logGroupName=name)
    assert "retentionInDays" not in found(logs, name)
    logs.delete_log_group(logGroupName=name)
    assert found(logs, name) is None
    for call, more in (
        (logs.delete_log_group, {}),
        (logs.put_retention_policy, {"retentionInDays": 7}),
        (logs.list_tags_log_group, {}),
        (logs.describe_log_streams, {}),
    ):
        assert code_of(call, logGroupName=name, **more) == "ResourceNotFoundException"


def test_a_deleted_group_hides_what_it_held_and_takes_new_streams(fresh):
    windfall = fresh("--gpus", "none")
    batch, logs = a_queue(windfall), windfall.client("logs")
    options = {"logConfiguration": {"logDriver": "awslogs", "options": {"awslogs-group": GROUP}}}
    a_definition(batch, "says", "echo", "hello", container=options)

    def stream():
        job_id = batch.submit_job(jobName="says", jobQueue="q", jobDefinition="says")["jobId"]
        return windfall.wait_for([job_id])[0]["container"]["logStreamName"]

    first = stream()
    assert found(logs, GROUP) is not None, "a job makes the group that it logs to"
    assert code_of(logs.create_log_group, logGroupName=GROUP) == "ResourceAlreadyExistsException"
    logs.delete_log_group(logGroupName=GROUP)
    assert found(logs, GROUP) is None
    assert (
        code_of(logs.get_log_events, logGroupName=GROUP, logStreamName=first) == "ResourceNotFoundException"
    )
    logs.create_log_group(logGroupName=GROUP)
    second = stream()
    assert [
        each["logStreamName"] for each in logs.describe_log_streams(logGroupName=GROUP)["logStreams"]
    ] == [second]
    events = logs.get_log_events(logGroupName=GROUP, logStreamName=second)["events"]
    assert [event["message"] for event in events] == ["hello"]

    windfall.stop()
    store = open_store(f"sqlite:///{windfall.data / 'store' / 'windfall.db'}")
    files = windfall.data / "logs"
    now = time.time_ns() // 1_000_000
    try:
        assert len(list(files.glob("*.log"))) == 2
        assert reap_logs(store, AttemptDirectory(files), now) == 1
        (kept,) = files.glob("*.log")
    finally:
        store.close()
    windfall.up()
    logs = windfall.client("logs")
    logs.put_retention_policy(logGroupName=GROUP, retentionInDays=1)
    windfall.stop()
    store = open_store(f"sqlite:///{windfall.data / 'store' / 'windfall.db'}")
    try:
        assert reap_logs(store, AttemptDirectory(files), now) == 0, "it is younger than a day"
        os.utime(kept, (0, 0))
        assert reap_logs(store, AttemptDirectory(files), now) == 1
    finally:
        store.close()
    assert not list(files.glob("*.log"))
