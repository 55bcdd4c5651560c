"""A real daemon with a simulated spot market: real jobs are taken away, saved, restored and finished.

Every job here is a shell script that counts in its checkpoint directory and knows nothing of Windfall but one variable.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition
from tests.waiting import wait_until

#: Counts to 40 with a tenth of a second for each, from where the checkpoint says, and says each number once it is in
#: the checkpoint, so that the logs of all attempts together show what was done twice.
COUNT = """
cd "$WINDFALL_CHECKPOINT_DIR"
n=$(cat count 2>/dev/null || echo 0)
echo "from $n"
trap 'leave=yes' TERM
while [ "$n" -lt 40 ]; do
  sleep 0.1
  n=$((n + 1))
  echo "$n" > count.new
  mv count.new count
  echo "$n"
  if [ "$leave" ]; then exit 143; fi
done
echo "done $n"
"""


@pytest.fixture
def market() -> Iterator[RunningWindfall]:
    """A daemon whose instances boot in a moment."""
    running = RunningWindfall("--vcpus", "4", "--memory-mib", "8192", "--gpus", "none")
    running.extra_environment = {"WINDFALL_SIMULATED_BOOT_S": "0.2", "WINDFALL_SIMULATED_NOTICE_S": "3"}
    try:
        yield running.up()
    finally:
        running.close()
        kill(simulated_pids(running))


def simulated_pids(running: RunningWindfall, *, wardens: bool = True) -> list[int]:
    """The processes of the agent that plays the fleet."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            is_warden = "warden.py" in arguments
            if f"{running.data}/simulated/agent" in arguments and (wardens or not is_warden):
                found.append(int(entry.name))
    return found


