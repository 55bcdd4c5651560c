"""What a job has stored is fetched through the daemon by `windfall get`, by its own tenant and by nobody else.

Run against a daemon of the user who runs the tests, root where it can be, and against one of an ordinary user.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.s3_jobs import require_s3_server
from tests.acceptance.test_keys import a_key, client_with
from tests.acceptance.test_storage_rights import a_training, as_an_ordinary_user
from tests.waiting import wait_until

SAVE = (
    'cd "$WINDFALL_CHECKPOINT_DIR" && mkdir -p step && echo "$1 $AWS_BATCH_JOB_ARRAY_INDEX" > step/model'
    " && chmod 4755 step/model"
)


class House:
    """A daemon with two tenants, and commands as their people type them."""

    def __init__(self, running: RunningWindfall) -> None:
        self.running = running
        admin = a_queue(running)
        a_definition(admin, "shell", "sh", "-c", "true")
        self.keys = {
            "vision": a_key(running, "--role", "submit", "--tenant", "vision"),
            "speech": a_key(running, "--role", "submit", "--tenant", "speech"),
            "default": a_key(running, "--role", "submit"),
            "reader": a_key(running, "--role", "read", "--tenant", "vision"),
        }

    def submit(self, tenant: str, script: str, **more: Any) -> str:
        batch = client_with(self.running, self.keys[tenant])
        command = {"command": ["sh", "-c", script, "sh", "saved"]}
        asked = {"jobName": "train", "jobQueue": "q", "jobDefinition": "shell", "containerOverrides": command}
        return str(batch.submit_job(**asked, **more)["jobId"])

    def typed(self, tenant: str, *arguments: str) -> Any:
        """Run a command with a tenant's key, in this process's directory for the daemon's user."""
        self.running.extra_environment |= self.keys[tenant]
        try:
            return self.running.windfall(*arguments, check=False)
        finally:
            for name in self.keys[tenant]:
                self.running.extra_environment.pop(name)


