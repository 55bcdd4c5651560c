"""Programs, environments and scripts below /tmp run in jobs that have a /tmp of their own, for every kind of daemon."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import WINDFALL, RunningWindfall, a_definition, a_queue
from tests.acceptance.test_agent import House, launched, sandbox_or_skip
from tests.acceptance.test_job_users import key_client, said
from tests.acceptance.test_staging import kept
from tests.acceptance.test_without_root import NOBODY, hiding, windfall

own_daemon = windfall
PROGRAM = """#!/bin/sh
echo "program $(cat "$1")"; ls -A /tmp
touch "/tmp/$(basename "$(dirname "$1")").left"
"""


@pytest.fixture
def clone() -> Iterator[Path]:
    """A directory of nobody below /tmp, with a program and what it reads, and another one that no job names."""
    with tempfile.TemporaryDirectory(prefix="windfall-clone-", dir="/tmp") as made:
        place, beside = Path(made), Path(f"{made}-beside")
        (place / ".venv" / "bin").mkdir(parents=True)
        program = place / ".venv" / "bin" / "mypython"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        (place / "train.py").write_text("trains")
        beside.mkdir()
        for path in (place, *place.rglob("*"), beside):
            if os.geteuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        try:
            yield place
        finally:
            shutil.rmtree(beside)
            Path(f"{made}.left").unlink(missing_ok=True)


def ran(running: RunningWindfall, batch: Any, *command: str, **variables: str) -> list[str]:
    """Run a command as a Batch job and return the lines of its log."""
    environment = [{"name": name, "value": value} for name, value in variables.items()]
    job_id = batch.submit_job(
        jobName="in-tmp",
        jobQueue="q",
        jobDefinition="shell",
        containerOverrides={"command": list(command), "environment": environment},
    )["jobId"]
    (job,) = running.wait_for([job_id])
    assert job["status"] == "SUCCEEDED", (job["container"].get("reason"), said(running, job_id))
    return said(running, job_id)


@pytest.mark.parametrize("made_by", ["bubblewrap", "namespaces without bubblewrap", "no sandbox"])
def test_a_batch_job_of_an_ordinary_users_daemon(own_daemon, clone, made_by):
    hidden = [] if made_by == "bubblewrap" else [shutil.which("bwrap")]
    if made_by == "no sandbox":
        hidden.append(str(Path(__file__).parents[2] / "src/windfall/agent/namespaces.py"))
    running = (hiding(own_daemon, *hidden) if hidden else own_daemon).up()
    assert made_by in running.log.read_text()
    clone.chmod(0o700)
    batch = a_queue(running)
    a_definition(batch, "shell", "true")
    for command, variables in (
        ([f"{clone}/.venv/bin/mypython", f"{clone}/train.py"], {}),
        (
            ["mypython", "../" * 20 + f"{clone}/train.py"],
            {"PATH": f"{clone}/.venv/bin:/usr/bin:/bin"},
        ),
    ):
        first, *others = ran(running, batch, *command, **variables)
        assert first == "program trains"
        left = Path(f"{clone}.left")
        assert clone.name in others
        assert (f"{clone.name}-beside" in others, left.exists()) == (made_by == "no sandbox",) * 2
        left.unlink(missing_ok=True)


@pytest.fixture(params=["bubblewrap", "namespaces without bubblewrap"])
def root_daemon(request, require) -> Iterator[RunningWindfall]:
    require(os.geteuid() == 0, "only root can run jobs as another user")
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed")
    running = RunningWindfall("--gpus", "none")
    if request.param != "bubblewrap":
        running.command = WINDFALL
        hiding(running, str(shutil.which("bwrap")))
    try:
        yield running.up()
    finally:
        running.close()


def test_tenants_of_a_root_daemon_see_their_own_programs_and_not_those_of_others(root_daemon, clone):
    batch = a_queue(root_daemon)
    a_definition(batch, "shell", "true")
    clone.chmod(0o755)
    own = key_client(root_daemon, "--user", "nobody")
    other = key_client(root_daemon, "--tenant", "others")
    a_definition(other, "shell", "true")
    command = [f"{clone}/.venv/bin/mypython", f"{clone}/train.py"]
    first, *others = ran(root_daemon, own, *command)
    assert first == "program trains"
    assert clone.name in others
    assert f"{clone.name}-beside" not in others
    for client, script, reason in (
        (other, command, f"does not see {clone} of the host, because other tenants have jobs here"),
        (other, ["cat", f"{clone}/train.py"], "No such file"),
    ):
        job_id = client.submit_job(
            jobName="thief", jobQueue="q", jobDefinition="shell", containerOverrides={"command": script}
        )["jobId"]
        (job,) = root_daemon.wait_for([job_id])
        assert job["status"] == "FAILED"
        assert reason in f"{job['container'].get('reason')} {said(root_daemon, job_id)}"


def test_a_job_that_starts_in_tmp_itself_is_refused_beside_other_tenants(root_daemon, clone):
    key_client(root_daemon, "--tenant", "others")
    refused = root_daemon.windfall("run", "--", "ls", check=False, cwd=Path("/tmp"))
    assert refused.returncode != 0
    assert "other tenants have jobs here" in refused.stdout + refused.stderr


@pytest.fixture
def sandboxes(tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "house", job_user="nobody") as built:
        sandbox_or_skip(built.daemon())
        yield built


def test_a_training_job_runs_a_program_below_tmp(sandboxes: House, clone: Path):
    daemon = sandboxes.daemon()
    for number, variables in enumerate(({}, {"VIRTUAL_ENV": f"{clone}/.venv"})):
        program = f"{clone}/.venv/bin/mypython"
        start = sandboxes.start(
            f"t{number}",
            program,
            f"{clone}/train.py",
            staging=kept(sandboxes, f"job{number}", wants_ml_root=True),
            fence=1_700_000_000_000,
            environment=variables,
        )
        daemon.send(start)
        assert daemon.exited(f"t{number}").exit_code == 0, sandboxes.log(f"t{number}")
        first, *others = sandboxes.log(f"t{number}").splitlines()
        assert first == "program trains"
        assert clone.name in others
        assert f"{clone.name}-beside" not in others
