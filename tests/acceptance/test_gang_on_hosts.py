"""A multi-node job over two hosts that share nothing but a network: real sshd, real processes, real addresses."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.daemon import RunningWindfall, a_queue
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.waiting import wait_until

PROGRAM = (Path(__file__).parents[2] / "examples" / "multi-node" / "all_reduce.py").read_text()
NEEDS = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}, {"type": "GPU", "value": "1"}]


def test_the_nodes_of_a_job_meet_at_the_addresses_of_their_hosts(tmp_path: Path) -> None:
    require_hosts()
    with HostsInABox(2, tmp_path) as hosts:
        daemon = RunningWindfall("--gpus", "none")
        daemon.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        daemon.up()
        try:
            # One GPU each, so that the nodes cannot share a host.
            daemon.windfall("hosts", "add", "box0", "box1", "--gpus", "simulated:1")
            batch = a_queue(daemon)
            container = {
                "image": "windfall/host",
                "command": ["sh", "-c", 'python3 -c "$0" > /var/tmp/said', PROGRAM],
                "resourceRequirements": NEEDS,
            }
            batch.register_job_definition(
                jobDefinitionName="reduce",
                type="multinode",
                nodeProperties={
                    "numNodes": 2,
                    "mainNode": 0,
                    "nodeRangeProperties": [{"targetNodes": "0:", "container": container}],
                },
            )
            job = batch.submit_job(jobName="reduce", jobQueue="q", jobDefinition="reduce")["jobId"]
            ended = wait_until(
                lambda: (
                    job_now
                    if (job_now := batch.describe_jobs(jobs=[job])["jobs"][0])["status"]
                    in ("SUCCEEDED", "FAILED")
                    else None
                ),
                "the gang to end",
                deadline_s=120,
            )
            assert ended["status"] == "SUCCEEDED", ended
            for host in range(2):
                said = hosts.run(host, "cat", "/var/tmp/said")
                assert f" at {hosts.address(host)}: sum [1.0, 2.0]" in said
        finally:
            daemon.close()
