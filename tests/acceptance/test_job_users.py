"""Jobs of different tenants run as different users: tried by jobs that want to reach one another, without a sandbox."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import WINDFALL, RunningWindfall, a_definition, a_queue
from tests.tidy.tree import ROOT
from tests.waiting import wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")

#: Runs a command where no sandbox can be made, whatever this machine has.
_WITHOUT_SANDBOX = [
    "unshare",
    "-m",
    "sh",
    "-c",
    'for each in $(which -a bwrap) "$0"; do mount --bind /dev/null "$each" || exit 1; done; exec "$@"',
    str(ROOT / "src/windfall/agent/namespaces.py"),
]

#: Leaves a secret in every place that jobs have, says where, and waits to be let go.
_VICTIM = """
umask
echo secret > mine; echo secret > /tmp/$NAME; echo secret > /dev/shm/$NAME
mkdir /tmp/$NAME.d; echo secret > /tmp/$NAME.d/file
echo secret > $WINDFALL_CHECKPOINT_DIR/kept
echo "pid=$$ work=$PWD checkpoints=$WINDFALL_CHECKPOINT_DIR"
while [ ! -e /tmp/$NAME.over ]; do sleep 0.1; done
rm -r /tmp/$NAME /tmp/$NAME.d /dev/shm/$NAME
cat mine
"""
#: Tries all of it, and says what went well.
_ATTACK = """
try() { what=$1; shift; if "$@" > /dev/null 2>&1; then echo "did: $what"; fi; }
try environ grep -q NAME /proc/$PID/environ
try memory cat /proc/$PID/maps
try files ls /proc/$PID/fd/
try cwd ls /proc/$PID/cwd/
try root cat /proc/$PID/root/etc/passwd
try signal kill -0 $PID
try continue kill -CONT $PID
try end kill -TERM $PID
for each in $PLACES; do
  try "look at $each" ls $each/
  try "read $each" cat $each
  try "replace $each" mv $each $each.moved
  try "remove $each" rm -r $each
  try "write $each" sh -c "echo x >> $each"
