"""Daemons of two users that share a PostgreSQL: keys, secrets and running jobs pass from one to the other."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.several_daemons import LEASE_S
from tests.acceptance.test_without_root import NOBODY, as_nobody
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from windfall.daemon.shared_files import SEAL_NAME

#: Leaves a line for each time that it begins; goes on when a file is there.
_GATED = (
    "echo $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT >> /var/tmp/begun; echo before;"
    " while [ ! -e /var/tmp/go ]; do sleep 0.1; done; echo after"
)


@pytest.fixture
def store(postgres_server, request) -> str:
    name = f"apart_{request.node.name.removeprefix('test_')[:40]}"
    postgres_server.execute(f"CREATE SCHEMA {name}")
    return postgres_server.url(name)


def a_daemon(store: str, *options: str) -> RunningWindfall:
    return RunningWindfall("--store", store, "--gpus", "none", "--lease-s", LEASE_S, *options)


def joined(first: RunningWindfall, second: RunningWindfall) -> RunningWindfall:
    """The second daemon, with the one file that it needs of the first."""
    second.data.mkdir()
    shutil.copy(first.data / SEAL_NAME, second.data / SEAL_NAME)
    for path in (second.data, second.data / SEAL_NAME):
        shutil.chown(path, NOBODY, NOBODY)
    return second.up()


def of_another_user(daemon: RunningWindfall, hosts: HostsInABox) -> None:
    """Let a daemon run as another user with ssh access to the hosts, where another user can run Python from here."""
    packages = Path(site.getsitepackages()[0])
    importing = {"PYTHONPATH": f"{ROOT / 'src'}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}
    daemon.extra_environment = {"WINDFALL_SSH_CONFIG": str(hosts.ssh_config)}
    environment = {**os.environ, **importing}
    probe = subprocess.run(as_nobody("--help"), env=environment, capture_output=True, cwd="/", check=False)
    if probe.returncode != 0:
        return
    folder = daemon.root / "ssh"
    folder.mkdir()
    config = hosts.ssh_config.read_text()
    for path in (hosts.key, hosts.known_hosts):
        config = config.replace(str(path), str(folder / path.name))
        shutil.copy(path, folder)
    (folder / "config").write_text(config)
    for path in (daemon.root, folder, *folder.iterdir()):
        shutil.chown(path, NOBODY, NOBODY)
    daemon.command = as_nobody()
    daemon.extra_environment = {
        **importing,
        "HOME": str(daemon.root),
        "WINDFALL_SSH_CONFIG": str(folder / "config"),
    }


def refused(daemon: RunningWindfall, *more: str) -> str:
    """What a daemon says that does not start."""
    done = daemon.windfall("up", "--port", "0", *daemon.options, *more, check=False)
    assert done.returncode != 0
    return done.stderr


class Apart:
    """Two daemons without a common directory, and a host."""

    def __init__(self, store: str, hosts: HostsInABox) -> None:
        self.hosts = hosts
        self.first, self.second = a_daemon(store, "--hosts-only"), a_daemon(store, "--hosts-only")
        self.first.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        of_another_user(self.second, hosts)
        self.first.up()
        joined(self.first, self.second)
        assert self.first.data != self.second.data

    def close(self) -> None:
        for daemon in (self.first, self.second):
            daemon.close()


@pytest.fixture
def apart(store: str, tmp_path: Path) -> Iterator[Apart]:
    require_hosts()
    with HostsInABox(1, tmp_path) as hosts:
        apart = Apart(store, hosts)
        try:
            yield apart
        finally:
            apart.close()


def batch_with(daemon: RunningWindfall, key_of: dict[str, str]) -> Any:
    return boto3.client(
        "batch",
        endpoint_url=daemon.url,
        region_name="us-east-1",
        aws_access_key_id=key_of["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=key_of["AWS_SECRET_ACCESS_KEY"],
    )


def accepts(daemon: RunningWindfall, key_of: dict[str, str]) -> bool:
    try:
        batch_with(daemon, key_of).describe_job_queues()
    except botocore.exceptions.ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 403:
            raise
        return False
    return True


def a_key(daemon: RunningWindfall) -> dict[str, str]:
    """A submit key that is made with this daemon's own files."""
    made = json.loads(daemon.windfall("keys", "create", "--role", "submit", "--json").stdout)
    return {
        "AWS_ACCESS_KEY_ID": made["accessKeyId"],
        "AWS_SECRET_ACCESS_KEY": made["secretAccessKey"],
    }