@pytest.fixture(scope="module", params=["own", "ordinary"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    running = RunningWindfall("--vcpus", "8", "--memory-mib", "8192", "--gpus", "none")
    try:
        if request.param == "ordinary":
            as_an_ordinary_user(running)
        running.root.chmod(0o777)
        yield House(running.up())
    finally:
        running.close()


@pytest.mark.parametrize("tenant", ["default", "vision"])
def test_a_finished_job_gives_its_checkpoint_and_log(house, tenant):
    job = house.submit(tenant, f"{SAVE}; echo hello", tags={"windfall:checkpoint": "true"})
    house.running.wait_for([job])
    place = house.running.root / f"got-{tenant}"
    listed = house.typed(tenant, "checkpoints", job)
    assert "complete" in listed.stdout, listed.stderr
    done = house.typed(tenant, "get", job, str(place))
    assert done.returncode == 0, done.stderr
    assert (place / "checkpoint" / "step" / "model").read_text() == "saved \n"
    assert (place / "checkpoint" / "step" / "model").stat().st_mode & 0o7777 == 0o755
    assert (place / "logs" / "attempt-1.log").read_text() == "hello\n"
    assert sorted(path.name for path in place.iterdir()) == ["checkpoint", "logs"]


def test_a_job_that_runs_gives_what_it_has_saved(house):
    job = house.submit("default", f"{SAVE}; exec sleep 600", tags={"windfall:checkpoint": "true"})
    place = house.running.root / "while-running"

    def saved() -> bool:
        return "complete" in house.typed("default", "checkpoints", job).stdout

    wait_until(saved, "a checkpoint of a running job")
    done = house.typed("default", "get", job, str(place), "--only", "checkpoint")
    house.typed("default", "terminate", job)
    assert done.returncode == 0, done.stderr
    assert (place / "checkpoint" / "step" / "model").read_text() == "saved \n"
    house.running.wait_for([job])


def test_an_array_gives_what_each_child_has(house):
    job = house.submit("vision", SAVE, arrayProperties={"size": 2}, tags={"windfall:checkpoint": "true"})
    house.running.wait_for([job])
    place = house.running.root / "array"
    assert house.typed("vision", "get", job, str(place)).returncode == 0
    for number in range(2):
        assert (place / str(number) / "checkpoint" / "step" / "model").read_text() == f"saved {number}\n"
    child = house.running.root / "child"
    assert house.typed("vision", "get", f"{job}:1", str(child)).returncode == 0
    assert (child / "checkpoint" / "step" / "model").read_text() == "saved 1\n"


def test_another_tenant_finds_no_such_job(house):
    job = house.submit("vision", SAVE, tags={"windfall:checkpoint": "true"})
    house.running.wait_for([job])
    for command in (["get", job, str(house.running.root / "stolen")], ["checkpoints", job]):
        for tenant in ("speech", "default"):
            refused = house.typed(tenant, *command)
            assert refused.returncode == 1
            assert f"There is no job {job}" in refused.stderr
    assert not (house.running.root / "stolen").exists()
    assert house.typed("reader", "checkpoints", job).returncode == 0, "its own tenant may read"


def test_a_link_in_the_store_leads_nowhere(house):
    """Jobs of an ordinary user's daemon can write to the store; a link there is not followed."""
    job = house.submit("default", SAVE, tags={"windfall:checkpoint": "true"})
    house.running.wait_for([job])
    prefix = house.running.data / "objects" / "checkpoints" / job / ".windfall"
    [piece] = [path for path in (prefix / "chunks").rglob("*") if path.is_file()]
    secret = house.running.root / "secret"
    secret.write_text("saved \n")
    piece.unlink()
    piece.symlink_to(secret)
    refused = house.typed("default", "get", job, str(house.running.root / "linked"))
    assert refused.returncode == 1
    assert not (house.running.root / "linked" / "checkpoint").exists()


def test_storage_that_is_away_does_not_stop_the_api(house):
    job = house.submit("default", SAVE, tags={"windfall:checkpoint": "true"})
    house.running.wait_for([job])
    objects = house.running.data / "objects"
    objects.rename(objects.with_name("away"))
    try:
        refused = house.typed("default", "checkpoints", job)
        assert refused.returncode == 1
        assert "is not there, and with it all that was saved; mount it again" in refused.stderr
        assert house.typed("default", "status").returncode == 0
    finally:
        objects.with_name("away").rename(objects)
    assert house.typed("default", "checkpoints", job).returncode == 0


def test_a_training_gives_its_model_from_a_real_s3(tmp_path: Path):
    require_s3_server()
    running = RunningWindfall("--gpus", "none", "--s3", "--s3-port", "0")
    try:
        running.up()
        sagemaker = running.client("sagemaker")
        save = 'cd /opt/ml/model || cd ../model; echo weights > w; echo step > "$WINDFALL_CHECKPOINT_DIR/c"'
        request = a_training("run-1", OutputDataConfig={"S3OutputPath": "s3://windfall/models"})
        request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["sh", "-c", f"{save}; echo trained"]
        request["CheckpointConfig"] = {"S3Uri": "s3://windfall/checkpoints/run-1"}
        sagemaker.create_training_job(**request)

        def ended() -> bool:
            found = sagemaker.describe_training_job(TrainingJobName="run-1")
            assert found["TrainingJobStatus"] != "Failed", found.get("FailureReason")
            return bool(found["TrainingJobStatus"] == "Completed")

        wait_until(ended, "the training to end")
        place = tmp_path / "got"
        done = running.windfall("get", "run-1", str(place))
        assert "model.tar.gz" in done.stdout
        with tarfile.open(place / "outputs" / "model.tar.gz") as model:
            assert "w" in [Path(name).name for name in model.getnames()]
        assert (place / "checkpoint" / "c").read_text() == "step\n"
        assert "trained" in (place / "logs" / "attempt-1.log").read_text()
    finally:
        running.close()
