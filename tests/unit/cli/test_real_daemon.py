"""The real thing: `windfall up` as a process, and the commands that a first user types, against it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.waiting import wait_until

RUN = [sys.executable, "-m", "windfall.cli"]


class Real:
    """A daemon and a way to run commands for it, as another shell would."""

    def __init__(self, directory):
        self._environ = {**os.environ, "WINDFALL_DATA": str(directory)}
        self.process = subprocess.Popen(
            [*RUN, "up", "--port", "0", "--gpus", "simulated:1"],
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments, **variables):
        return subprocess.run(
            [*RUN, *arguments],
            env={**self._environ, **variables},
            # A directory that the job's user can enter, whoever runs the tests.
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )


@pytest.fixture
def real(tmp_path):
    daemon = Real(tmp_path / "data")
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon("down", "--kill")
        if daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGKILL)
        daemon.process.communicate()


def test_from_up_to_down(real):
    line = real.process.stdout.readline()
    assert line.startswith("windfall is listening on http://127.0.0.1:"), real.process.stderr.read()

    for refused in (["--share", "blue"], ["--queue", "none"], ["--name", "not a name"], ["--git", "nowhere"]):
        assert real("run", *refused, "--", "true").returncode in (1, 2)
    assert json.loads(real("status", "--json").stdout)["environments"] == []

    # Making a queue takes an admin key; others are told whom to ask.
    key = json.loads(real("keys", "create", "--json").stdout)["accessKeyId"]
    first = real("run", "--", "true", AWS_ACCESS_KEY_ID=key)
    assert first.returncode == 1
    assert "ask an administrator of this daemon to run `windfall run -- true` once" in first.stderr

    ran = real("run", "--gpus", "1", "--env", "GREETING=grüezi", "--", "sh", "-c", 'echo "$GREETING"; exit 3')
    assert (ran.returncode, ran.stdout) == (3, "grüezi\n"), ran.stderr

    again = real("run", "--name", "second", "--", "sh", "-c", "echo $AWS_BATCH_JQ_NAME; pwd")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[0] == "windfall"
    assert "made the queue" not in again.stderr

    failed, succeeded = sorted(
        json.loads(real("jobs", "--json").stdout)["jobs"], key=lambda job: job["status"]
    )
    assert (failed["container"]["exitCode"], succeeded["jobName"]) == (3, "second")
    assert failed["jobDefinition"].endswith(":1")
    assert succeeded["jobDefinition"].endswith(":1")
    assert real("logs", failed["jobId"][:13]).stdout == "grüezi\n"
    assert "exit code 3" in real("why", failed["jobId"]).stdout
    assert "second" in real("describe", "second").stdout
    assert "GPU-simulated-0" in real("status").stdout

    array = real("run", "--array", "3", "--", "sh", "-c", "exit $((AWS_BATCH_JOB_ARRAY_INDEX == 1))")
    assert array.returncode == 1, array.stderr
    assert "3/3 done, 1 failed" in array.stderr

    down = real("down")
    assert (down.returncode, down.stdout) == (0, "windfall has stopped\n"), down.stderr
    assert real.process.wait(timeout=60) == 0
    assert "no Windfall daemon answers at" in real("jobs").stderr


def test_a_daemon_that_is_interrupted_says_that_running_jobs_go_on(real, tmp_path):
    assert real.process.stdout.readline()
    job = real("run", "--detach", "--", "sleep", "600").stdout.strip()
    wait_until(
        lambda: json.loads(real("describe", job, "--json").stdout)["status"] == "RUNNING", "the job runs"
    )
    real.process.send_signal(signal.SIGINT)
    _, said = real.process.communicate(timeout=200)
    assert "stopped; 1 running job goes on, and the next `windfall up` adopts what still runs" in said

    following = Real(tmp_path / "data")
    assert following.process.stdout.readline()
    assert following("down", "--kill").returncode == 0
    _, said = following.process.communicate(timeout=200)
    assert "goes on" not in said