def submit(daemon: RunningWindfall, command: str) -> str:
    words = ("run", "--detach", "--clean", "--memory", "64M", "--", "sh", "-c", command)
    return str(daemon.windfall(*words).stdout.split()[-1])


def says_secret(daemon: RunningWindfall) -> str:
    """What a job on a host is given as its secret."""
    batch = a_queue(daemon)
    container = {"image": "windfall/host", "secrets": [{"name": "TOKEN", "valueFrom": "token"}]}
    a_definition(batch, "secretive", "sh", "-c", "echo $TOKEN", container=container)
    job_id = batch.submit_job(jobName="secretive", jobQueue="q", jobDefinition="secretive")["jobId"]
    assert [job["status"] for job in daemon.wait_for([job_id])] == ["SUCCEEDED"]
    return str(daemon.windfall("logs", job_id).stdout.strip())


def test_the_other_daemon_goes_on_with_hosts_keys_and_secrets(apart: Apart) -> None:
    first, second = apart.first, apart.second
    assert '"failed": {}' in first.windfall("hosts", "add", "box0", "--json").stdout
    gated = submit(second, _GATED)
    first.wait_for([gated], "RUNNING")
    wait_until(
        lambda: second.windfall("logs", gated).stdout.split() == ["before"], "a follower shows its log"
    )
    key, gone = a_key(second), a_key(second)
    wait_until(
        lambda: accepts(first, key) and accepts(first, gone), "keys of the second daemon open the first"
    )
    first.windfall("keys", "revoke", gone["AWS_ACCESS_KEY_ID"])
    wait_until(lambda: not accepts(second, gone), "a revoked key opens neither")
    value = second.root / "value"
    value.write_text("open sesame")
    second.windfall("secret", "set", "token", "--from-file", str(value))
    assert "token" in first.windfall("secret", "list").stdout, (
        "the leader has it when the follower has answered"
    )

    first.kill_daemon()
    wait_until(lambda: "leads now" in second.log.read_text(), "the second daemon leads")
    apart.hosts.run(0, "touch", "/var/tmp/go")
    [job] = second.wait_for([gated])
    assert (job["status"], len(job["attempts"])) == ("SUCCEEDED", 1)
    assert apart.hosts.run(0, "cat", "/var/tmp/begun").split() == [gated, "1"], "it ran once"
    assert second.windfall("logs", gated).stdout.split() == ["before", "after"], "its log is whole"
    assert accepts(second, key)
    assert says_secret(second) == "open sesame"
    first.up()
    assert "follows" in first.windfall("status").stdout
    again = submit(first, "echo again")
    assert [job["status"] for job in first.wait_for([again])] == ["SUCCEEDED"]


def test_what_is_on_one_machine_alone_is_refused_with_the_reason(store: str) -> None:
    first, second = a_daemon(store).up(), a_daemon(store)
    try:
        assert f"{first.data}/{SEAL_NAME}" in refused(second)
        shutil.copy(first.data / SEAL_NAME, second.data / SEAL_NAME)
        assert "jobs under its own agent" in refused(second)
        assert "jobs under its own agent" in refused(second, "--hosts-only")
        first.windfall("down")
        first.process.wait(60)
        first.options = (*first.options, "--hosts-only")
        first.up()
        assert "add --hosts-only" in refused(second)
        assert "leave --s3 out" in refused(second, "--hosts-only", "--s3")
        second.options = (*second.options, "--hosts-only")
        second.up()
        (second.data / SEAL_NAME).write_text("0" * 64)
        second.kill_daemon()
        assert "is of another store" in refused(second)
    finally:
        first.close()
        second.close()
