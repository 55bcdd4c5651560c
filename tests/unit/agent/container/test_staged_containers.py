"""What is staged for a container: it sees its files where it expects them, and what it leaves is saved."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.acceptance.test_courier_rights import companions, status
from tests.conftest import require_part
from tests.docker_engine import RunningEngine
from tests.unit.agent.container.house import ContainerHouse, over_both
from tests.waiting import wait_until
from windfall.agent.messages import Exited, Forget, Interrupt, Progressed, Refused
from windfall.jobs.staging import (
    WORKING_DIRECTORY,
    Channel,
    Checkpoints,
    GitSource,
    Output,
    Staging,
    TextFile,
)

FENCE = 1_700_000_000_000


def kept(house: ContainerHouse, path: str = "/opt/ml/checkpoints", **fields: object) -> Staging:
    return Staging(checkpoints=Checkpoints(f"file://{house.root}/store/job", path), **fields)  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize("user", [None, "1000:1000", "worker"])
@pytest.mark.parametrize("path", ["/opt/ml/checkpoints", "/kept/here"])
def test_what_a_container_wrote_is_back_in_the_next_one(house: ContainerHouse, user: str | None, path: str):
    daemon = house.daemon()
    script = "cat $WINDFALL_CHECKPOINT_DIR/* 2>/dev/null; echo step $0 > $WINDFALL_CHECKPOINT_DIR/$0; mkdir /opt/ml/x"
    for number in (1, 2):
        token = f"t{number}"
        staging = kept(house, path)
        daemon.send(
            house.contain(
                token, "sh", "-c", script, str(number), staging=staging, fence=FENCE + number, user=user
            )
        )
        exited = daemon.exited(token)
        assert (exited.exit_code, exited.failure) == (0, None), house.log(token)
        assert exited.checkpoint is not None
    assert house.log("t1") == ""
    assert house.log("t2") == "step 1\n"
    daemon.send(Forget(["t1", "t2"]))
    attempts = house.root / "attempts"
    wait_until(lambda: not list(attempts.glob("*.ml")), "what root left in the container is removed")


@over_both
def test_files_are_seen_outputs_are_taken_and_the_training_host_has_its_name(house: ContainerHouse):
    staging = Staging(
        files=(TextFile("/opt/ml/input/config/hyperparameters.json", '{"a": "1"}'),),
        directories=("/opt/ml/model",),
        outputs=(Output("/opt/ml/model", f"file://{house.root}/out/model.tar.gz"),),
        wants_ml_root=True,
    )
    daemon = house.daemon()
    script = (
        "cat /opt/ml/input/config/hyperparameters.json; echo; echo w > /opt/ml/model/weights; cat /etc/hosts"
    )
    daemon.send(house.contain_shell("a", script, staging=staging, fence=FENCE))
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.failure) == (0, None)
    assert house.log("a").startswith('{"a": "1"}')
    assert any(line.split() == ["127.0.0.1", "algo-1"] for line in house.log("a").splitlines())
    assert (house.root / "out" / "model.tar.gz").stat().st_size > 0


def test_a_device_that_root_of_a_container_makes_is_not_opened_on_the_host(house: ContainerHouse):
    """A disk's first bytes would be told as the failure of the job."""
    staging = Staging(
        directories=("/opt/ml/output", "/opt/ml/model"),
        outputs=(
            Output("/opt/ml/model", f"file://{house.root}/out/model", archived=False, when_failed=True),
        ),
        failure_path="/opt/ml/output/failure",
        wants_ml_root=True,
    )
    script = (
        "mknod /opt/ml/output/failure c 1 5 && mknod /opt/ml/model/zeros c 1 5 && echo made;"
        " echo x > /opt/ml/model/x; exit 3"
    )
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", script, staging=staging, fence=FENCE))
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.failure, house.log("a")) == (3, None, "made\n")
    assert [path.name for path in (house.root / "out" / "model").iterdir()] == ["x"]


