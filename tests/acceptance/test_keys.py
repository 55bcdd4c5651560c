"""Keys with roles and tenants, made by `windfall keys` while the daemon runs."""

from __future__ import annotations

import shutil

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import a_definition, a_queue


def client_with(windfall, key, service="batch"):
    return boto3.client(
        service,
        endpoint_url=windfall.url,
        region_name="eu-central-1",
        aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"],
    )


def a_key(windfall, *options):
    printed = windfall.windfall("keys", "create", *options).stdout
    return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)


def test_a_role_allows_what_it_says_and_a_revocation_acts_at_once(fresh):
    windfall = fresh("--gpus", "none")
    admin = a_queue(windfall)
    a_definition(admin, "true", "true")
    key = a_key(windfall, "--role", "read")
    reader = client_with(windfall, key)
    assert [queue["jobQueueName"] for queue in reader.describe_job_queues()["jobQueues"]] == ["q"]
    with pytest.raises(ClientError, match=r"AccessDenied.*role read.*needs submit"):
        reader.submit_job(jobName="a", jobQueue="q", jobDefinition="true")
    submitter = client_with(windfall, a_key(windfall, "--role", "submit"))
    job_id = submitter.submit_job(jobName="a", jobQueue="q", jobDefinition="true")["jobId"]
    with pytest.raises(ClientError, match="AccessDenied"):
        submitter.delete_job_queue(jobQueue="q")
    windfall.wait_for([job_id])
    windfall.windfall("keys", "revoke", key["AWS_ACCESS_KEY_ID"])
    with pytest.raises(ClientError, match="UnrecognizedClient"):
        reader.describe_job_queues()
    listed = windfall.windfall("keys", "list").stdout
    assert key["AWS_ACCESS_KEY_ID"] in listed
    assert key["AWS_SECRET_ACCESS_KEY"] not in listed


def test_a_second_tenant_puts_every_job_into_a_sandbox(fresh, require):
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed")
    windfall = fresh("--gpus", "none")
    batch = a_queue(windfall)
    a_definition(batch, "look", "sh", "-c", "ls /proc | grep -c '^[0-9]'; sleep 0.5")

    def isolation():
        job_id = batch.submit_job(jobName="look", jobQueue="q", jobDefinition="look")["jobId"]
        return windfall.wait_for([job_id])[0]["tags"]["windfall:isolation"]

    assert isolation().startswith("process")
    a_key(windfall, "--role", "submit", "--tenant", "others")
    assert isolation().startswith("bubblewrap")
