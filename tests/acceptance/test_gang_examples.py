"""The examples of multi-node jobs with torchrun and MPI, each over two hosts that share nothing but a network."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_queue
from tests.conftest import require_part
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.tidy.tree import ROOT
from tests.waiting import wait_until

EXAMPLES = ROOT / "examples" / "multi-node"
NEEDS = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "1024"}, {"type": "GPU", "value": "1"}]


class Gangs:
    """Two hosts with a GPU each, and jobs of two nodes that run programs of the examples."""

    def __init__(self, hosts: HostsInABox, daemon: RunningWindfall) -> None:
        self.hosts, self.daemon, self.batch = hosts, daemon, a_queue(daemon)

    def ends(self, name: str, command: list[str], environment: dict[str, str], **options: Any) -> str:
        """Run a job of two nodes to its good end; the answer is what all its nodes printed."""
        container = {
            "image": "windfall/host",
            "command": command,
            "resourceRequirements": NEEDS,
            "environment": [{"name": key, "value": value} for key, value in environment.items()],
            **options,
        }
        ranges = [{"targetNodes": "0:", "container": container}]
        properties = {"numNodes": 2, "mainNode": 0, "nodeRangeProperties": ranges}
        self.batch.register_job_definition(
            jobDefinitionName=name, type="multinode", nodeProperties=properties
        )
        job = self.batch.submit_job(jobName=name, jobQueue="q", jobDefinition=name)["jobId"]

        def over() -> dict[str, Any] | None:
            job_now = self.batch.describe_jobs(jobs=[job])["jobs"][0]
            return job_now if job_now["status"] in ("SUCCEEDED", "FAILED") else None

        ended = wait_until(over, f"{name} has ended", deadline_s=150)
        said = "".join(self.daemon.windfall("logs", f"{job}#{node}", check=False).stdout for node in (0, 1))
        assert ended["status"] == "SUCCEEDED", said
        return said


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gangs]:
    require_hosts()
    see = dict.fromkeys((EXAMPLES, Path(sys.prefix), Path(sys.base_prefix)))
    place = tmp_path_factory.mktemp("hosts")
    with HostsInABox(2, place, see=[path for path in see if path != Path("/usr")]) as hosts:
        daemon = RunningWindfall("--gpus", "none", "--job-user", "root")
        daemon.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        daemon.up()
        try:
            daemon.windfall("hosts", "add", "box0", "box1", "--gpus", "simulated:1")
            yield Gangs(hosts, daemon)
        finally:
            daemon.close()


def test_torchrun_trains_one_model_on_two_hosts(gangs: Gangs) -> None:
    require_part(importlib.util.find_spec("torch") is not None, "torch is not installed")
    command = [str(EXAMPLES / "torchrun.sh"), str(EXAMPLES / "ddp.py")]
    said = gangs.ends("ddp", command, {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"})
    learned = {}
    for host in (0, 1):
        words = f"rank {host} of 2 at {gangs.hosts.address(host)}: learned "
        other = f"rank {host} of 2 at {gangs.hosts.address(1 - host)}: learned "
        line = next(line for line in said.splitlines() if words in line or other in line)
        learned[host] = line.rpartition("learned ")[2]
    assert learned[0] == learned[1], "each had other data, and both have one model"
    assert {address for address in map(gangs.hosts.address, (0, 1)) if address in said} == {
        gangs.hosts.address(0),
        gangs.hosts.address(1),
    }


def test_mpi_adds_up_on_two_hosts(gangs: Gangs, tmp_path: Path) -> None:
    require_part(Path("/usr/bin/mpirun").exists(), "mpirun is not installed (Debian: openmpi-bin)")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    gangs.daemon.windfall("secret", "set", "mpi-key", "--from-file", str(key))
    command = [str(EXAMPLES / "mpi.sh"), "python3", str(EXAMPLES / "mpi_sum.py")]
    secrets = [{"name": "MPI_KEY", "valueFrom": "mpi-key"}]
    # In these tests jobs are root's: no other user has a home on every host and enters this machine's Python.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    said = gangs.ends("mpi", command, allowed, secrets=secrets)
    lines = sorted(line[line.index("rank ") :] for line in said.splitlines() if "rank " in line)
    assert [line.split(" on ")[0] for line in lines] == ["rank 0 of 2", "rank 1 of 2"]
    assert {line.split(" on ")[1].split(",")[0] for line in lines} == {"box0", "box1"}
    assert all(line.endswith(": sum 3") for line in lines)
