"""Multi-node parallel jobs with a real daemon, real processes and boto3: they talk over their own addresses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_queue
from tests.acceptance.test_simulated_market import a_queue_of, an_environment, kill, simulated_pids
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples/multi-node/all_reduce.py"


def a_gang(batch: Any, name: str, *command: str, nodes: int = 3, **more: Any) -> None:
    """A definition of so many equal nodes that run a command on this host."""
    batch.register_job_definition(
        jobDefinitionName=name,
        type="multinode",
        nodeProperties={
            "numNodes": nodes,
            "mainNode": 0,
            "nodeRangeProperties": [
                {
                    "targetNodes": "0:",
                    "container": {
                        "image": "windfall/host",
                        "command": list(command),
                        "resourceRequirements": [
                            {"type": "VCPU", "value": "1"},
                            {"type": "MEMORY", "value": "256"},
                        ],
                    },
                }
            ],
        },
        **more,
    )


def a_gated_gang(running: RunningWindfall, batch: Any) -> tuple[Path, Path]:
    """Three nodes that each leave `<node>-<attempt>` in a directory and wait for a file; the answer is both paths."""
    gate, started = running.root / "go", running.root / "started"
    started.mkdir()
    started.chmod(0o777)
    name = f"{started}/$AWS_BATCH_JOB_NODE_INDEX-$AWS_BATCH_JOB_ATTEMPT"
    a_gang(batch, "gated", "sh", "-c", f"touch {name}; while [ ! -e {gate} ]; do sleep 0.1; done")
    return gate, started


def submit(batch: Any, definition: str, **more: Any) -> str:
    job = batch.submit_job(jobName=definition, jobQueue="q", jobDefinition=definition, **more)
    return str(job["jobId"])


def said(running: RunningWindfall, job_id: str) -> str:
    """What the newest attempt of a job, or of one node, wrote."""
    [job] = running.client("batch").describe_jobs(jobs=[job_id])["jobs"]
    stream = job["container"]["logStreamName"]
    found = running.client("logs").get_log_events(
        logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True
    )
    return "\n".join(event["message"] for event in found["events"])


@pytest.fixture(scope="module")
def batch(windfall: RunningWindfall) -> Any:
    """A client of the shared daemon, with a queue."""
    return a_queue(windfall)


def test_three_nodes_add_up_over_the_same_port(windfall, batch):
    program = windfall.root / "all_reduce.py"
    program.write_text(EXAMPLE.read_text())
    a_gang(batch, "reduce", "python3", str(program))
    job_id = submit(batch, "reduce")
    [job] = windfall.wait_for([job_id], "SUCCEEDED")
    assert job["nodeProperties"]["numNodes"] == 3
    assert job["container"]["exitCode"] == 0
    nodes = batch.describe_jobs(jobs=[f"{job_id}#{number}" for number in range(3)])["jobs"]
    assert [node["jobId"] for node in nodes] == [f"{job_id}#{number}" for number in range(3)]
    assert [node["nodeDetails"] for node in nodes] == [
        {"nodeIndex": number, "isMainNode": number == 0} for number in range(3)
    ]
    for number in range(3):
        assert "sum [3.0, 3.0]" in said(windfall, f"{job_id}#{number}"), number
    by_arn = batch.describe_jobs(jobs=[f"{job['jobArn']}#2"])["jobs"]
    assert [node["jobId"] for node in by_arn] == [f"{job_id}#2"]
    listed = batch.list_jobs(multiNodeJobId=job_id, jobStatus="SUCCEEDED")["jobSummaryList"]
    assert [one["nodeProperties"]["nodeIndex"] for one in listed] == [0, 1, 2]
    # Those of the same queue are listed as one job.
    summaries = batch.list_jobs(jobQueue="q", jobStatus="SUCCEEDED")["jobSummaryList"]
    assert [one["nodeProperties"] for one in summaries if one["jobId"] == job_id] == [{"numNodes": 3}]


def test_a_job_of_one_node_runs_as_torchx_submits_it(windfall, batch):
    a_gang(batch, "alone", "sh", "-c", "env", nodes=1)
    job_id = submit(batch, "alone")
    windfall.wait_for([job_id], "SUCCEEDED")
    written = said(windfall, f"{job_id}#0")
    assert "AWS_BATCH_JOB_NUM_NODES=1" in written
    assert "AWS_BATCH_JOB_MAIN_NODE_INDEX=0" in written
    assert "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS" not in written


def test_the_main_nodes_failure_starts_the_whole_gang_again(windfall, batch):
    marks = windfall.root / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    script = (
        f"touch {marks}/$AWS_BATCH_JOB_NODE_INDEX-$AWS_BATCH_JOB_ATTEMPT;"
        f" while [ $(ls {marks} | grep -c -- -$AWS_BATCH_JOB_ATTEMPT) -lt 3 ]; do sleep 0.05; done;"
        ' [ "$AWS_BATCH_JOB_NODE_INDEX" = 0 ] || exec sleep 600; [ "$AWS_BATCH_JOB_ATTEMPT" = 2 ]'
    )
    a_gang(batch, "again", "sh", "-c", script, retryStrategy={"attempts": 2})
    job_id = submit(batch, "again")
    [job] = windfall.wait_for([job_id], "SUCCEEDED")
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [1, 0]
    assert sorted(one.name for one in marks.iterdir()) == ["0-1", "0-2", "1-1", "1-2", "2-1", "2-2"]
    nodes = batch.describe_jobs(jobs=[f"{job_id}#1", f"{job_id}#2"])["jobs"]
    assert [node["status"] for node in nodes] == ["SUCCEEDED"] * 2
    with pytest.raises(ClientError, match=f"name job {job_id}"):
        batch.terminate_job(jobId=f"{job_id}#1", reason="no")


def test_killing_the_daemon_leaves_a_gang_running(fresh):
    running = fresh("--vcpus", "8", "--memory-mib", "8192", "--gpus", "none")
    batch = a_queue(running)
    gate, started = a_gated_gang(running, batch)
    job_id = submit(batch, "gated")
    names = ["0-1", "1-1", "2-1"]
    wait_until(lambda: sorted(one.name for one in started.iterdir()) == names, "all three nodes run")
    running.kill_daemon()
    running.up()
    gate.touch()
    running.wait_for([job_id], "SUCCEEDED")
    running.wait_for([f"{job_id}#1", f"{job_id}#2"], "SUCCEEDED")
    assert sorted(one.name for one in started.iterdir()) == names, "nothing ran twice"


@pytest.fixture
def market() -> Iterator[RunningWindfall]:
    """A daemon whose simulated instances boot in a moment."""
    running = RunningWindfall("--vcpus", "4", "--memory-mib", "8192", "--gpus", "none")
    running.extra_environment = {"WINDFALL_SIMULATED_BOOT_S": "0.2", "WINDFALL_SIMULATED_NOTICE_S": "1"}
    try:
        yield running.up()
    finally:
        running.close()
        kill(simulated_pids(running))


def test_a_node_that_loses_its_instance_is_replaced_while_the_others_go_on(market):
    batch = market.client("batch")
    an_environment(batch, "spot")
    a_queue_of(batch, "spot")
    gate, started = a_gated_gang(market, batch)
    job_id = submit(batch, "gated", tags={"windfall:replace-lost-nodes": "true"})
    wait_until(lambda: len(list(started.iterdir())) == 3, "all three nodes run")
    market.windfall("interrupt", f"{job_id}#2", "--notice", "0")
    wait_until((started / "2-2").exists, "node 2 runs again")
    gate.touch()
    [job] = market.wait_for([job_id], "SUCCEEDED")
    assert len(job["attempts"]) == 1
    assert sorted(one.name for one in started.iterdir()) == ["0-1", "1-1", "2-1", "2-2"]
    [node] = market.wait_for([f"{job_id}#2"], "SUCCEEDED")
    assert len(node["attempts"]) == 2