def test_a_link_of_a_container_leads_its_feeder_nowhere(house: ContainerHouse):
    """The feeder of a container is root, and what it tells has words of the job's own."""
    precious = house.root / "precious"
    precious.write_text("as it was")
    manifest = house.root / "store" / "manifest"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text('{"x-ref": "file:///\\n* * * * * root id\\n"}')
    augmented = Channel("c", f"file://{manifest}", "Pipe", "AugmentedManifestFile", attributes=("x-ref",))
    staging = Staging(channels=(augmented,), wants_ml_root=True)
    script = (
        f"ln -s {precious} $(dirname $WINDFALL_PROGRESS_FILE)/feeder-failed && echo linked;"
        " cat /opt/ml/input/data/c_0"
    )
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", script, staging=staging, fence=FENCE))
    exited = daemon.exited("a")
    assert "a manifest may name s3:// objects alone" in str(exited.failure)
    assert (house.log("a"), precious.read_text()) == ("linked\n", "as it was")


@pytest.mark.parametrize("user", [None, "1000:1000"])
def test_the_courier_of_a_container_is_the_jobs_user_and_may_only_read(
    house: ContainerHouse, user: str | None
):
    require_part(os.geteuid() == 0, "only the courier of root's agent is another user")
    precious = house.root / "precious"
    precious.write_text("of root alone")
    precious.chmod(0o600)
    script = (
        f"umask 077; cd $WINDFALL_CHECKPOINT_DIR; echo w > w; ln -s {precious} link; mkdir d; echo x > d/x;"
        " echo ready; exec 3>half; echo 1 >&3; sleep 600"
    )
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", script, staging=kept(house), fence=FENCE, user=user))
    daemon.until(lambda message: isinstance(message, Progressed) and message.checkpoint is not None)
    (courier,) = companions(daemon.inventory.agent_pid, "windfall.agent.courier")
    fields = status(courier)
    nobody = pwd.getpwnam("nobody")
    assert fields["Uid"].split() == [str(nobody.pw_uid)] * 4
    assert fields["Gid"].split() == [str(nobody.pw_gid)] * 4
    rights = {name: int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    reads = 1 << 2  # CAP_DAC_READ_SEARCH
    assert rights == {"CapInh": 0, "CapPrm": reads, "CapEff": reads, "CapBnd": 0, "CapAmb": 0}
    assert fields["NoNewPrivs"] == "1"
    house.stop_now("a")
    daemon.exited("a")
    listing = "cd $WINDFALL_CHECKPOINT_DIR; find . -type f | sort; cat w d/x"
    daemon.send(house.contain_shell("b", listing, staging=kept(house), fence=FENCE + 1, user=user))
    daemon.exited("b")
    assert house.log("b") in ("./d/x\n./half\n./w\nw\nx\n", "./d/x\n./w\nw\nx\n")
    stored = [path.read_bytes() for path in (house.root / "store").rglob("*") if path.is_file()]
    assert not any(b"of root alone" in content for content in stored)


def test_a_file_that_a_container_still_writes_is_not_taken_for_whole(house: ContainerHouse):
    """Only root sees what other users have open, so the courier asks."""
    script = (
        "cd $WINDFALL_CHECKPOINT_DIR; exec 3>half; echo begun >&3; echo whole > whole; echo ready;"
        " while [ ! -e /opt/ml/go ]; do sleep 0.05; done"
    )
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", script, staging=kept(house), fence=FENCE, user="1000:1000"))
    told = daemon.until(lambda message: isinstance(message, Progressed) and message.checkpoint is not None)
    assert isinstance(told, Progressed)
    assert told.checkpoint is not None
    assert told.checkpoint.bytes == len("whole\n"), "the one that is whole"
    (house.root / "attempts" / "a.ml" / "go").touch()
    assert daemon.exited("a").exit_code == 0


@pytest.mark.parametrize("user", [None, "1000:1000"])
def test_pipes_reach_a_container_epoch_after_epoch(house: ContainerHouse, user: str | None):
    (house.root / "store").mkdir()
    (house.root / "store" / "data").write_text("rows\n")
    channel = Channel("c", f"file://{house.root}/store/data", "Pipe")
    script = "for n in 0 1 2; do cat /opt/ml/input/data/c_$n; done"
    daemon = house.daemon()
    staging = Staging(channels=(channel,), wants_ml_root=True)
    daemon.send(house.contain_shell("a", script, staging=staging, fence=FENCE, user=user))
    exited = daemon.exited("a")
    assert (exited.exit_code, house.log("a")) == (0, "rows\n" * 3)


def test_files_that_could_not_be_kept_refuse_the_attempt(house: ContainerHouse):
    output = Output(WORKING_DIRECTORY, f"file://{house.root}/out/kept", archived=False, patterns=("*.pt",))
    daemon = house.daemon()
    daemon.send(
        house.contain_shell("a", "echo w > model.pt", staging=Staging(outputs=(output,)), fence=FENCE)
    )
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert "windfall:keep is about a job's private directory" in result.reason


def test_a_notice_is_seen_as_a_file_and_by_the_metadata_endpoint(house: ContainerHouse):
    daemon = house.daemon()
    script = (
        "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT; echo ready;"
        " while [ ! -e $WINDFALL_NOTICE_FILE ]; do sleep 0.05; done; echo noticed;"
        " echo last > $WINDFALL_CHECKPOINT_DIR/state; exit 9"
    )
    daemon.send(house.contain_shell("a", script, staging=kept(house), fence=FENCE))
    daemon.started("a")
    log = house.logs / "a.log"
    wait_until(lambda: "ready" in log.read_text(), "the container is ready")
    daemon.send(Interrupt("a", time.time_ns() // 1_000_000 + 120_000))
    exited = daemon.exited("a")
    assert exited.exit_code == 9
    assert exited.checkpoint is not None
    endpoint, *said = house.log("a").splitlines()
    assert endpoint.startswith("http://127.0.0.1:")
    assert said == ["ready", "noticed"]
    assert "host network" in exited.isolation


def test_an_interruption_kills_and_still_saves_what_was_committed(house: ContainerHouse):
    daemon = house.daemon()
    script = "trap '' TERM; echo saved > $WINDFALL_CHECKPOINT_DIR/state; echo ready; while true; do sleep 0.05; done"
    daemon.send(house.contain_shell("a", script, staging=kept(house), fence=FENCE))
    daemon.started("a")
    log = house.logs / "a.log"
    wait_until(lambda: "ready" in log.read_text(), "the container is ready")
    daemon.send(Interrupt("a", time.time_ns() // 1_000_000 + 3_000))
    exited = daemon.exited("a")
    assert isinstance(exited, Exited)
    assert exited.exit_code == 137
    daemon.send(
        house.contain_shell("b", "cat $WINDFALL_CHECKPOINT_DIR/state", staging=kept(house), fence=FENCE + 1)
    )
    assert daemon.exited("b").exit_code == 0
    assert house.log("b") == "saved\n"


def test_a_checkout_is_the_working_directory(house: ContainerHouse, tmp_path: Path):
    require_part(shutil.which("git") is not None, "git is not installed")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "train.sh").write_text("echo trained in $(pwd)\n")
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "x"),
    ):
        subprocess.run(["git", "-C", str(repository), *words], check=True)
    daemon = house.daemon()
    staging = Staging(git=GitSource(f"file://{repository}", "HEAD"))
    daemon.send(house.contain("a", "sh", "train.sh", staging=staging, fence=FENCE))
    exited = daemon.exited("a")
    assert exited.exit_code == 0, house.log("a")
    assert house.log("a") == "trained in /workspace\n"


def test_a_container_that_cannot_be_had_takes_its_staged_files_with_it(
    house: ContainerHouse, engine: RunningEngine
):
    daemon = house.daemon()
    daemon.send(house.contain("a", "no-such-program", staging=kept(house), fence=FENCE))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert result.reason.startswith("CannotStartContainerError: ")
    daemon.send(Forget(["a"]))
    wait_until(lambda: not (house.root / "attempts" / "a.ml").exists(), "its directory is gone")
    assert not engine.has(house.name("a"))
