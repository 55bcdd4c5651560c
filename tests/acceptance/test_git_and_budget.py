"""Code from a repository at an exact commit, and a budget that first saves and then stops."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import a_definition, a_queue


@pytest.fixture
def repository(require) -> Iterator[Path]:
    """A repository that anybody on this host may read, with two commits and a tag on the first."""
    require(shutil.which("git") is not None, "git is not installed")
    place = Path(tempfile.mkdtemp(prefix="windfall-git-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        for command in (
            "git init -q -b main .",
            "echo 'echo first' > run.sh && git add . && git commit -qm first && git tag v1",
            "echo 'echo second' > run.sh && git commit -qam second",
        ):
            subprocess.run(["sh", "-c", f"umask 022; {command}"], cwd=place, check=True, env=_identity())
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _identity() -> dict[str, str]:
    names = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    return {**os.environ, **names}


def _commit(repository: Path, revision: str) -> str:
    answer = subprocess.run(
        ["git", "rev-parse", revision], cwd=repository, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def test_a_job_runs_the_code_of_a_revision_and_the_commit_is_recorded(windfall, repository):
    ran = windfall.windfall(
        "run", "--name", "at-v1", "--git", f"file://{repository}@v1", "--", "sh", "run.sh"
    )
    assert ran.stdout == "first\n"
    assert _commit(repository, "v1")[:12] in windfall.windfall("describe", "at-v1").stdout
    ran = windfall.windfall("run", "--git", f"file://{repository}@main", "--", "sh", "run.sh")
    assert ran.stdout == "second\n"


@pytest.mark.parametrize(
    "source", ["file:///no/such/repository@main", "ext::sh -c id@main", "--upload-pack=id@x"]
)
def test_code_that_cannot_be_had_is_told_and_runs_nothing(windfall, source):
    ran = windfall.windfall("run", f"--git={source}", "--", "true", check=False)
    assert ran.returncode == 1
    assert "git" in ran.stderr.lower(), ran.stderr


def test_a_job_that_has_spent_its_budget_saves_and_is_stopped(fresh):
    # A vCPU costs a dollar a second here.
    running = fresh("--vcpus", "4", "--memory-mib", "4096", "--notice-s", "20")
    running.stop()
    running.extra_environment = {"WINDFALL_USD_VCPU_HOUR": "3600"}
    batch = a_queue(running.up())
    job = "trap 'echo saved > $WINDFALL_CHECKPOINT_DIR/state; exit 143' TERM; while :; do sleep 0.1; done"
    a_definition(batch, "dear", "sh", "-c", job)
    tags = {"windfall:checkpoint": "true", "windfall:budget-usd": "2"}
    job_id = batch.submit_job(jobName="dear", jobQueue="q", jobDefinition="dear", tags=tags)["jobId"]
    (ended,) = running.wait_for([job_id])
    assert ended["status"] == "FAILED"
    assert "Budget of $2" in ended["statusReason"]
    described = running.windfall("describe", job_id).stdout
    assert "state (6 B)" in described, f"what it saved is kept: {described}"


def test_a_budget_that_is_no_amount_is_refused(windfall):
    batch = a_queue(windfall, "budgets")
    a_definition(batch, "true", "true")
    with pytest.raises(batch.exceptions.ClientException, match="windfall:budget-usd"):
        batch.submit_job(
            jobName="x", jobQueue="budgets", jobDefinition="true", tags={"windfall:budget-usd": "much"}
        )
