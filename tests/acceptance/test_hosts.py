"""Jobs run on hosts that the user lists, by a real sshd; hosts are cut off, killed, drained and removed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.hosts_in_a_box import USER, HostsInABox, require_hosts
from tests.waiting import wait_until

#: Long enough for a test to do something meanwhile; each waits for a file instead of a time.
_LEAVES_ITS_ID = "touch /var/tmp/$AWS_BATCH_JOB_ID"
_WAITS = f"while [ ! -e /var/tmp/go ]; do sleep 0.1; done; hostname; {_LEAVES_ITS_ID}"


class Scene:
    """A daemon, and hosts that it may use."""

    def __init__(self, hosts: HostsInABox, daemon: RunningWindfall) -> None:
        self.hosts, self.daemon = hosts, daemon

    def windfall(self, *words: str) -> Any:
        """The answer of a command as JSON."""
        return json.loads(self.daemon.windfall(*words, "--json").stdout)

    def refusal(self, *words: str) -> str:
        """What a command that must fail says."""
        done = self.daemon.windfall(*words, check=False)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def submit(self, command: str, *options: str) -> str:
        """Submit a shell command as a job; returns its id."""
        words = ("run", "--detach", "--clean", "--memory", "64M", *options, "--", "sh", "-c", command)
        return str(self.daemon.windfall(*words).stdout.split()[-1])

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as AWS describes it."""
        return dict(self.daemon.client("batch").describe_jobs(jobs=[job_id])["jobs"][0])

    def await_status(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """The job, once it has one of these states."""
        return wait_until(
            lambda: job if (job := self.job(job_id))["status"] in statuses else None,
            f"{job_id} is {statuses}",
            deadline_s=120,
        )

    def where(self, job_id: str) -> list[int]:
        """The hosts on which a job has come to its end."""
        return [number for number in (0, 1) if job_id in self.hosts.run(number, "ls", "/var/tmp").split()]

    def host(self, name: str) -> dict[str, Any]:
        """A host, as the daemon lists it."""
        return next(host for host in self.windfall("hosts", "list")["hosts"] if host["name"] == name)

    def go(self, *numbers: int) -> None:
        """Let what waits on hosts go on."""
        for number in numbers:
            self.hosts.run(number, "touch", "/var/tmp/go")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A daemon without jobs of its own host, and two hosts."""
    require_hosts()
    with HostsInABox(2, tmp_path) as hosts:
        daemon = RunningWindfall("--gpus", "none")
        daemon.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        daemon.extra_environment["WINDFALL_LOST_AFTER_S"] = "20"
        daemon.up()
        try:
            yield Scene(hosts, daemon)
        finally:
            daemon.close()


def test_jobs_run_on_two_hosts_and_outlive_the_daemon(scene: Scene) -> None:
    added = scene.windfall(
        "hosts", "add", "box0", f"{USER}@box1", "--gpus", "simulated:1", "--labels", "zone=a"
    )
    assert added["failed"] == {}
    assert sorted((host["name"], host["machine"]["hostname"]) for host in added["hosts"]) == [
        ("box0", "box0"),
        ("box1", "box1"),
    ]
    jobs = [scene.submit(_WAITS, "--gpus", "1") for _ in range(2)]
    for job in jobs:
        scene.await_status(job, "RUNNING")
    assert [scene.host(name)["running"] for name in ("box0", "box1")] == [1, 1]
    assert "1 job runs on box0" in scene.refusal("hosts", "remove", "box0")

    # Nothing there opens the API.
    secret = json.loads((scene.daemon.data / "keys.json").read_text())["keys"][0]["secret_access_key"]
    for number, places in ((0, "/var/lib"), (1, f"/home/{USER}")):
        assert scene.hosts.run(number, "sh", "-c", f"grep -rlF -e {secret} {places} || true") == ""
        assert not any(secret in line for line in scene.hosts.commands(number).values())

    # The daemon dies; the jobs do not.
    scene.daemon.kill_daemon()
    scene.go(0)
    scene.daemon.up()
    scene.go(1)
    for job in jobs:
        assert scene.await_status(job, "SUCCEEDED", "FAILED")["status"] == "SUCCEEDED"
        assert len(scene.job(job)["attempts"]) == 1
    assert sorted(scene.where(job) for job in jobs) == [[0], [1]]
    printed = sorted(scene.daemon.windfall("logs", job).stdout.split()[-1] for job in jobs)
    assert printed == ["box0", "box1"]

    # A drained host gets nothing new; a removed one has nothing left of us.
    scene.windfall("hosts", "drain", "box0")
    jobs = [scene.submit(_LEAVES_ITS_ID, "--gpus", "1") for _ in range(2)]
    for job in jobs:
        scene.await_status(job, "SUCCEEDED")
        assert scene.where(job) == [1]
    assert scene.windfall("hosts", "remove", "box0")["left"] == ""
    assert not any("windfall" in line for line in scene.hosts.commands(0).values())
    assert scene.hosts.run(0, "ls", "/var/lib") == ""
    assert [host["name"] for host in scene.windfall("hosts", "list")["hosts"]] == ["box1"]


def _agent_of(scene: Scene, number: int) -> int:
    return next(
        pid for pid, line in scene.hosts.commands(number).items() if "-m windfall.agent.serve" in line
    )


def _host_of(scene: Scene) -> int:
    """The number of the host that runs the only job."""
    return wait_until(
        lambda: [n for n in (0, 1) if scene.host(f"box{n}")["running"] == 1],
        "a host runs the job",
    )[0]


def test_an_agent_dies_a_host_is_cut_off_and_a_host_dies(scene: Scene) -> None:
    scene.windfall("hosts", "add", "box0", "box1", "--gpus", "simulated:1")

    # An agent that dies takes no job with it.
    job = scene.submit(_WAITS, "--gpus", "1")
    scene.await_status(job, "RUNNING")
    number = _host_of(scene)
    agent = _agent_of(scene, number)
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: _agent_of(scene, number) != agent, "the warden starts another agent")
    scene.go(number)
    assert scene.await_status(job, "SUCCEEDED", "FAILED")["status"] == "SUCCEEDED"
    assert len(scene.job(job)["attempts"]) == 1
    scene.hosts.run(number, "rm", "/var/tmp/go")

    # A host that is cut off is lost after a while: the job goes on elsewhere, and ends once.
    job = scene.submit(_WAITS, "--gpus", "1", "--attempts", "5")
    scene.await_status(job, "RUNNING")
    number = _host_of(scene)
    scene.hosts.cut(number)
    wait_until(lambda: len(scene.job(job)["attempts"]) == 1, "the first attempt is lost", deadline_s=120)
    scene.await_status(job, "RUNNING")
    other = 1 - number
    assert scene.host(f"box{other}")["running"] == 1
    scene.hosts.heal(number)
    # The superseded attempt is stopped there when the host is back.
    wait_until(
        lambda: not any("/var/tmp/go" in line for line in scene.hosts.commands(number).values()),
        "the superseded attempt is stopped",
        deadline_s=120,
    )
    scene.go(0, 1)
    assert scene.await_status(job, "SUCCEEDED", "FAILED")["status"] == "SUCCEEDED"
    assert scene.where(job) == [other]
    for n in (0, 1):
        scene.hosts.run(n, "rm", "/var/tmp/go")

    # A host that dies and comes back: its agent is started again, and the job too.
    wait_until(lambda: scene.host(f"box{number}")["standing"] == "ready", "the host is back", deadline_s=120)
    scene.windfall("hosts", "drain", f"box{other}")
    job = scene.submit(_WAITS, "--gpus", "1", "--attempts", "5")
    scene.await_status(job, "RUNNING")
    scene.hosts.reboot(number)
    wait_until(lambda: len(scene.job(job)["attempts"]) == 1, "the first attempt is lost", deadline_s=120)
    scene.await_status(job, "RUNNING")
    scene.go(number)
    assert scene.await_status(job, "SUCCEEDED", "FAILED")["status"] == "SUCCEEDED"
    assert scene.where(job) == [number]


def test_one_bad_host_stops_no_other_and_only_an_administrator_adds_any(scene: Scene) -> None:
    keys = scene.hosts.known_hosts.read_text().splitlines()
    scene.hosts.known_hosts.write_text(keys[0] + "\n" + keys[0].replace("box0", "box1") + "\n")
    done = scene.daemon.windfall("hosts", "add", "box0", "box1", "-oProxyCommand=true", "--json", check=False)
    assert done.returncode != 0
    done = scene.daemon.windfall("hosts", "add", "box0", "box1", "box9;reboot", "--json", check=False)
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert [host["name"] for host in answer["hosts"]] == ["box0"]
    assert "has changed" in answer["failed"]["box1"]
    assert "must be an IP address" in scene.refusal("hosts", "add", "box0", "--address", "box0;reboot")
    assert "is not a host" in answer["failed"]["box9;reboot"]
    assert [host["name"] for host in scene.windfall("hosts", "list")["hosts"]] == ["box0"]
    assert {check["subject"] for check in scene.windfall("hosts", "doctor", "box0")["checks"]} > {"disk"}

    key = scene.windfall("keys", "create", "--role", "submit")
    variables = {"AWS_ACCESS_KEY_ID": key["accessKeyId"], "AWS_SECRET_ACCESS_KEY": key["secretAccessKey"]}
    client = boto3.Session(
        aws_access_key_id=key["accessKeyId"],
        aws_secret_access_key=key["secretAccessKey"],
        region_name="us-east-1",
    )
    assert client.client("batch", endpoint_url=scene.daemon.url).describe_job_queues()["jobQueues"] == []
    for words in (("add", "box1"), ("list",), ("drain", "box0"), ("remove", "box0"), ("doctor", "box0")):
        address = {"WINDFALL_URL": scene.daemon.url, "AWS_ENDPOINT_URL": scene.daemon.url}
        done = scene.daemon.windfall("hosts", *words, check=False, **variables, **address)
        assert done.returncode != 0, words
        assert "admin" in done.stderr, done.stderr
    assert [host["draining"] for host in scene.windfall("hosts", "list")["hosts"]] == [False]
