"""Everything that a host has of object storage is taken from it: it opens what the jobs there may use, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.s3_jobs import ROLE, require_s3_server, s3_of, submit_client
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.waiting import wait_until

#: A checkpoint and a role: both what the agent moves and what the program uses by itself.
_PROGRAM = """
import json, os, time, urllib.request
with open(os.environ["WINDFALL_CHECKPOINT_DIR"] + "/state", "w") as file:
    file.write("all of it")
uri, token = (os.environ["AWS_CONTAINER_" + name] for name in ("CREDENTIALS_FULL_URI", "AUTHORIZATION_TOKEN"))
for _ in range(100):
    try:
        request = urllib.request.Request(uri, headers={"Authorization": token})
        print("SAID " + urllib.request.urlopen(request).read().decode(), flush=True)
        break
    except urllib.error.HTTPError:
        time.sleep(0.1)
while not os.path.exists("/var/tmp/go"):
    time.sleep(0.1)
"""


class Stolen:
    """A daemon with its S3 server, and a host whose files somebody has."""

    def __init__(self, daemon: RunningWindfall, hosts: HostsInABox) -> None:
        self.daemon, self.hosts = daemon, hosts

    def submit(self, batch: Any, name: str) -> str:
        needs = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "256"}]
        container = {"image": "windfall/host", "command": ["python3", "-c", _PROGRAM], "jobRoleArn": ROLE}
        batch.register_job_definition(
            jobDefinitionName=name,
            type="container",
            containerProperties={**container, "resourceRequirements": needs},
        )
        tags = {"windfall:checkpoint": "true"}
        return str(batch.submit_job(jobName=name, jobQueue="q", jobDefinition=name, tags=tags)["jobId"])

    def files(self) -> dict[str, str]:
        """All small files of the agent's directory on the host, by their names."""
        root = self.hosts.home(0).parent / "var-lib" / "windfall-host" / "agents"
        files = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size < 65536]
        return {str(path): path.read_text(errors="replace") for path in files}

    def sessions(self) -> list[dict[str, str]]:
        return [json.loads(text) for name, text in self.files().items() if "/session@" in name]

    def thief(self, session: dict[str, str]) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.daemon.environment["AWS_ENDPOINT_URL_S3"],
            region_name="us-east-1",
            aws_access_key_id=session["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=session["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=session["AWS_SESSION_TOKEN"],
        )


def code(call: Any, **members: Any) -> str:
    try:
        call(**members)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


@pytest.fixture
def stolen(tmp_path: Path) -> Iterator[Stolen]:
    require_hosts()
    require_s3_server()
    with HostsInABox(1, tmp_path) as hosts:
        daemon = RunningWindfall("--gpus", "none", "--s3", "--s3-port", "0", "--s3-listen", hosts.gateway)
        daemon.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        daemon.up()
        try:
            daemon.windfall("hosts", "add", "box0")
            admin = daemon.client("batch")
            compute = {"type": "EC2", "maxvCpus": 8, "instanceTypes": ["optimal"], "subnets": ["s"]}
            admin.create_compute_environment(
                computeEnvironmentName="away",
                type="MANAGED",
                computeResources={**compute, "minvCpus": 0, "instanceRole": "r"},
                tags={"windfall:engine": "hosts"},
            )
            order = [{"order": 1, "computeEnvironment": "away"}]
            admin.create_job_queue(jobQueueName="q", priority=1, computeEnvironmentOrder=order)
            yield Stolen(daemon, hosts)
        finally:
            daemon.close()


def test_a_stolen_host_opens_only_what_the_tenants_of_its_jobs_may_use(stolen: Stolen) -> None:
    daemon = stolen.daemon
    s3 = s3_of(daemon)
    s3.put_object(Bucket="windfall", Key="tenants/blue/checkpoints/secret", Body=b"theirs")
    s3.put_object(Bucket="windfall", Key="data/secret", Body=b"the default tenant's")
    job_id = stolen.submit(submit_client(daemon, "--tenant", "red"), "red-job")
    said = wait_until(
        lambda: daemon.windfall("logs", job_id, check=False).stdout.partition("SAID ")[2],
        "credentials",
        deadline_s=120,
    )
    [session] = stolen.sessions()
    assert json.loads(said)["AccessKeyId"] == session["AWS_ACCESS_KEY_ID"], "its program has the same"
    secrets = json.loads((daemon.data / "s3" / "secrets.json").read_text())
    everything = "".join(stolen.files().values())
    assert session["AWS_SECRET_ACCESS_KEY"] in everything, "these are the files that matter"
    for name, value in secrets.items():
        assert str(value) not in everything, f"{name} is on the host"
    thief = stolen.thief(session)
    thief.put_object(Bucket="windfall", Key="tenants/red/checkpoints/own", Body=b"ours")
    for key in ("tenants/blue/checkpoints/secret", "data/secret"):
        assert code(thief.get_object, Bucket="windfall", Key=key) == "AccessDenied"
        assert code(thief.put_object, Bucket="windfall", Key=key, Body=b"x") == "AccessDenied"
    assert code(thief.list_objects_v2, Bucket="windfall", Prefix="tenants/blue/") == "AccessDenied"
    assert code(thief.create_bucket, Bucket="another") == "AccessDenied"
    # The next daemon goes on with what the attempt may use, and the host keeps nothing of it when it has ended.
    daemon.kill_daemon()
    daemon.up()
    stolen.hosts.run(0, "touch", "/var/tmp/go")
    assert [job["status"] for job in daemon.wait_for([job_id])] == ["SUCCEEDED"]
    stored = [
        entry["Key"] for entry in s3.list_objects_v2(Bucket="windfall", Prefix="tenants/red/")["Contents"]
    ]
    assert any(job_id in key for key in stored), "its checkpoint is stored"
    wait_until(lambda: stolen.sessions() == [], "the session is removed with its last attempt")
