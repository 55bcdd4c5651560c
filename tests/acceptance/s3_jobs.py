"""What the tests of jobs that use S3 share: a daemon's options, clients, and jobs with a role."""

from __future__ import annotations

import json
import os
import pwd
from typing import Any

import boto3

from tests.acceptance.daemon import RunningWindfall
from tests.conftest import require_part
from windfall.daemon.seaweedfs import S3ServerError, find_program

ROLE = "arn:aws:iam::123456789012:role/training"
#: The programs of jobs need this environment's packages, which another user may not be able to read.
USER = ("--job-user", pwd.getpwuid(os.getuid()).pw_name)
S3 = ("--s3", "--s3-port", "0")
OPTIONS = ("--gpus", "none", "--runtime", "process", *USER, *S3)


def require_s3_server() -> None:
    """Skip where SeaweedFS is missing; in CI that is a failure."""
    try:
        find_program()
    except S3ServerError as error:
        require_part(False, str(error))


def s3_of(windfall: RunningWindfall) -> Any:
    """An S3 client with the admin key of the API."""
    variables = windfall.environment
    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
        region_name="us-east-1",
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
    )


def submit_client(windfall: RunningWindfall, *options: str) -> Any:
    """A Batch client with a new submit key."""
    printed = windfall.windfall("keys", "create", "--role", "submit", *options).stdout
    key = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    return boto3.client(
        "batch",
        endpoint_url=windfall.url,
        region_name="us-east-1",
        aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"],
    )


def submitted(batch: Any, name: str, *command: str, role: str | None = ROLE, **more: Any) -> str:
    """Register a definition with a role and submit a job of it; the answer is its id."""
    properties = {
        "image": "any",
        "command": list(command),
        # The clients need room: torch alone takes 220 MiB.
        "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "1024"}],
        **({"jobRoleArn": role} if role else {}),
    }
    batch.register_job_definition(jobDefinitionName=name, type="container", containerProperties=properties)
    return str(batch.submit_job(jobName=name, jobQueue="q", jobDefinition=name, **more)["jobId"])


def said_by(windfall: RunningWindfall, job_id: str) -> Any:
    """The JSON that a job has printed after the word SAID."""
    text = windfall.windfall("logs", job_id).stdout
    return json.loads(text.partition("SAID ")[2].splitlines()[0])
