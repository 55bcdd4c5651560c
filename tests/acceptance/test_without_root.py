"""A daemon that is not root: jobs are in a sandbox that hides its data, or start-up says that they are not."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.test_job_users import key_client, result, submit
from tests.acceptance.test_warm_workers import children, log_of
from tests.tidy.tree import ROOT

NOBODY = 65534
#: A Python that another user can run; a virtual environment below root's home is not.
PYTHON = "/usr/bin/python3"


def as_nobody(*arguments: str) -> list[str]:
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*drop, PYTHON, "-m", "windfall.cli", *arguments]


@pytest.fixture
def windfall(require):
    require(os.geteuid() == 0, "only root can become another user for this test")
    require(shutil.which("setpriv") is not None, "setpriv is not installed")
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed")
    packages = Path(site.getsitepackages()[0])
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}
    probe = subprocess.run(as_nobody("--help"), env=environment, capture_output=True, cwd="/", check=False)
    if probe.returncode != 0:
        pytest.skip("another user cannot run Python with this repository's packages here")
    running = RunningWindfall("--gpus", "none")
    running.root.chmod(0o777)
    running.command, running.extra_environment = as_nobody(), {**environment, "HOME": str(running.root)}
    try:
        yield running
    finally:
        running.close()


def hiding(running: RunningWindfall, *paths: str) -> RunningWindfall:
    """The same, in a mount namespace of its own in which files are empty; nobody else notices."""
    hide = " && ".join(f"mount --bind /dev/null {path}" for path in paths)
    running.command = ["unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "hidden", *running.command]
    return running


@pytest.mark.parametrize("made_by", ["bubblewrap", "namespaces without bubblewrap"])
def test_every_job_is_in_a_sandbox(windfall, made_by):
    if made_by != "bubblewrap":
        hiding(windfall, shutil.which("bwrap"))
    windfall.up()
    assert made_by in windfall.log.read_text()
    peek = f"id -u; cat {windfall.data}/keys.json; ls {windfall.data}/store; ls /proc | grep -c '^[0-9]'"
    done = windfall.windfall("run", "--", "sh", "-c", peek)
    lines = done.stdout.splitlines()
    assert lines[0] == str(NOBODY)
    assert "No such file" in lines[1]
    assert "No such file" in lines[2]
    assert int(lines[3]) < 10, "a PID namespace of its own"
    assert "secret" not in done.stdout


@pytest.fixture
def without_sandbox(windfall):
    return hiding(windfall, shutil.which("bwrap"), str(ROOT / "src/windfall/agent/namespaces.py")).up()


def test_without_a_sandbox_start_up_says_so_in_one_line(without_sandbox):
    warnings = [line for line in without_sandbox.log.read_text().splitlines() if line.startswith("warning: ")]
    [warning] = [line for line in warnings if "sandbox" in line]
    assert "bubblewrap" in warning
    assert "jobs of a second tenant are refused" in warning


def test_without_a_sandbox_one_tenant_is_served(without_sandbox):
    batch = a_queue(without_sandbox)
    a_definition(batch, "shell", "id", "-u")
    others = key_client(without_sandbox, "--tenant", "others")
    with pytest.raises(ClientError, match=r"not root runs all jobs as one user\. Install bubblewrap, or run"):
        submit(others, "id -u")
    assert [line.split()[-1] for line in result(without_sandbox, batch, "id -u")] == [str(NOBODY)]
    with pytest.raises(AssertionError, match=r"Only a daemon that runs as root can run jobs as 'daemon'"):
        key_client(without_sandbox, "--user", "daemon")
    own = key_client(without_sandbox, "--user", "nobody")
    assert [line.split()[-1] for line in result(without_sandbox, own, "id -un")] == ["nobody"]


def test_uids_for_tenants_need_a_daemon_that_is_root(windfall):
    refused = windfall.windfall(
        "up", "--data", str(windfall.data), "--job-users", "300000-300009", check=False
    )
    assert refused.returncode == 2
    assert "job_users needs a daemon that runs as root" in refused.stderr


def test_a_warm_worker_is_in_a_sandbox_too(windfall):
    windfall.up()
    batch = a_queue(windfall)
    script = f"""while read -r task; do id -u; ls {windfall.data}/keys.json; echo '{{}}' >&3; done"""
    a_definition(batch, "peek", "sh", "-c", script, memory_mib=256)
    job_id = batch.submit_job(
        jobName="peek",
        jobQueue="q",
        jobDefinition="peek",
        arrayProperties={"size": 3},
        tags={"windfall:worker": "lines"},
    )["jobId"]
    for child in children(windfall, job_id, 3):
        user, refused = log_of(windfall, child)
        assert user == "65534"
        assert "No such file" in refused
