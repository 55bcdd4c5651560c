"""What somebody who controls a host can do to the daemon with the agent's directory and the network: nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.conftest import require_part
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.waiting import wait_until
from windfall.daemon.seaweedfs import S3ServerError, find_program

_KEY, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
#: Tries each door of the daemon's machine that a host can see, from inside of the host.
_KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)"


@pytest.fixture(scope="module")
def robbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HostsInABox, RunningWindfall]]:
    """A daemon with storage that hosts reach, and a host on which a job with a checkpoint runs."""
    require_hosts()
    try:
        find_program()
    except S3ServerError as error:
        require_part(False, str(error))
    with HostsInABox(1, tmp_path_factory.mktemp("hosts")) as hosts:
        daemon = RunningWindfall("--gpus", "none", "--s3", "--s3-port", "0", "--s3-listen", hosts.gateway)
        daemon.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        try:
            daemon.up()
            daemon.windfall("hosts", "add", "box0", "--gpus", "simulated:1")
            batch = a_queue(daemon)
            definition = a_definition(batch, "waits", "sleep", "600", gpus=1, memory_mib=64)
            tags = {"windfall:checkpoint": "true"}
            job = batch.submit_job(jobName="waits", jobQueue="q", jobDefinition=definition, tags=tags)[
                "jobId"
            ]
            wait_until(
                lambda: batch.describe_jobs(jobs=[job])["jobs"][0]["status"] == "RUNNING", "the job runs", 120
            )
            yield hosts, daemon
        finally:
            daemon.close()


def test_nothing_in_a_stolen_agent_directory_opens_the_api(
    robbed: tuple[HostsInABox, RunningWindfall],
) -> None:
    hosts, daemon = robbed
    stolen = hosts.run(
        0, "sh", "-c", "find /var/lib/windfall-host -type f -size -64k ! -name '*.py' -exec cat -v {} +"
    )
    own = json.loads((daemon.data / "keys.json").read_text())["keys"]
    assert not any(key["secret_access_key"] in stolen for key in own)
    found = [json.loads(text) for text in re.findall(r"\{[^{}]*AWS_ACCESS_KEY_ID[^{}]*\}", stolen)]
    assert found, "the agent can open storage, so there are credentials to steal"
    for variables in found:
        session = boto3.Session(
            aws_access_key_id=variables[_KEY],
            aws_secret_access_key=variables[_SECRET],
            aws_session_token=variables.get(_TOKEN),
            region_name="us-east-1",
        )
        once = Config(retries={"total_max_attempts": 1})
        batch = session.client("batch", endpoint_url=daemon.url, config=once)
        sagemaker = session.client("sagemaker", endpoint_url=daemon.url, config=once)
        sts = session.client("sts", endpoint_url=daemon.url, config=once)
        for ask in (batch.describe_job_queues, sagemaker.list_training_jobs, sts.get_caller_identity):
            with pytest.raises(ClientError) as refused:
                ask()
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 401, 403)


def test_a_host_reaches_the_storage_of_the_daemon_and_not_its_api(
    robbed: tuple[HostsInABox, RunningWindfall],
) -> None:
    hosts, daemon = robbed
    port = daemon.url.rpartition(":")[2]
    knock = f"python3 -c '{_KNOCK}' {hosts.gateway} {port} 2>&1 || true"
    assert "ConnectionRefusedError" in hosts.run(0, "sh", "-c", knock)
    storage = daemon.environment["AWS_ENDPOINT_URL_S3"].rpartition(":")[2]
    assert hosts.run(0, "python3", "-c", _KNOCK, hosts.gateway, storage) == ""


def test_the_files_of_an_agent_are_its_users_alone(robbed: tuple[HostsInABox, RunningWindfall]) -> None:
    hosts, _ = robbed
    for name in ("objects.json", "secrets", "agent", "logs"):
        listed = hosts.run(
            0, "sh", "-c", f"find /var/lib/windfall-host/agents -name {name} -perm /077"
        ).split()
        assert listed == [], "others may not even look"
