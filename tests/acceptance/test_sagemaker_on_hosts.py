"""SageMaker training on hosts that share no disk with the daemon: all data go through its S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.test_sagemaker_gang import SPOT, Gang
from tests.acceptance.test_sagemaker_training import BUCKET, a_request, packed_script, spot
from tests.conftest import require_part
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.waiting import wait_until
from windfall.daemon.seaweedfs import S3ServerError, find_program

#: One GPU: no two of them fit on one host, and none on the daemon's.
INSTANCE = {"InstanceType": "ml.g4dn.xlarge", "VolumeSizeInGB": 1}


class TrainingOnHosts(Gang):
    """Training jobs on three hosts with a GPU each."""

    def __init__(self, windfall: RunningWindfall, hosts: HostsInABox) -> None:
        super().__init__(windfall)
        self.hosts = hosts

    def busy(self) -> list[int]:
        """The hosts on which something runs."""
        listed = json.loads(self.windfall.windfall("hosts", "list", "--json").stdout)["hosts"]
        return [number for number, host in enumerate(listed) if host["running"]]

    def begin(self, name: str, hyperparameters: dict[str, Any], count: int, **changes: Any) -> None:
        self.start(name, hyperparameters, ResourceConfig={**INSTANCE, "InstanceCount": count}, **changes)

    def lose(self) -> int:
        """Switch off one of the hosts on which something runs."""
        lost = self.busy()[-1]
        self.hosts.kill(lost)
        return lost

    def bring_back(self, lost: int) -> None:
        """Switch a host on again, and wait until it takes jobs."""
        self.hosts.boot(lost)
        wait_until(
            lambda: (
                json.loads(self.windfall.windfall("hosts", "list", "--json").stdout)["hosts"][lost][
                    "standing"
                ]
                == "ready"
            ),
            "the host is back",
            deadline_s=120,
        )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingOnHosts]:
    require_hosts()
    try:
        find_program()
    except S3ServerError as error:
        require_part(False, str(error))
    with HostsInABox(3, tmp_path_factory.mktemp("hosts")) as hosts:
        running = RunningWindfall("--gpus", "none", "--s3", "--s3-port", "0", "--s3-listen", hosts.gateway)
        running.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        running.extra_environment["WINDFALL_LOST_AFTER_S"] = "20"
        running.extra_environment["WINDFALL_TRAINING_ENGINE"] = "hosts"
        try:
            running.up()
            running.windfall(
                "hosts",
                "add",
                "box0",
                "box1",
                "box2",
                "--gpus",
                "simulated:1",
                "--labels",
                "type=g4dn.xlarge",
            )
            yield TrainingOnHosts(running, hosts)
        finally:
            running.close()


def test_a_gang_that_loses_a_host_goes_on_with_everybodys_checkpoints(trained: TrainingOnHosts) -> None:
    prefix, files = "checkpoints/apart", ["algo-1.txt", "algo-2.txt"]
    trained.begin("apart", {"wait": 1}, 2, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{prefix}"}, **SPOT)
    wait_until(lambda: trained.keys(prefix) == files, "all files are in the bucket", 120)
    assert len(trained.busy()) == 2
    lost = trained.lose()
    wait_until(lambda: len(trained.log("apart")) >= 4, "both have begun again", 180)
    ended = trained.ends("apart", "Completed")
    back = [line for line in trained.log("apart") if f"restored {files}" in line]
    assert sorted(line.split()[0] for line in back) == ["algo-1", "algo-2"]
    # 1 + 2 + 3 + 4, in two parts that met over the hosts' own addresses.
    model = trained.archive(ended["ModelArtifacts"]["S3ModelArtifacts"])
    assert model == {
        f"{folder}algo-{number}.txt": f"{words}algo-{number}".encode()
        for folder, words in (("", "10 of "), ("common/", ""))
        for number in (1, 2)
    }
    trained.bring_back(lost)


def test_a_training_that_loses_its_host_goes_on_where_it_was(trained: TrainingOnHosts) -> None:
    trained.s3.put_object(Bucket=BUCKET, Key="code/sourcedir.tar.gz", Body=packed_script())
    request = a_request("single", {"steps": 60, "pause": 0.2}, **spot("single"))
    request["ResourceConfig"] = {**INSTANCE, "InstanceCount": 1}
    trained.sagemaker.create_training_job(**request)
    wait_until(lambda: trained.keys("checkpoints/single") == ["state.json"], "a checkpoint is there", 120)
    trained.lose()
    wait_until(lambda: len(trained.streams("single")) == 2, "it has begun again", 180)
    ended = trained.ends("single", "Completed")
    model = json.loads(trained.archive(ended["ModelArtifacts"]["S3ModelArtifacts"])["model.json"])
    assert model["done"] == list(range(60))
    first, second = model["starts"]
    assert (first, second > 0) == (0, True)
    assert ended["SecondaryStatusTransitions"][-1]["Status"] == "Completed"
