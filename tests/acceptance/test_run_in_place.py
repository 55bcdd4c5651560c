"""`windfall run` where the user stands, for every kind of daemon, and what happens to those who try for more."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.test_job_users import key_client, said
from tests.acceptance.test_without_root import NOBODY, windfall

own_daemon = windfall
PEEK = """
import os, sys
print(os.getcwd(), os.environ.get("HOME"), sys.argv[1])
print(os.environ.get("SECRET_OF_THE_SHELL"))
with open("result.txt", "w") as file:
    file.write("weights")
"""


@pytest.fixture
def project() -> Iterator[Path]:
    """A project with a program of its own on PATH, below /tmp, where a sandbox usually has its own files."""
    with tempfile.TemporaryDirectory(prefix="windfall-project-", dir="/tmp") as made:
        place = Path(made)
        (place / "train.py").write_text(PEEK)
        tools = place / "venv" / "bin"
        tools.mkdir(parents=True)
        (tools / "mypython").write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
        (tools / "mypython").chmod(0o755)
        yield place


def given_to(project: Path, uid: int) -> None:
    for path in (project, *project.rglob("*")):
        os.chown(path, uid, uid)


def in_venv(project: Path) -> dict[str, str]:
    venv = project / "venv"
    return {
        "VIRTUAL_ENV": str(venv),
        "PATH": f"{venv}/bin:{os.environ['PATH']}",
        "SECRET_OF_THE_SHELL": "s3cret",
    }


COMMAND = ("--", "mypython", "train.py", "now")


def test_on_a_daemon_of_ones_own(own_daemon, project):
    given_to(project, NOBODY)
    project.chmod(0o700)
    own_daemon.up()
    ran = own_daemon.windfall("run", *COMMAND, cwd=project, **in_venv(project))
    assert ran.stdout.splitlines() == [f"{project} {own_daemon.root} now", "None"]
    assert (project / "result.txt").read_text() == "weights"
    kept = own_daemon.windfall("run", "--checkpoint", *COMMAND, cwd=project, **in_venv(project))
    assert kept.stdout == ran.stdout
    described = own_daemon.windfall("describe", "train", "--json").stdout
    assert "s3cret" not in described
    clean = own_daemon.windfall(
        "run", "--clean", "--", "sh", "-c", 'echo "venv=$VIRTUAL_ENV"; ls', cwd=project, **in_venv(project)
    )
    assert clean.stdout == "venv=\n"


def test_a_directory_around_the_data_does_not_show_it(own_daemon):
    own_daemon.up()
    peek = f"pwd; ls -A {own_daemon.data}; cat {own_daemon.data}/keys.json"
    ran = own_daemon.windfall("run", "--", "sh", "-c", peek, check=False, cwd=own_daemon.root)
    assert ran.stdout.splitlines()[0] == str(own_daemon.root)
    assert "WNDF" not in ran.stdout
    inside = own_daemon.windfall("run", "--", "true", check=False, cwd=own_daemon.data)
    assert inside.returncode != 0
    assert "data directory of Windfall" in inside.stderr


@pytest.fixture
def root_daemon(require) -> Iterator[RunningWindfall]:
    require(os.geteuid() == 0, "only root can run jobs as another user")
    running = RunningWindfall("--gpus", "none")
    try:
        yield running.up()
    finally:
        running.close()


def test_a_root_daemon_says_before_the_job_is_queued_that_its_user_cannot_enter(root_daemon, project):
    ran = root_daemon.windfall("run", *COMMAND, check=False, cwd=project, **in_venv(project))
    assert ran.returncode == 1
    assert f"run as nobody and cannot enter the directory {project}" in ran.stderr
    assert json.loads(root_daemon.windfall("jobs", "--all", "--json").stdout)["jobs"] == []
    project.chmod(0o777)
    ran = root_daemon.windfall("run", *COMMAND, cwd=project, **in_venv(project))
    assert ran.stdout.splitlines()[0].startswith(f"{project} ")
    assert (project / "result.txt").stat().st_uid == NOBODY


PIPELINE = """
memory = "64M"

[[job]]
name = "train"
command = "sh -c 'cat prepared > trained'"
after = "prepare"

[[job]]
name = "prepare"
command = ["sh", "-c", "echo data > prepared"]
"""


def test_the_jobs_of_a_file_run_one_after_another(root_daemon, project):
    project.chmod(0o777)
    (project / "jobs.toml").write_text(PIPELINE)
    ran = root_daemon.windfall("run", "--file", "jobs.toml", cwd=project)
    ids = [line.split()[0] for line in ran.stdout.splitlines()]
    assert [job["status"] for job in root_daemon.wait_for(ids)] == ["SUCCEEDED", "SUCCEEDED"]
    assert (project / "trained").read_text() == "data\n"
    after = root_daemon.windfall("run", "--after", "train", "--", "cat", "trained", cwd=project)
    assert after.stdout == "data\n"


@pytest.mark.parametrize("tenants", [1, 2])
def test_a_user_of_another_users_daemon_stands_in_a_closed_home(root_daemon, project, tenants):
    if tenants == 2:
        # Then every job has a sandbox with a /tmp of its own.
        key_client(root_daemon, "--tenant", "others")
    made = json.loads(
        root_daemon.windfall("keys", "create", "--role", "submit", "--user", "daemon", "--json").stdout
    )
    given_to(project, 1)
    project.chmod(0o700)
    root_daemon.windfall("run", "--", "true", cwd=Path("/usr"))
    ran = root_daemon.windfall(
        "run",
        *COMMAND,
        cwd=project,
        **in_venv(project),
        WINDFALL_DATA=str(project / "no-daemon"),
        AWS_ENDPOINT_URL_BATCH=root_daemon.url,
        AWS_ACCESS_KEY_ID=made["accessKeyId"],
        AWS_SECRET_ACCESS_KEY=made["secretAccessKey"],
        AWS_REGION="eu-central-1",
        HOME=str(project),
    )
    assert ran.stdout.splitlines() == [f"{project} {project} now", "None"]
    assert (project / "result.txt").stat().st_uid == 1


@pytest.mark.parametrize("tenants", [1, 2])
def test_nobody_gets_into_the_home_of_another_by_naming_it(root_daemon, project, tenants):
    """A directory that everybody may read, below one that only its owner may enter."""
    if tenants == 2:
        key_client(root_daemon, "--tenant", "others")
    root_daemon.windfall("run", "--", "true", cwd=Path("/usr"))
    attacker = key_client(root_daemon, "--user", "daemon")
    secret = project / "open"
    secret.mkdir(mode=0o755)
    (secret / "secret.txt").write_text("the weights of somebody else")
    project.chmod(0o700)
    trap = Path(tempfile.mkdtemp(prefix="windfall-trap-", dir="/tmp"))
    try:
        (trap / "link").symlink_to(secret)
        trap.chmod(0o755)
        for name in (secret, trap / "link", root_daemon.data / "agent"):
            job_id = attacker.submit_job(
                jobName="attack",
                jobQueue="windfall",
                jobDefinition="windfall-run",
                containerOverrides={"command": ["cat", "secret.txt", "agent.log"]},
                parameters={"windfall-dir": str(name)},
            )["jobId"]
            (job,) = root_daemon.wait_for([job_id])
            assert job["status"] == "FAILED"
            assert f'chdir "{name}": permission denied' in job["container"]["reason"]
            assert said(root_daemon, job_id) == []
    finally:
        shutil.rmtree(trap)