done
try log cat $LOGS/*
try keys cat $DATA/keys.json
echo tried
"""


@pytest.fixture
def without_sandbox() -> Iterator[Callable[..., RunningWindfall]]:
    """Starts daemons that have no bubblewrap."""
    started: list[RunningWindfall] = []

    def start(*options: str) -> RunningWindfall:
        running = RunningWindfall("--gpus", "none", *options)
        running.command = [*_WITHOUT_SANDBOX, *WINDFALL]
        started.append(running)
        return running.up()

    yield start
    for running in started:
        running.close()


def key_client(windfall: RunningWindfall, *options: str, service: str = "batch") -> Any:
    """A client with a new key."""
    made = json.loads(windfall.windfall("keys", "create", "--role", "submit", "--json", *options).stdout)
    return boto3.client(
        service,
        endpoint_url=windfall.url,
        region_name="eu-central-1",
        aws_access_key_id=made["accessKeyId"],
        aws_secret_access_key=made["secretAccessKey"],
    )


def submit(batch: Any, script: str, tags: dict[str, str] | None = None, **environment: str) -> str:
    """Run a shell script as a job; the answer is its id."""
    variables = [{"name": name, "value": value} for name, value in environment.items()]
    return str(
        batch.submit_job(
            jobName="tries",
            jobQueue="q",
            jobDefinition="shell",
            containerOverrides={"command": ["sh", "-c", script], "environment": variables},
            tags=tags or {},
        )["jobId"]
    )


def said(windfall: RunningWindfall, job_id: str) -> list[str]:
    """What a job has printed."""
    return windfall.windfall("logs", job_id, check=False).stdout.splitlines()


def result(windfall: RunningWindfall, batch: Any, script: str) -> list[str]:
    """What a job prints that must succeed."""
    job_id = submit(batch, script)
    (job,) = windfall.wait_for([job_id])
    assert job["status"] == "SUCCEEDED", job
    return said(windfall, job_id)


def a_shell(windfall: RunningWindfall) -> Any:
    """A queue and a definition for scripts; the answer is the administrator's client."""
    batch = a_queue(windfall)
    a_definition(batch, "shell", "true")
    return batch


def attacked(windfall: RunningWindfall, victim: Any, attacker: Any, name: str) -> list[str]:
    """What a job of one key can do to a job of another, which must not notice."""
    job_id = submit(victim, _VICTIM, {"windfall:checkpoint": "true"}, NAME=name)
    wait_until(lambda: any("pid=" in line for line in said(windfall, job_id)), "the victim runs")
    (line,) = (line for line in said(windfall, job_id) if "pid=" in line)
    where = dict(part.split("=", 1) for part in line.split()[-3:])
    places = [f"/tmp/{name}", f"/tmp/{name}.d", f"/tmp/{name}.d/file", f"/dev/shm/{name}"]
    places += [where["work"], f"{where['work']}/mine", where["checkpoints"], f"{where['checkpoints']}/kept"]
    over = Path(f"/tmp/{name}.over")
    try:
        attack = submit(
            attacker,
            _ATTACK,
            PID=where["pid"],
            PLACES=" ".join(places),
            LOGS=str(windfall.data / "logs"),
            DATA=str(windfall.data),
        )
        windfall.wait_for([attack])
    finally:
        over.touch()
    (ended,) = windfall.wait_for([job_id])
    over.unlink()
    assert (ended["status"], said(windfall, job_id)[-1].split()[-1]) == ("SUCCEEDED", "secret"), ended
    done = said(windfall, attack)
    assert done[-1].endswith("tried"), done
    return done[:-1]


@needs_root
@pytest.mark.parametrize("options", [(), ("--job-users", "300000-300009")])
def test_a_job_cannot_reach_one_of_another_tenant(without_sandbox, options: tuple[str, ...], tmp_path):
    windfall = without_sandbox(*options)
    default = a_shell(windfall)
    vision, speech = (key_client(windfall, "--tenant", tenant) for tenant in ("vision", "speech"))
    stamp = f"windfall-{os.getpid()}-{tmp_path.name}"
    assert attacked(windfall, default, vision, f"{stamp}-1") == []
    assert attacked(windfall, vision, speech, f"{stamp}-2") == []
    assert attacked(windfall, speech, default, f"{stamp}-3") == []
    # The same script does harm where it may, so that the silence above means something.
    assert any("did: environ" in line for line in _own_harm(windfall, vision))


def _own_harm(windfall: RunningWindfall, batch: Any) -> list[str]:
    sleeper = submit(batch, "echo pid=$$; exec sleep 60", NAME="x")
    wait_until(lambda: any("pid=" in line for line in said(windfall, sleeper)), "it runs")
    (line,) = (line for line in said(windfall, sleeper) if "pid=" in line)
    attack = submit(batch, _ATTACK, PID=line.split("pid=")[1], PLACES="", LOGS="/nowhere", DATA="/nowhere")
    windfall.wait_for([attack, sleeper])
    return said(windfall, attack)


@needs_root
def test_a_tenant_has_its_uid_for_ever(without_sandbox):
    windfall = without_sandbox("--job-users", "300000-300002")
    default = a_shell(windfall)
    # No account has this uid, and programs such as PyTorch ask for the user's name all the same.
    look = "id -u; id -g; id -G; python3 -c 'import getpass; print(getpass.getuser())'"

    def ids(batch: Any) -> set[str]:
        return {line.split()[-1] for line in result(windfall, batch, look)}

    assert ids(default) == {"300000"}
    vision = key_client(windfall, "--tenant", "vision")
    assert ids(vision) == {"300001"}
    key = json.loads(windfall.windfall("keys", "list", "--json").stdout)["keys"][-1]["accessKeyId"]
    windfall.windfall("keys", "revoke", key)
    assert ids(key_client(windfall, "--tenant", "speech")) == {"300002"}
    windfall.windfall("down")
    windfall.process.wait(120)
    windfall.up()
    assert ids(key_client(windfall, "--tenant", "vision")) == {"300001"}
    full = key_client(windfall, "--tenant", "fourth")
    with pytest.raises(ClientError, match=r"all 3 uids of --job-users 300000-300002 belong to other tenants"):
        submit(full, look)
    assert "jobs run as a uid of 300000-300002 for each tenant" in windfall.windfall("status").stdout


@needs_root
def test_a_key_that_is_mapped_to_an_account_runs_its_jobs_as_that(without_sandbox):
    windfall = without_sandbox()
    a_shell(windfall)
    mapped = key_client(windfall, "--user", "daemon")
    assert [line.split()[-1] for line in result(windfall, mapped, "id -un; id -gn; id -Gn")] == ["daemon"] * 3
    keys = windfall.data / "keys.json"
    keys.write_text(keys.read_text().replace('"user": "daemon"', '"user": "account-that-is-gone"'))
    job_id = submit(mapped, "id -un")
    (job,) = windfall.wait_for([job_id])
    assert job["status"] == "FAILED"
    assert 'there is no user "account-that-is-gone"' in str(job)


@needs_root
def test_a_warm_worker_has_the_user_of_its_array(without_sandbox):
    windfall = without_sandbox()
    batch = a_shell(windfall)
    vision = key_client(windfall, "--tenant", "vision")
    script = """while read -r task; do echo "uid $(id -u)"; echo '{}' >&3; done"""
    a_definition(batch, "warm", "sh", "-c", script, memory_mib=256)
    for client, uid in ((vision, "200000"), (batch, "65534")):
        job_id = client.submit_job(
            jobName="warm",
            jobQueue="q",
            jobDefinition="warm",
            arrayProperties={"size": 2},
            tags={"windfall:worker": "lines"},
        )["jobId"]
        children = windfall.wait_for([f"{job_id}:0", f"{job_id}:1"])
        assert {child["status"] for child in children} == {"SUCCEEDED"}
        assert [said(windfall, f"{job_id}:{n}")[0].split()[-1] for n in (0, 1)] == [uid, uid]


@needs_root
def test_an_agent_that_is_killed_goes_on_with_jobs_of_all_users(without_sandbox):
    windfall = without_sandbox()
    default = a_shell(windfall)
    vision = key_client(windfall, "--tenant", "vision")
    script = "id -u; while [ ! -e go ]; do sleep 0.05; done; id -u; echo kept > $WINDFALL_CHECKPOINT_DIR/x"
    jobs = [submit(client, script, {"windfall:checkpoint": "true"}) for client in (default, vision)]
    for job_id in jobs:
        wait_until(lambda job_id=job_id: len(said(windfall, job_id)) == 1, "it runs")
    windfall.kill_agent()
    for directory in (windfall.data / "attempts").iterdir():
        if directory.suffix == "":
            (directory / "go").touch()
    assert {job["status"] for job in windfall.wait_for(jobs)} == {"SUCCEEDED"}
    assert [said(windfall, job_id)[-1].split()[-1] for job_id in jobs] == ["65534", "200000"]


@needs_root
def test_a_schedule_runs_its_jobs_as_the_account_of_its_key(without_sandbox):
    windfall = without_sandbox()
    admin = a_shell(windfall)
    a_definition(admin, "who", "id", "-un")
    scheduler = key_client(windfall, "--user", "daemon", service="scheduler")
    due = datetime.now(UTC) + timedelta(seconds=2)
    target = {
        "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
        "RoleArn": "arn:aws:iam::123456789012:role/r",
        "Input": json.dumps({"JobName": "tick", "JobQueue": "q", "JobDefinition": "who"}),
    }
    scheduler.create_schedule(
        Name="soon",
        ScheduleExpression=f"at({due:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target,
    )
    found: list[str] = []

    def ended() -> bool:
        found[:] = [
            job["jobId"]
            for job in admin.list_jobs(jobQueue="q", jobStatus="SUCCEEDED")["jobSummaryList"]
            if job["jobName"] == "tick"
        ]
        return bool(found)

    wait_until(ended, "the tick's job has succeeded")
    assert said(windfall, found[0])[0].split()[-1] == "daemon"


@needs_root
def test_tenants_without_users_and_without_a_sandbox_are_refused_but_the_first(without_sandbox):
    windfall = without_sandbox("--job-users", "none")
    default = a_shell(windfall)
    vision = key_client(windfall, "--tenant", "vision")
    with pytest.raises(
        ClientError, match=r"vision cannot be kept apart .* tenant default.*--job-users FIRST-LAST"
    ):
        submit(vision, "id")
    assert "nobody" in result(windfall, default, "id")[0]
    assert "jobs of a second tenant are refused: install bubblewrap" in windfall.log.read_text()


def test_in_a_sandbox_jobs_have_their_own_users_too(fresh, require):
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed")
    windfall = fresh("--gpus", "none")
    a_shell(windfall)
    vision = key_client(windfall, "--tenant", "vision")
    uid = result(windfall, vision, "id -u")[0].split()[-1]
    assert uid == ("200000" if os.geteuid() == 0 else str(os.geteuid()))
