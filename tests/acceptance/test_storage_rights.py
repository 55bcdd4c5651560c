"""A submit key, used as an attacker would, reaches no file of the host through object storage; an admin key may.

Run against a daemon of the user who runs the tests, root where it can be, and against one of an ordinary user.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import site
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.test_keys import a_key, client_with
from tests.acceptance.test_without_root import as_nobody
from tests.conftest import require_part
from tests.tidy.tree import ROOT
from tests.waiting import wait_until

ROLE = "arn:aws:iam::123456789012:role/Training"


class Besieged:
    """A daemon, a submit key of the default tenant and one of another, and a directory that anybody may write."""

    def __init__(self, running: RunningWindfall) -> None:
        self.running = running
        self.admin = a_queue(running)
        a_definition(self.admin, "shell", "sh", "-c", "true")
        self.key = a_key(running, "--role", "submit")
        self.submitter = client_with(running, self.key)
        self.sagemaker = client_with(running, self.key, "sagemaker")
        self.shared = Path(tempfile.mkdtemp(prefix="windfall-shared-", dir="/var/tmp"))
        self.shared.chmod(0o777)
        self.buckets = running.data / "objects" / "buckets"

    def submit(self, batch: Any, script: str, **more: Any) -> str:
        overrides = {"command": ["sh", "-c", script]}
        asked = {
            "jobName": "x",
            "jobQueue": "q",
            "jobDefinition": "shell",
            "containerOverrides": overrides,
            **more,
        }
        return str(batch.submit_job(**asked)["jobId"])

    def log(self, job: dict[str, Any]) -> str:
        logs = self.running.client("logs")
        stream = job["attempts"][-1]["container"]["logStreamName"]
        found = logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True)
        return "\n".join(event["message"] for event in found["events"])

    def put(self, name: str, content: str) -> None:
        """Put an object into a bucket of the default tenant."""
        owner = self.running.data.stat()
        path = self.buckets / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        for each in (path, path.parent, self.buckets):
            os.chown(each, owner.st_uid, owner.st_gid)

    def trained(self, name: str, **changes: Any) -> dict[str, Any]:
        """A training job of the submit key, at its end."""
        self.sagemaker.create_training_job(**a_training(name, **changes))
        found: dict[str, Any] = {}

        def ended() -> bool:
            found.update(self.sagemaker.describe_training_job(TrainingJobName=name))
            return found["TrainingJobStatus"] in ("Completed", "Failed")

        wait_until(ended, f"{name} to end", interval_s=0.1)
        return found


def a_training(name: str, **changes: Any) -> dict[str, Any]:
    """A request whose program shows all that it was given."""
    show = "for file in /opt/ml/input/data/* ../input/data/*; do cat $file/* $file; done 2>&1; true"
    return {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": "not-here",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sh", "-c", show],
        },
        "OutputDataConfig": {"S3OutputPath": "s3://out/models"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **changes,
    }


def a_channel(uri: str, kind: str = "S3Prefix", **source: Any) -> dict[str, Any]:
    described = {"S3DataType": kind, "S3Uri": uri, **source}
    return {"ChannelName": "c", "DataSource": {"S3DataSource": described}}


def as_an_ordinary_user(running: RunningWindfall) -> None:
    require_part(os.geteuid() == 0, "only root can become another user for this test")
    require_part(shutil.which("setpriv") is not None, "setpriv is not installed")
    packages = Path(site.getsitepackages()[0])
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}
    probe = subprocess.run(as_nobody("--help"), env=environment, capture_output=True, cwd="/", check=False)
    if probe.returncode != 0:
        pytest.skip("another user cannot run Python with this repository's packages here")
    running.root.chmod(0o777)
    running.command, running.extra_environment = as_nobody(), {**environment, "HOME": str(running.root)}


@pytest.fixture(scope="module", params=["own", "ordinary"])
def siege(request: pytest.FixtureRequest) -> Iterator[Besieged]:
    running = RunningWindfall("--vcpus", "8", "--memory-mib", "8192", "--gpus", "none")
    besieged: Besieged | None = None
    try:
        if request.param == "ordinary":
            as_an_ordinary_user(running)
        besieged = Besieged(running.up())
        yield besieged
    finally:
        running.close()
        if besieged is not None:
            shutil.rmtree(besieged.shared, ignore_errors=True)


def test_a_submit_key_names_no_directory_of_the_host(siege: Besieged):
    for directory in (siege.running.data, Path("/etc"), siege.shared):
        uri = directory.as_uri()
        read = "cat $WINDFALL_CHECKPOINT_DIR/keys.json $WINDFALL_CHECKPOINT_DIR/shadow"
        for named in (
            {"tags": {"windfall:checkpoint": uri}},
            {"parameters": {"windfall-checkpoint": uri}},
            {
                "tags": {
                    "windfall:checkpoint": f"{siege.running.data.as_uri()}/objects/checkpoints/../../{directory.name}"
                }
            },
        ):
            with pytest.raises(ClientError, match="ClientException") as refused:
                siege.submit(siege.submitter, read, **named)
            assert "windfall storage add" in str(refused.value) or "goes upwards" in str(refused.value)
        assert not (directory / ".windfall").exists()
    assert siege.admin.list_jobs(jobQueue="q", jobStatus="RUNNABLE")["jobSummaryList"] == []


def test_a_definition_lends_nobody_its_rights(siege: Besieged):
    uri = siege.running.data.as_uri()
    a_definition(siege.admin, "tagged", "true", tags={"windfall:checkpoint": uri})
    a_definition(siege.admin, "with-parameter", "true", parameters={"windfall-checkpoint": uri})
    for name in ("tagged", "with-parameter"):
        with pytest.raises(ClientError, match="may not write to"):
            siege.submit(siege.submitter, "true", jobDefinition=name)
    assert not (siege.running.data / ".windfall").exists()


def test_a_schedule_has_the_rights_of_its_maker(siege: Besieged):
    asked = {
        "JobName": "scheduled",
        "JobQueue": "q",
        "JobDefinition": "shell",
        "Tags": {"windfall:checkpoint": siege.running.data.as_uri()},
    }
    soon = datetime.now(UTC) + timedelta(seconds=3)
    client_with(siege.running, siege.key, "scheduler").create_schedule(
        Name="thief",
        ScheduleExpression=f"at({soon:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
            "RoleArn": ROLE,
            "Input": json.dumps(asked),
        },
    )

    def told() -> bool:
        return "may not write to" in siege.running.windfall("schedules", "thief", "--json").stdout

    wait_until(told, "the tick to be refused", interval_s=0.5)
    client_with(siege.running, siege.key, "scheduler").delete_schedule(Name="thief")
    assert not (siege.running.data / ".windfall").exists()


def test_a_link_in_a_place_that_jobs_may_write_leads_nowhere(siege: Besieged):
    payload = "nobody ALL=(ALL) NOPASSWD: ALL\n"
    name = hashlib.sha256(payload.encode()).hexdigest()
    locked = Path(tempfile.mkdtemp(prefix="windfall-locked-", dir="/var/tmp"))
    owner = siege.running.data.stat()
    os.chown(locked, owner.st_uid, owner.st_gid)
    uri = f"{siege.shared.as_uri()}/evil"
    write = f"printf '%s' '{payload}' > $WINDFALL_CHECKPOINT_DIR/x; sleep 3"
    try:
        chunks = siege.shared / "evil" / ".windfall" / "chunks"
        (siege.shared / "evil").mkdir()
        chunks.mkdir(parents=True)
        (chunks / name[:2]).symlink_to(locked)
        for path in (chunks, chunks.parent, chunks.parent.parent):
            path.chmod(0o777)
        with pytest.raises(ClientError, match="may not write to"):
            siege.submit(siege.submitter, write, tags={"windfall:checkpoint": uri})
        siege.running.windfall("storage", "add", siege.shared.as_uri(), "--write")
        job_id = siege.submit(siege.submitter, write, tags={"windfall:checkpoint": uri})

        def told() -> bool:
            return "links are not followed" in siege.running.windfall("describe", job_id).stdout

        wait_until(told, "the link to be told of", interval_s=0.5)
        assert list(locked.iterdir()) == []
        (chunks / name[:2]).unlink()
        (job,) = siege.running.wait_for([job_id])
        assert job["status"] == "SUCCEEDED", job
        assert (chunks / name[:2] / name).exists()
        siege.running.windfall("storage", "remove", siege.shared.as_uri())
        with pytest.raises(ClientError, match="may not write to"):
            siege.submit(siege.submitter, write, tags={"windfall:checkpoint": uri})
    finally:
        shutil.rmtree(locked)


def test_a_manifest_names_no_file_of_the_host(siege: Besieged):
    data = siege.running.data
    siege.put("b/manifest", json.dumps([{"prefix": f"{data.as_uri()}/"}, "keys.json"]))
    channel = a_channel("s3://b/manifest", "ManifestFile")
    found = siege.trained("by-manifest", InputDataConfig=[channel])
    assert found["TrainingJobStatus"] == "Failed"
    assert "a manifest may name s3:// objects alone" in found["FailureReason"]

    siege.put("b/augmented", json.dumps({"x-ref": "file:///etc/passwd"}))
    channel = {
        **a_channel("s3://b/augmented", "AugmentedManifestFile", AttributeNames=["x-ref"]),
        "InputMode": "Pipe",
    }
    found = siege.trained("by-augmented", InputDataConfig=[channel])
    assert found["TrainingJobStatus"] == "Failed"
    assert "a manifest may name s3:// objects alone" in found["FailureReason"]

    siege.put("b/upwards", json.dumps([{"prefix": "s3://b/../../../"}, "keys.json"]))
    found = siege.trained("upwards", InputDataConfig=[a_channel("s3://b/upwards", "ManifestFile")])
    assert found["TrainingJobStatus"] == "Failed"

    siege.put("b/honest", json.dumps([{"prefix": "s3://b/"}, "fine"]))
    siege.put("b/fine", "well read")
    found = siege.trained("honest", InputDataConfig=[a_channel("s3://b/honest", "ManifestFile")])
    assert found["TrainingJobStatus"] == "Completed", found
    logs = siege.running.client("logs")
    for stream in logs.describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs")["logStreams"]:
        found = logs.get_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs",
            logStreamName=stream["logStreamName"],
            startFromHead=True,
        )
        said = "\n".join(event["message"] for event in found["events"])
        assert "root:" not in said
        assert siege.key["AWS_SECRET_ACCESS_KEY"] not in said
        assert stream["logStreamName"].partition("/")[0] != "honest" or "well read" in said


def test_a_link_where_a_failure_is_told_overwrites_nothing(siege: Besieged):
    """The text has words of the job's own: written where it likes, they could be an administrator's settings."""
    precious = siege.running.data / "precious"
    precious.write_text("as it was")
    owner = siege.running.data.stat()
    os.chown(precious, owner.st_uid, owner.st_gid)
    siege.put("b/words", json.dumps({"x-ref": "file:///\nmine = true\n"}))
    channel = {
        **a_channel("s3://b/words", "AugmentedManifestFile", AttributeNames=["x-ref"]),
        "InputMode": "Pipe",
    }
    swap = (
        f"ln -s {precious} $(dirname $WINDFALL_PROGRESS_FILE)/feeder-failed;"
        " cat /opt/ml/input/data/c_0 ../input/data/c_0"
    )
    algorithm = a_training("x")["AlgorithmSpecification"] | {"ContainerEntrypoint": ["sh", "-c", swap]}
    found = siege.trained("overwriting", InputDataConfig=[channel], AlgorithmSpecification=algorithm)
    assert "a manifest may name s3:// objects alone" in found["FailureReason"]
    assert precious.read_text() == "as it was"


@pytest.mark.parametrize(
    "changes",
    [
        {"InputDataConfig": [a_channel("file:///etc")]},
        {"OutputDataConfig": {"S3OutputPath": "file:///etc/cron.d"}},
        {"CheckpointConfig": {"S3Uri": "file:///etc"}},
        {"OutputDataConfig": {"S3OutputPath": "s3://b/../../../agent"}},
    ],
)
def test_a_training_job_names_no_file_of_the_host(siege: Besieged, changes: dict[str, Any]):
    with pytest.raises(ClientError, match="ValidationException"):
        siege.sagemaker.create_training_job(**a_training("named", **changes))
    with pytest.raises(ClientError, match="not found"):
        siege.sagemaker.describe_training_job(TrainingJobName="named")


def test_another_tenants_checkpoints_are_out_of_reach(siege: Besieged):
    thief = client_with(siege.running, a_key(siege.running, "--role", "submit", "--tenant", "vision"))
    victim = siege.submit(
        siege.submitter,
        "echo mine > $WINDFALL_CHECKPOINT_DIR/w; sleep 3",
        tags={"windfall:checkpoint": "true"},
    )
    siege.running.wait_for([victim])
    root = siege.running.data / "objects" / "checkpoints"
    assert (root / victim / ".windfall").is_dir()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for place in (root / victim, root, root.parent, root.parent / "buckets", siege.running.data):
        with pytest.raises(ClientError, match="may not write to"):
            siege.submit(thief, "echo stolen", tags={"windfall:checkpoint": place.as_uri()})
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_an_admin_key_needs_no_registration(siege: Besieged):
    place = siege.shared / "of-the-admin"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    (place / "before").write_text("there already")
    tags = {"windfall:checkpoint": place.as_uri()}
    script = "cat $WINDFALL_CHECKPOINT_DIR/before; echo new > $WINDFALL_CHECKPOINT_DIR/after; sleep 3"
    (job,) = siege.running.wait_for([siege.submit(siege.admin, script, tags=tags)])
    assert job["status"] == "SUCCEEDED", job
    assert "there already" in siege.log(job)
    assert list((place / ".windfall" / "manifests").iterdir())


def test_a_place_that_is_removed_is_refused_to_the_next_attempt(siege: Besieged):
    place = siege.shared / "lent"
    place.mkdir()
    place.chmod(0o777)
    siege.running.windfall("storage", "add", place.as_uri(), "--write", "--tenant", "default")
    assert place.as_uri() in siege.running.windfall("storage", "list").stdout
    go = siege.shared / "go"
    job_id = siege.submit(
        siege.submitter,
        f"while [ ! -e {go} ]; do sleep 0.1; done; exit 1",
        tags={"windfall:checkpoint": place.as_uri()},
        retryStrategy={"attempts": 2},
    )
    siege.running.wait_for([job_id], "RUNNING")
    siege.running.windfall("storage", "remove", place.as_uri(), "--tenant", "default")
    go.touch()
    (job,) = siege.running.wait_for([job_id])
    assert [attempt["container"].get("exitCode") for attempt in job["attempts"]] == [1, None]
    assert "may not write to" in job["attempts"][1]["container"]["reason"]


def test_places_that_would_hand_over_the_host_are_not_registered(siege: Besieged):
    data = siege.running.data
    linked = siege.shared / "link"
    linked.symlink_to(data)
    before = siege.running.windfall("storage", "list", "--json").stdout
    for place in (data, data / "agent", data.parent, Path("/etc"), Path("/"), linked, data / "objects"):
        ran = siege.running.windfall("storage", "add", place.as_uri(), "--write", check=False)
        assert ran.returncode != 0, ran.stdout
        assert "register" in ran.stderr
    assert siege.running.windfall("storage", "list", "--json").stdout == before


def test_only_an_admin_key_registers(siege: Besieged):
    before = siege.running.windfall("storage", "list", "--json").stdout
    credentials = Credentials(siege.key["AWS_ACCESS_KEY_ID"], siege.key["AWS_SECRET_ACCESS_KEY"])
    for operation in ("AddStorage", "RemoveStorage"):
        body = json.dumps({"uri": siege.shared.as_uri()}).encode()
        request = AWSRequest("POST", f"{siege.running.url}/windfall/v1/{operation}", data=body)
        SigV4Auth(credentials, "windfall", "us-east-1").add_auth(request)
        sent = urllib.request.Request(request.url, body, dict(request.headers), method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(sent)
        assert refused.value.code == 403
        refused.value.close()
    assert siege.running.windfall("storage", "list", "--json").stdout == before
