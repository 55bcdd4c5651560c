"""The usual S3 clients inside jobs with a role: no key, no address and no other setting of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.containers import with_engine
from tests.acceptance.daemon import RunningWindfall, a_queue
from tests.acceptance.s3_jobs import (
    OPTIONS,
    ROLE,
    S3,
    USER,
    require_s3_server,
    s3_of,
    said_by,
    submit_client,
    submitted,
)
from tests.conftest import require_part
from tests.docker_engine import IMAGE

AWS = str(Path(sys.executable).parent / "aws")
BIG = 30_000_000
COMMAND_LINE = f"""
set -e
test "$({AWS} s3 cp s3://windfall/data/in.txt -)" = numbers
head -c {BIG} /dev/urandom > big
{AWS} s3 cp --quiet big s3://windfall/cli/big
{AWS} s3 cp --quiet s3://windfall/cli/big back
cmp big back
{AWS} s3 ls s3://windfall/cli/ | tr -s ' ' | cut -d ' ' -f 3,4
"""
RESOURCE = f"""
import io, json, boto3
s3, seen = boto3.resource("s3"), []
s3.meta.client.meta.events.register("before-send.s3", lambda request, **_: seen.append(request.url))
bucket, content = s3.Bucket("windfall"), bytes({BIG})
bucket.upload_fileobj(io.BytesIO(content), "boto/big")
back = io.BytesIO()
bucket.download_fileobj("boto/big", back)
whole = bucket.Object("boto/big")
said = {{"parts": int(whole.e_tag.strip('"').partition("-")[2]), "same": back.getvalue() == content}}
whole.put(Body=b"closed", ServerSideEncryption="aws:kms")
said["kms"] = [whole.get()["Body"].read().decode(), whole.server_side_encryption, whole.ssekms_key_id]
said["multipart kms"] = bucket.upload_fileobj(
    io.BytesIO(content), "boto/closed", ExtraArgs={{"ServerSideEncryption": "aws:kms"}}
)
said["length"] = bucket.Object("boto/closed").content_length
bucket.objects.filter(Prefix="boto/").delete()
said["left"] = [entry.key for entry in bucket.objects.filter(Prefix="boto/")]
said["hosts"] = sorted({{url.split("/")[2].split(":")[0] for url in seen}})
print("SAID " + json.dumps(said))
"""
FILES = """
import json, s3fs
files = s3fs.S3FileSystem()
with files.open("windfall/fs/big", "wb") as file:
    file.write(bytes(12_000_000))
said = [files.cat("windfall/data/in.txt").decode(), files.ls("windfall/data"), files.info("windfall/fs/big")["size"]]
files.rm("windfall/fs/big")
print("SAID " + json.dumps([*said, files.exists("windfall/fs/big")]))
"""
CONNECTOR = """
import json, os, torch
from s3torchconnector import S3Checkpoint, S3MapDataset
# It knows AWS_ENDPOINT_URL, but not the variable of one service.
where = {"region": os.environ["AWS_REGION"], "endpoint": os.environ["AWS_ENDPOINT_URL_S3"]}
said = [entry.read().decode() for entry in S3MapDataset.from_prefix("s3://windfall/data/", **where)]
kept = S3Checkpoint(**where)
with kept.writer("s3://windfall/torch/model.pt") as file:
    torch.save({"weights": torch.ones(1_000_000)}, file)
with kept.reader("s3://windfall/torch/model.pt") as file:
    said.append(torch.load(file)["weights"].sum().item())