def kill(pids: list[int]) -> None:
    """kill -9; some end by themselves when the first of them is gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def an_environment(batch: Any, name: str, kind: str = "SPOT", **tags: str) -> None:
    batch.create_compute_environment(
        computeEnvironmentName=name,
        type="MANAGED",
        computeResources={
            "type": kind,
            "minvCpus": 0,
            "maxvCpus": 16,
            "instanceTypes": ["m5.large"],
            "subnets": ["subnet-1"],
        },
        tags={"windfall:engine": "simulated", **{f"windfall:{key}": text for key, text in tags.items()}},
    )


def a_queue_of(batch: Any, *environments: str) -> None:
    order = [
        {"order": position, "computeEnvironment": name} for position, name in enumerate(environments, start=1)
    ]
    batch.create_job_queue(jobQueueName="q", priority=1, computeEnvironmentOrder=order)


def submit(batch: Any) -> str:
    a_definition(batch, "count", "sh", "-c", COUNT)
    job = batch.submit_job(
        jobName="count", jobQueue="q", jobDefinition="count", tags={"windfall:checkpoint": "true"}
    )
    return str(job["jobId"])


def said(running: RunningWindfall, job_id: str) -> list[str]:
    """All that the attempts of a job have said, in order."""
    [job] = running.client("batch").describe_jobs(jobs=[job_id])["jobs"]
    containers = [*(attempt["container"] for attempt in job["attempts"]), job["container"]]
    streams = dict.fromkeys(one["logStreamName"] for one in containers if "logStreamName" in one)
    logs = running.client("logs")
    lines = []
    for stream in streams:
        events = logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True)
        lines += [event["message"] for event in events["events"]]
    return lines


def numbers(lines: list[str]) -> list[int]:
    return [int(line) for line in lines if line.isdecimal()]


def begins(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("from")]


def instances_of(attempts: list[dict[str, Any]]) -> list[str]:
    return [attempt["container"]["containerInstanceArn"].rpartition("/")[2] for attempt in attempts]


def test_a_job_that_is_taken_away_three_times_ends_with_the_right_result(market):
    batch = market.client("batch")
    an_environment(batch, "spot", **{"interrupt-at": "1.5 1.5 1.5"})
    a_queue_of(batch, "spot")
    job_id = submit(batch)
    [job] = market.wait_for([job_id])
    lines = said(market, job_id)
    assert job["status"] == "SUCCEEDED", (job.get("statusReason"), lines)
    attempts = job["attempts"]
    assert len(attempts) == 4
    assert [attempt["statusReason"].startswith("Host EC2") for attempt in attempts] == [True] * 3 + [False]
    # Each was on a machine of its own, and each went on where the one before it had saved.
    assert len(set(instances_of(attempts))) == 4
    begun = begins(lines)
    assert begun[0] == 0
    assert begun == sorted(begun)
    assert begun[1] > 0
    assert lines[-1] == "done 40"
    # Noticed interruptions lose nothing: no number was counted twice.
    assert numbers(lines) == list(range(1, 41))


def test_a_sudden_loss_costs_only_what_was_not_saved(market):
    batch = market.client("batch")
    an_environment(batch, "spot", **{"interrupt-at": "4", "sudden": "1"})
    a_queue_of(batch, "spot")
    job_id = submit(batch)
    [job] = market.wait_for([job_id])
    lines = said(market, job_id)
    assert job["status"] == "SUCCEEDED", (job.get("statusReason"), lines)
    assert len(job["attempts"]) == 2
    assert job["attempts"][0]["statusReason"].startswith("Host EC2")
    assert "exitCode" not in job["attempts"][0]["container"]
    assert set(numbers(lines)) == set(range(1, 41))
    assert lines[-1] == "done 40"


def test_without_spot_capacity_the_next_environment_takes_the_job(market):
    batch = market.client("batch")
    an_environment(batch, "spot", capacity="0")
    an_environment(batch, "on-demand", kind="EC2")
    a_queue_of(batch, "spot", "on-demand")
    a_definition(batch, "env", "sh", "-c", "echo $AWS_BATCH_CE_NAME")
    job_id = batch.submit_job(jobName="env", jobQueue="q", jobDefinition="env")["jobId"]
    [job] = market.wait_for([job_id])
    assert job["status"] == "SUCCEEDED"
    assert market.windfall("logs", job_id).stdout.split()[-1] == "on-demand"


def test_spot_comes_first_while_it_can_be_had(market):
    batch = market.client("batch")
    an_environment(batch, "spot")
    an_environment(batch, "on-demand", kind="EC2")
    a_queue_of(batch, "spot", "on-demand")
    a_definition(batch, "env", "sh", "-c", "echo $AWS_BATCH_CE_NAME")
    job_id = batch.submit_job(jobName="env", jobQueue="q", jobDefinition="env")["jobId"]
    market.wait_for([job_id])
    assert market.windfall("logs", job_id).stdout.split()[-1] == "spot"


def test_killing_daemon_and_agent_between_interruptions_loses_nothing(market):
    batch = market.client("batch")
    an_environment(batch, "spot", **{"interrupt-at": "2 2"})
    a_queue_of(batch, "spot")
    job_id = submit(batch)
    wait_until(lambda: len(numbers(said(market, job_id))) >= 5, "the job counts", interval_s=0.2)
    market.kill_daemon()
    market.up()
    wait_until(
        lambda: len(begins(said(market, job_id))) >= 2,
        "the second attempt began",
        interval_s=0.2,
    )
    market.kill_daemon()
    kill(simulated_pids(market, wardens=False))
    market.up()
    [job] = market.wait_for([job_id])
    lines = said(market, job_id)
    assert job["status"] == "SUCCEEDED", (job.get("statusReason"), lines)
    assert lines[-1] == "done 40"
    assert set(numbers(lines)) == set(range(1, 41))
    assert lines.count("done 40") == 1


def test_what_the_market_cannot_use_is_refused_with_what_to_do(market):
    batch = market.client("batch")
    for tags, text in (
        ({"mtbi-s": "soon"}, "windfall:mtbi-s must be a number of seconds"),
        ({"trace": "/no/such/trace.json"}, "cannot be read by the daemon"),
    ):
        with pytest.raises(ClientError, match=text):
            an_environment(batch, "bad", **tags)
    with pytest.raises(ClientError, match="this daemon has local, simulated"):
        batch.create_compute_environment(
            computeEnvironmentName="bad",
            type="MANAGED",
            computeResources={"type": "EC2", "maxvCpus": 4},
            tags={"windfall:engine": "cloud"},
        )
    with pytest.raises(ClientError, match="add the tag windfall:engine=simulated"):
        batch.create_compute_environment(
            computeEnvironmentName="bad",
            type="MANAGED",
            computeResources={"type": "SPOT", "maxvCpus": 4},
            tags={"windfall:mtbi-s": "60"},
        )
    assert batch.describe_compute_environments()["computeEnvironments"] == []


def test_the_market_of_the_page_can_be_declared_as_it_is_written(market):
    page = Path(__file__).parents[2] / "docs" / "spot.md"
    [block] = re.findall(r"```sh\n(aws batch create-compute-environment.*?)```", page.read_text(), re.DOTALL)
    done = market.shell(f"set -e\n{block}")
    assert done.returncode == 0, done.stderr
    batch = market.client("batch")
    environments = batch.describe_compute_environments()["computeEnvironments"]
    assert {one["computeEnvironmentName"]: one["tags"].get("windfall:seed") for one in environments} == {
        "market": "7",
        "steady": None,
    }
    needs = [
        {"type": "GPU", "value": "1"},
        {"type": "VCPU", "value": "1"},
        {"type": "MEMORY", "value": "64"},
    ]
    a_definition(batch, "gpu", "sh", "-c", "echo $AWS_BATCH_CE_NAME $CUDA_VISIBLE_DEVICES")
    job = batch.submit_job(
        jobName="gpu",
        jobQueue="training",
        jobDefinition="gpu",
        containerOverrides={"resourceRequirements": needs},
    )
    [ended] = market.wait_for([job["jobId"]])
    assert ended["status"] == "SUCCEEDED"
    [line] = said(market, job["jobId"])
    assert line.startswith("market GPU-simulated-i-")
