"""Programs of a job with a role use S3 as on AWS: with no key and no setting of their own, and within limits."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request

import pytest

from tests.acceptance.daemon import RunningWindfall, a_queue
from tests.acceptance.s3_jobs import (
    OPTIONS,
    ROLE,
    USER,
    require_s3_server,
    s3_of,
    said_by,
    submit_client,
    submitted,
)
from tests.s3_server import running_s3
from tests.waiting import wait_until
from windfall.daemon.s3_identities import SESSION_ROLE

PROGRAM = """
import json, os, boto3
from botocore.exceptions import ClientError
s3 = boto3.client("s3")
def code(call, **members):
    try:
        call(**members)
    except ClientError as error:
        return error.response["Error"]["Code"]
said = {"read": s3.get_object(Bucket="windfall", Key="data/in.txt")["Body"].read().decode()}
s3.put_object(Bucket="windfall", Key="out/result.txt", Body=b"done")
said["listed"] = [entry["Key"] for entry in s3.list_objects_v2(Bucket="windfall", Prefix="data/")["Contents"]]
said["tenants"] = code(s3.get_object, Bucket="windfall", Key="tenants/vision/secret")
said["bucket"] = code(s3.create_bucket, Bucket="another")
said["temporary"] = s3._request_signer._credentials.token is not None
said["keys"] = [name for name in os.environ if name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
print("SAID " + json.dumps(said))
"""

SAID_WITHIN_LIMITS = {
    "read": "numbers",
    "listed": ["data/in.txt"],
    "tenants": "AccessDenied",
    "bucket": "AccessDenied",
    "temporary": True,
    "keys": [],
}


@pytest.fixture
def with_s3(fresh):
    require_s3_server()
    windfall = fresh(*OPTIONS)
    a_queue(windfall)
    return windfall


def test_a_job_with_a_role_reads_and_writes_its_tenants_buckets_and_no_more(with_s3):
    s3 = s3_of(with_s3)
    s3.put_object(Bucket="windfall", Key="data/in.txt", Body=b"numbers")
    s3.put_object(Bucket="windfall", Key="tenants/vision/secret", Body=b"theirs")
    batch = submit_client(with_s3)
    job_id = submitted(batch, "uses-s3", sys.executable, "-c", PROGRAM)
    (job,) = with_s3.wait_for([job_id])
    assert job["status"] == "SUCCEEDED", with_s3.windfall("logs", job_id).stdout
    assert said_by(with_s3, job_id) == SAID_WITHIN_LIMITS
    assert s3.get_object(Bucket="windfall", Key="out/result.txt")["Body"].read() == b"done"


@pytest.fixture
def with_own_s3():
    """A daemon, and an S3 server that it did not start; its key there may assume one role."""
    require_s3_server()
    running = RunningWindfall("--gpus", "none", "--runtime", "process", *USER)
    with running_s3("SOMEBODYELSESKEY") as server:
        known = server.server.secrets
        running.extra_environment |= {
            **server.environment,
            "AWS_ACCESS_KEY_ID": known.agents_key_id,
            "AWS_SECRET_ACCESS_KEY": known.agents_secret,
            "WINDFALL_JOB_ROLE": SESSION_ROLE,
        }
        try:
            yield running.up(), server
        finally:
            running.close()


def test_an_s3_of_the_users_own_gives_sessions_of_the_role_that_is_set(with_own_s3):
    windfall, server = with_own_s3
    objects = server.open("")
    objects.put("data/in.txt", b"numbers")
    objects.put("tenants/vision/secret", b"theirs")
    a_queue(windfall)
    for prefix in ("data", "out"):
        windfall.windfall("storage", "add", "--write", f"s3://{server.bucket}/{prefix}")
    job_id = submitted(submit_client(windfall), "uses-s3", sys.executable, "-c", PROGRAM)
    (job,) = windfall.wait_for([job_id])
    assert job["status"] == "SUCCEEDED", windfall.windfall("logs", job_id).stdout
    assert said_by(windfall, job_id) == SAID_WITHIN_LIMITS
    assert objects.get("out/result.txt") == b"done"


def test_a_job_without_a_role_gets_none(with_s3):
    show = (
        "import json, os; found = [name for name in os.environ if name.startswith('AWS_') and 'BATCH' not in name];"
        " print('SAID ' + json.dumps(found))"
    )
    job_id = submitted(submit_client(with_s3), "plain", sys.executable, "-c", show, role=None)
    with_s3.wait_for([job_id])
    assert said_by(with_s3, job_id) == ["AWS_EXECUTION_ENV"]


def test_the_address_answers_after_an_agents_death_and_ends_with_the_attempt(with_s3):
    show = (
        "import json, os, time; found = {name: os.environ[name] for name in os.environ if 'CONTAINER' in name};"
        " print('SAID ' + json.dumps(found), flush=True); time.sleep(600)"
    )
    job_id = submitted(submit_client(with_s3), "waits", sys.executable, "-c", show)
    with_s3.wait_for([job_id], "RUNNING")
    wait_until(lambda: "SAID" in with_s3.windfall("logs", job_id).stdout, "the job to say what it has")
    said = said_by(with_s3, job_id)
    url, token = said["AWS_CONTAINER_CREDENTIALS_FULL_URI"], said["AWS_CONTAINER_AUTHORIZATION_TOKEN"]

    def status(authorization):
        request = urllib.request.Request(
            url, headers={"Authorization": authorization} if authorization else {}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError as error:
            return str(error), {}

    code, first = status(token)
    assert code == 200
    assert set(first) == {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}
    for forged in ("", "nonsense", token[:-4], token[:8] + ("A" if token[8] != "A" else "B") + token[9:]):
        assert status(forged)[0] == 403
    with_s3.kill_agent()
    wait_until(lambda: status(token)[0] == 200, "the next agent to answer at the same address")
    with_s3.client("batch").terminate_job(jobId=job_id, reason="enough")
    with_s3.wait_for([job_id])
    wait_until(lambda: status(token)[0] == 403, "the address to be closed to it")


def test_a_training_job_gets_them_unless_it_is_isolated(with_s3):
    sagemaker = with_s3.client("sagemaker")
    script = "env | grep -c ^AWS_CONTAINER_CREDENTIALS; env | grep -c ^AWS_SECRET; true"
    for name, isolated in (("open", False), ("closed", True)):
        sagemaker.create_training_job(
            TrainingJobName=name,
            RoleArn=ROLE,
            AlgorithmSpecification={
                "TrainingImage": "any",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c", script],
            },
            OutputDataConfig={"S3OutputPath": "s3://windfall/models"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 600},
            EnableNetworkIsolation=isolated,
        )
        wait_until(
            lambda name=name: (
                sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
                in ("Completed", "Failed")
            ),
            "the training to end",
        )
        lines = with_s3.windfall("logs", f"training-{name}").stdout.split()
        assert lines[-2:] == (["0", "0"] if isolated else ["1", "0"]), os.linesep.join(lines)
