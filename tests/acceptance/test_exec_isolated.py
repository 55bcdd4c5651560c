"""`windfall exec` into sandboxes and containers, of a daemon of root and of an ordinary user, and into trainings."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from tests.acceptance.containers import a_boxed_definition, submitted, with_engine
from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.exec_client import entered_processes, piped, terminal, wait_for_program
from tests.acceptance.test_job_users import key_client
from tests.acceptance.test_without_root import NOBODY, hiding, windfall
from tests.docker_engine import IMAGE
from tests.waiting import wait_until

__all__ = ["windfall"]

#: What of a process shows its rights and its place.
RIGHTS = (
    "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Umask)' /proc/self/status;"
    " for one in /proc/self/ns/*; do readlink $one; done"
)
SCRIPT = f"{RIGHTS}; echo ready; exec sleep 600"
#: The first process of a container gets only the signals that it asks for.
BOXED_SCRIPT = f"{RIGHTS}; echo ready; trap 'exit 1' TERM; sleep 600 & wait"


def rights_inside_and_of(running: RunningWindfall, job_id: str) -> tuple[str, str]:
    """What a command inside a job shows, and what the job has shown of itself."""
    logs = ("logs", job_id)
    wait_until(lambda: "ready" in running.windfall(*logs, check=False).stdout, "the job says that it runs")
    inside = piped(running, job_id, "--", "sh", "-c", RIGHTS)  # The same shell and program as the job's.
    assert inside.returncode == 0, inside.stderr
    return inside.stdout.decode(), running.windfall(*logs).stdout.replace("ready\n", "")


def try_a_sandbox(running: RunningWindfall, job_id: str) -> None:
    inside, own = rights_inside_and_of(running, job_id)
    assert inside == own
    seen = piped(
        running, job_id, "--", "sh", "-c", f"cat /proc/1/cmdline | wc -c; ls {running.data}; id -u; ls /proc"
    )
    lines = seen.stdout.decode().split("\n")
    assert "keys.json" not in lines
    assert len([line for line in lines if line.isdigit()]) < 12, "the sandbox's processes alone"
    left = piped(running, job_id, "--", "sh", "-c", "sleep 601 & (setsid sleep 602 &) & echo done")
    assert left.stdout == b"done\n"
    assert not entered_processes(running)
    with terminal(running, job_id) as screen:
        screen.type("PS1='ins''ide> '; tty; cat\n")
        screen.until("/dev/pts/")
        wait_for_program(running, "cat")
        screen.type("\x03")
        screen.until("inside> ")
        running.windfall("terminate", job_id)
        screen.until("the job has ended")
        assert screen.wait() == 1
        assert screen.is_as_before
    assert not entered_processes(running)


@pytest.mark.parametrize("made_by", ["bubblewrap", "namespaces without bubblewrap"])
def test_a_sandbox_of_an_ordinary_users_daemon(windfall, made_by):
    if made_by != "bubblewrap":
        hiding(windfall, str(shutil.which("bwrap")))
    windfall.up()
    job_id = windfall.windfall("run", "--detach", "--", "sh", "-c", SCRIPT).stdout.strip()
    windfall.wait_for([job_id], "RUNNING")
    assert piped(windfall, job_id, "--", "id", "-u").stdout == f"{NOBODY}\n".encode()
    try_a_sandbox(windfall, job_id)


def test_a_process_of_an_ordinary_users_daemon(windfall):
    hiding(windfall, str(shutil.which("bwrap")), "/proc/sys/user/max_user_namespaces")
    windfall.up()
    job_id = windfall.windfall("run", "--detach", "--", "sh", "-c", SCRIPT).stdout.strip()
    windfall.wait_for([job_id], "RUNNING")
    inside, own = rights_inside_and_of(windfall, job_id)
    assert inside == own


def test_a_sandbox_of_roots_daemon(fresh, require):
    require(os.geteuid() == 0, "only root runs jobs as other users")
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed")
    running = fresh()
    a_queue(running)
    batch = key_client(running, "--tenant", "vision")  # With two tenants every job is in a sandbox.
    a_definition(batch, "boxed", "sh", "-c", SCRIPT, memory_mib=256)
    job_id = str(batch.submit_job(jobName="boxed", jobQueue="q", jobDefinition="boxed")["jobId"])
    (job,) = running.wait_for([job_id], "RUNNING")
    assert "bubblewrap" in job["tags"]["windfall:isolation"]
    uid = piped(running, job_id, "--", "id", "-u").stdout
    assert int(uid) >= 200_000
    try_a_sandbox(running, job_id)


def test_a_training_job(windfall_of_root):
    running: RunningWindfall = windfall_of_root
    sagemaker = running.client("sagemaker")
    sagemaker.create_training_job(
        TrainingJobName="tune",
        RoleArn="arn:aws:iam::123456789012:role/any",
        AlgorithmSpecification={
            "TrainingImage": "windfall/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sh", "-c", "exec sleep 600"],
        },
        OutputDataConfig={"S3OutputPath": "s3://bucket/out"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
        HyperParameters={"rate": "0.1"},
    )
    running.wait_for(["training-tune"], "RUNNING")
    hosts = (
        "sh",
        "-c",
        "cat /opt/ml/input/config/hyperparameters.json; cat /opt/ml/input/config/resourceconfig.json",
    )
    first = piped(running, "training-tune", "--", *hosts).stdout.decode()
    assert '"rate"' in first
    assert '"current_host": "algo-1"' in first or '"current_host":"algo-1"' in first
    second = piped(running, "training-tune", "--node", "1", "--", *hosts).stdout.decode()
    assert '"current_host": "algo-2"' in second or '"current_host":"algo-2"' in second


@pytest.fixture
def windfall_of_root(fresh, require):
    require(os.geteuid() == 0, "trainings of a daemon of root are tried here")
    return fresh()


# --- containers ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["docker_engine", "podman_engine"])
def boxed(request) -> Any:
    running = with_engine(request.getfixturevalue(request.param))
    try:
        running.up()
        yield running, a_queue(running)
    finally:
        running.close()


def test_a_container(boxed):
    running, batch = boxed
    a_boxed_definition(
        batch, "train", BOXED_SCRIPT, image=IMAGE, environment=[{"name": "GREETING", "value": "hello"}]
    )
    job_id = submitted(batch, "train")
    running.wait_for([job_id], "RUNNING")
    inside, own = rights_inside_and_of(running, job_id)
    assert inside == own
    done = piped(running, "train", "--", "sh", "-c", "echo $FROM_IMAGE $GREETING; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"yes hello\n", b"err\n", 7)
    feed = bytes(range(256)) * 8_000
    assert piped(running, "train", "--", "cat", feed=feed).stdout == feed
    missing = piped(running, "train", "--", "no-such-program")
    assert missing.returncode == 127
    assert b"no-such-program" in missing.stderr + missing.stdout
    left = piped(running, "train", "--", "sh", "-c", "sleep 601 & (setsid sleep 602 &) & echo done")
    assert left.stdout == b"done\n"
    assert b"sleep 60" not in piped(running, "train", "--", "ps").stdout.replace(b"sleep 600", b"")
    with terminal(running, "train", SHELL="/bin/zsh") as screen:
        screen.type("tty; stty size\n")
        screen.until("/dev/pts/")
        screen.until("30 100")
        screen.resize(40, 120)
        wait_until(lambda: screen.shows_size("40 120"), "the new size is known inside")
        screen.type("PS1='ins''ide> '; cat\n")
        wait_for_program(running, "cat")
        screen.type("\x03")
        screen.until("inside> ")
        running.windfall("terminate", job_id)
        screen.until("the job has ended")
        assert screen.wait() == 1
        assert screen.is_as_before


def test_a_client_that_is_gone_takes_its_processes_out_of_the_container(boxed):
    running, batch = boxed
    a_boxed_definition(batch, "train", BOXED_SCRIPT, image=IMAGE)
    job_id = submitted(batch, "train")
    running.wait_for([job_id], "RUNNING")
    with terminal(running, "train") as screen:
        screen.type("trap '' HUP TERM; sleep 601 & echo rea''dy\n")
        screen.until("ready")
        assert b"sleep 601" in piped(running, "train", "--", "ps").stdout
        screen.process.kill()
        screen.process.wait(60)
        wait_until(
            lambda: b"sleep 601" not in piped(running, "train", "--", "ps").stdout, "its processes are gone"
        )
    running.wait_for([job_id], "RUNNING")