print("SAID " + json.dumps(said))
"""
#: As the image of a training has it: it knows two variables, and nothing of where it runs.
TRAINING = """
import os, boto3
from urllib.parse import urlsplit
bucket = boto3.resource("s3").Bucket(urlsplit(os.environ["S3_DATA_PATH"]).netloc)
data, output = (urlsplit(os.environ[name]).path.lstrip("/") for name in ("S3_DATA_PATH", "S3_OUTPUT_PATH"))
rows = [entry.get()["Body"].read().decode() for entry in bucket.objects.filter(Prefix=data)]
epochs, size, rate = (os.environ[name] for name in ("EPOCHS", "BATCH_SIZE", "LEARNING_RATE"))
bucket.put_object(Key=output + "model.txt", Body=f"{sum(map(int, rows))} {epochs} {size} {rate}".encode())
"""


@pytest.fixture(scope="module")
def daemon():
    require_s3_server()
    require_part(shutil.which("bwrap") is not None, "bubblewrap is not installed")
    running = RunningWindfall(*OPTIONS)
    try:
        running.up()
        # With a second tenant every job has a sandbox; test_job_credentials.py has jobs without one.
        running.windfall("keys", "create", "--role", "submit", "--tenant", "vision")
        a_queue(running)
        s3_of(running).put_object(Bucket="windfall", Key="data/in.txt", Body=b"numbers")
        yield running
    finally:
        running.close()


def finished(daemon, name, *command, **more):
    """Run a job of a submit key to its end, which must be a good one; the answer is its id."""
    job_id = submitted(submit_client(daemon), name, *command, **more)
    (job,) = daemon.wait_for([job_id])
    why = [job.get("statusReason"), job["container"].get("reason"), job["container"].get("exitCode")]
    assert job["status"] == "SUCCEEDED", (why, daemon.windfall("logs", job_id, check=False).stdout)
    return job_id


def test_the_aws_command_line_copies_and_lists(daemon):
    job_id = finished(daemon, "cli", "bash", "-c", COMMAND_LINE)
    assert daemon.windfall("logs", job_id).stdout.splitlines() == [f"{BIG} big"]


def test_boto3_uploads_in_parts_and_encrypts_with_a_key_that_it_does_not_name(daemon):
    assert said_by(daemon, finished(daemon, "boto", sys.executable, "-c", RESOURCE)) == {
        "parts": 4,
        "same": True,
        "kms": ["closed", "aws:kms", "alias/aws/s3"],
        "multipart kms": None,
        "length": BIG,
        "left": [],
        # No name such as bucket.127.0.0.1, which nobody resolves.
        "hosts": ["127.0.0.1"],
    }


#: S3_CLIENTS_PYTHON names a Python with these clients, which want versions of their own.
PYTHON = os.environ.get("S3_CLIENTS_PYTHON", sys.executable)


def has(package):
    return (
        subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0
    )


def test_s3fs_finds_everything(daemon):
    require_part(has("s3fs"), "s3fs is not installed")
    said = said_by(daemon, finished(daemon, "s3fs", PYTHON, "-c", FILES))
    assert said == ["numbers", ["windfall/data/in.txt"], 12_000_000, False]


def test_torchs_connector_needs_the_address_alone(daemon):
    if not has("s3torchconnector"):
        pytest.skip("s3torchconnector is not installed")
    assert said_by(daemon, finished(daemon, "torch", PYTHON, "-c", CONNECTOR)) == ["numbers", 1e6]


def test_a_training_finds_its_dataset_and_its_output_by_two_variables(daemon):
    s3 = s3_of(daemon)
    s3.create_bucket(Bucket="my-bucket")
    for number in (1, 2, 3):
        s3.put_object(Bucket="my-bucket", Key=f"training-data/part-{number}", Body=str(number).encode())
    values = {
        "EPOCHS": "50",
        "BATCH_SIZE": "64",
        "LEARNING_RATE": "0.001",
        "S3_DATA_PATH": "s3://my-bucket/training-data/",
        "S3_OUTPUT_PATH": "s3://my-bucket/models/run-001/",
    }
    overrides = {"environment": [{"name": name, "value": value} for name, value in values.items()]}
    finished(daemon, "training-run-001", sys.executable, "-c", TRAINING, containerOverrides=overrides)
    stored = s3.get_object(Bucket="my-bucket", Key="models/run-001/model.txt")
    assert stored["Body"].read() == b"6 50 64 0.001"


@pytest.mark.parametrize("engine", ["docker_engine", "podman_engine"])
def test_a_container_reaches_the_credentials_and_the_server(engine, request):
    require_s3_server()
    running = with_engine(request.getfixturevalue(engine), *USER, *S3)
    try:
        running.up()
        batch = a_queue(running)
        s3_of(running).put_object(Bucket="windfall", Key="data/in.txt", Body=b"numbers")
        # The image has no Python: its program runs in the host's files, with the container's variables and network.
        inside = ["/bin/busybox", "chroot", "/host", sys.executable, "-c", RESOURCE]
        batch.register_job_definition(
            jobDefinitionName="boxed",
            type="container",
            containerProperties={
                "image": IMAGE,
                "command": inside,
                "jobRoleArn": ROLE,
                "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "512"}],
                "volumes": [{"name": "host", "host": {"sourcePath": "/"}}],
                "mountPoints": [{"sourceVolume": "host", "containerPath": "/host", "readOnly": True}],
            },
        )
        job_id = submit_client(running).submit_job(jobName="boxed", jobQueue="q", jobDefinition="boxed")[
            "jobId"
        ]
        (job,) = running.wait_for([job_id])
        assert job["status"] == "SUCCEEDED", running.windfall("logs", job_id, check=False).stdout
        assert job["tags"]["windfall:isolation"].startswith("container")
        said = said_by(running, job_id)
        assert (said["same"], said["kms"][0], said["hosts"]) == (True, "closed", ["127.0.0.1"])
    finally:
        running.close()


def test_a_daemon_that_is_started_with_its_own_key_hands_it_to_nobody(fresh):
    """`eval "$(windfall env)"; windfall down; windfall up` in one shell; and a role that opens nothing says so."""
    windfall = fresh("--gpus", "none", *USER)
    a_queue(windfall)
    key = windfall.environment
    windfall.windfall("down")
    windfall.process.wait(120)
    windfall.extra_environment = key
    said_before = len(windfall.log.read_text())
    windfall.up()
    lines = [line for line in windfall.log.read_text()[said_before:].splitlines() if "not used" in line]
    assert len(lines) == 1, lines
    assert key["AWS_ACCESS_KEY_ID"] in lines[0]
    assert key["AWS_SECRET_ACCESS_KEY"] not in windfall.log.read_text()
    for pid in windfall.agent_pids().values():
        assert key["AWS_SECRET_ACCESS_KEY"].encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    batch = windfall.client("batch")
    job_id = submitted(batch, "shows", "sh", "-c", "env | grep ^AWS_ | cut -d = -f 1")
    (job,) = windfall.wait_for([job_id])
    found = windfall.windfall("logs", job_id).stdout.split()
    assert [name for name in found if "KEY" in name or "TOKEN" in name or "CREDENTIALS" in name] == []
    why = "jobRoleArn (there is no S3: see windfall up --s3)"
    assert job["tags"]["windfall:not-applied"] == why
    assert f"not applied  {why}" in windfall.windfall("describe", job_id).stdout
