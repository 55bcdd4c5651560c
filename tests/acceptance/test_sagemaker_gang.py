"""Training on several instances: real processes that talk by name, one model of all, and spot that takes all along."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.test_sagemaker_training import BUCKET, Training
from tests.conftest import require_part
from tests.waiting import wait_until
from windfall.daemon.seaweedfs import S3ServerError, find_program

SCRIPT = Path(__file__).with_name("sagemaker_gang_script.py")
ROOT = Path(__file__).parents[2]
HOSTS = ["algo-1", "algo-2", "algo-3"]
SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
}


class Gang(Training):
    """Training jobs of three instances, whose data are three objects."""

    def __init__(self, windfall: RunningWindfall) -> None:
        super().__init__(windfall)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(SCRIPT, "train.py")
        self.s3.put_object(Bucket=BUCKET, Key="code/sourcedir.tar.gz", Body=packed.getvalue())
        self.s3.put_object(Bucket=BUCKET, Key="data/c.txt", Body=b"4\n")

    def start(self, name: str, hyperparameters: dict[str, Any], **changes: Any) -> None:
        request = self.request(name, hyperparameters, **changes)
        request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3DataDistributionType"] = (
            "ShardedByS3Key"
        )
        if "ResourceConfig" not in changes:
            request["ResourceConfig"]["InstanceCount"] = 3
        self.sagemaker.create_training_job(**request)

    def keys(self, prefix: str) -> list[str]:
        """The plain names below a prefix."""
        found = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
        names = (one["Key"].removeprefix(f"{prefix}/") for one in found)
        return sorted(name for name in names if not name.startswith(".windfall/"))

    def streams(self, name: str) -> list[str]:
        """The hosts that have log streams, one for each start."""
        found = self.logs.describe_log_streams(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/"
        )["logStreams"]
        return sorted(one["logStreamName"].partition("/")[2].rpartition("-")[0] for one in found)


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    try:
        find_program()
    except S3ServerError as error:
        require_part(False, str(error))
    running = RunningWindfall("--vcpus", "4", "--memory-mib", "8192", "--s3", "--s3-port", "0")
    try:
        yield Gang(running.up())
    finally:
        running.close()


def test_hosts_talk_by_name_and_leave_one_model(gang: Gang) -> None:
    groups = [
        {"InstanceGroupName": "leader", "InstanceType": "ml.m5.large", "InstanceCount": 1},
        {"InstanceGroupName": "workers", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
    ]
    gang.start("summing", {}, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1})
    ended = gang.ends("summing", "Completed")

    model = gang.archive(ended["ModelArtifacts"]["S3ModelArtifacts"])
    assert model == {f"{host}.txt": f"10 of {host}".encode() for host in HOSTS} | {
        f"common/{host}.txt": host.encode() for host in HOSTS
    }
    assert gang.streams("summing") == HOSTS
    # Each object went to one host.
    said = "\n".join(gang.log("summing"))
    assert [said.count(name) for name in ("a.txt", "b.txt", "c.txt")] == [1, 1, 1]
    assert [metric["Value"] for metric in ended["FinalMetricDataList"]] == [10.0]
    # Three instances do not fit on four vCPUs as they are.
    assert any("share this host" in one["StatusMessage"] for one in ended["SecondaryStatusTransitions"])
    assert ended["ResourceConfig"]["InstanceGroups"] == groups


@pytest.mark.parametrize("sandboxed", [True, False])
def test_hosts_find_one_another_without_bubblewrap(sandboxed: bool) -> None:
    """With namespaces by their names; where there are none either, by their addresses."""
    require_part(os.geteuid() == 0, "only root can hide programs from a daemon")
    require_part(shutil.which("unshare") is not None, "unshare is not installed")
    hidden = [shutil.which("bwrap"), None if sandboxed else str(ROOT / "src/windfall/agent/namespaces.py")]
    hide = " && ".join([f"mount --bind /dev/null {path}" for path in hidden if path] or ["true"])
    running = RunningWindfall("--vcpus", "4", "--memory-mib", "8192", "--s3", "--s3-port", "0")
    running.command = ["unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "hidden", *running.command]
    try:
        gang = Gang(running.up())
        gang.start("summing", {})
        ended = gang.ends("summing", "Completed")
        assert [metric["Value"] for metric in ended["FinalMetricDataList"]] == [10.0]
        assert gang.streams("summing") == HOSTS
        if sandboxed:
            model = gang.archive(ended["ModelArtifacts"]["S3ModelArtifacts"])
            assert {f"{host}.txt" for host in HOSTS} <= model.keys()
    finally:
        running.close()


def test_a_lost_host_interrupts_all_and_all_resume_with_everybodys_checkpoints(gang: Gang) -> None:
    prefix = "checkpoints/spot"
    gang.start("spot", {"wait": 1}, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{prefix}"}, **SPOT)
    wait_until(
        lambda: gang.keys(prefix) == [f"{host}.txt" for host in HOSTS], "all files are in the bucket", 60
    )
    gang.windfall.windfall("interrupt", "training-spot#1", "--notice", "10")
    ended = gang.ends("spot", "Completed")

    statuses = [one["Status"] for one in ended["SecondaryStatusTransitions"]]
    assert statuses.count("Interrupted") == 1
    assert statuses[-2:] == ["Uploading", "Completed"]
    everything = str([f"{host}.txt" for host in HOSTS])
    back = [line for line in gang.log("spot") if f"restored {everything}" in line]
    assert sorted(line.split()[0] for line in back) == HOSTS
    assert gang.streams("spot") == sorted(2 * HOSTS)
    # Nobody has deleted what another one wrote.
    assert gang.keys(prefix) == [f"{host}.txt" for host in HOSTS]
    assert len(gang.archive(ended["ModelArtifacts"]["S3ModelArtifacts"])) == 6


def test_one_host_that_fails_fails_the_job_and_its_name_can_be_used_again(gang: Gang) -> None:
    gang.start("failing", {"fails": "algo-2"})
    ended = gang.ends("failing", "Failed")
    assert ended["FailureReason"] == "AlgorithmError: algo-2 has had enough, exit code: 3"
    gang.sagemaker.delete_training_job(TrainingJobName="failing")
    gang.start("failing", {})
    gang.ends("failing", "Completed")


#: What each process of a distributed training says; they meet at the first host, by its name.
RANKS = """
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
first = (os.environ.get("PET_MASTER_ADDR", "127.0.0.1"), int(os.environ.get("PET_MASTER_PORT", "0")))
if rank == 0 and size > 1:
    with socket.create_server(first) as server:
        for _ in range(size - 1):
            server.accept()[0].close()
while rank:
    try:
        socket.create_connection(first, timeout=120).close()
        break
    except ConnectionRefusedError:
        pass
print(f"rank {rank} of {size} with {os.environ['SM_HP_EPOCHS']} epochs")
"""


@pytest.mark.parametrize("count", [1, 3])
def test_a_distributed_training_is_launched_on_every_host(gang: Gang, count: int) -> None:
    packed = io.BytesIO()
    files = {
        "train.py": RANKS.encode(),
        "torch/__init__.py": b"",
        "torch/distributed/__init__.py": b"",
        "torch/distributed/run.py": Path(__file__).with_name("torchrun_stub.py").read_bytes(),
    }
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    gang.s3.put_object(Bucket=BUCKET, Key="code/ranks.tar.gz", Body=packed.getvalue())
    name = f"distributed-{count}"
    hyperparameters = {
        "sagemaker_torch_distributed_enabled": True,
        "sagemaker_instance_type": "ml.m5.large",
        "sagemaker_submit_directory": f"s3://{BUCKET}/code/ranks.tar.gz",
        "epochs": 2,
    }
    groups = {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1}
    gang.start(name, hyperparameters, ResourceConfig=groups)
    gang.ends(name, "Completed")
    said = [line for line in gang.log(name) if line.startswith("rank ")]
    assert sorted(said) == [f"rank {rank} of {count} with 2 epochs" for rank in range(count)]


def test_a_distribution_that_only_an_image_has_fails_with_what_to_do(gang: Gang) -> None:
    gang.start("smddp", {"sagemaker_distributed_dataparallel_enabled": True})
    ended = gang.ends("smddp", "Failed")
    assert ended["FailureReason"].startswith("ClientError: distribution smdistributed dataparallel needs")
    assert "run it in a container of its image" in ended["FailureReason"]


def test_stopping_stops_all_hosts(gang: Gang) -> None:
    gang.start("stopped", {"fails": "nobody"})
    gang.reaches("stopped", "Training")
    gang.sagemaker.stop_training_job(TrainingJobName="stopped")
    ended = gang.ends("stopped", "Stopped")
    assert ended["SecondaryStatus"] == "Stopped"
    assert ended["TrainingTimeInSeconds"] == ended["BillableTimeInSeconds"]
