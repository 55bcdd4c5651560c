"""Metaflow's, TorchX's and redun's own clients of AWS Batch, unmodified, against a real daemon.

They want versions of their own, so that they live in another Python: WORKFLOW_TOOLS_PYTHON names one that has metaflow,
torchx and redun. Their requests are tested without them in test_client_forms.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_queue

pytestmark = pytest.mark.long

METAFLOW = """
import inspect
from metaflow.plugins.aws.batch.batch_client import BatchClient

def run(nodes):
    client = BatchClient()
    job, role = client.job(), "arn:aws:iam::123456789012:role/anybody"
    settings = dict.fromkeys(inspect.signature(job.job_def).parameters)
    settings |= {"image": "windfall/host", "iam_role": role, "job_queue": "metaflow"}
    settings |= {"memory": 64, "num_parallel": nodes}
    job.job_name("flow-step").job_queue("metaflow").image("windfall/host").iam_role(role).task_id("control-1")
    job.job_def(**settings)
    job.command(["sh", "-c", "echo [multinode-args] $METAFLOW_USER; exit 5"])
    job.cpu(1).memory(64).gpu(0).environment_variable("METAFLOW_USER", "me")
    job.timeout_in_secs(600).attempts(1).tag("app", "metaflow").parameter("metaflow.user", "me")
    running = job.execute()
    until(lambda: running.is_done)
    return [running.id, running.status, running.status_code, running.is_crashed]

result = {"queues": list(BatchClient().active_job_queues()), "alone": run(0), "together": run(2)}
"""

TORCHX = """
from torchx.schedulers.aws_batch_scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role

# Nothing is pushed: the image is the host.
scheduler = create_scheduler("test", docker_client=object())
script = "echo rank $AWS_BATCH_JOB_NODE_INDEX of $AWS_BATCH_JOB_NUM_NODES; exec sleep 600"
role = Role("trainer", image="windfall/host", entrypoint="sh", args=["-c", script], num_replicas=2,
            resource=Resource(cpu=1, gpu=0, memMB=64))
app = scheduler.schedule(scheduler.submit_dryrun(AppDef("train", [role]), {"queue": "torchx", "user": "me"}))
logs = lambda: [list(scheduler.log_iter(app, "trainer", number)) for number in (0, 1)]
until(lambda: scheduler.describe(app).state.name == "RUNNING")
until(lambda: all(logs()))
scheduler.cancel(app)
until(lambda: scheduler.describe(app).state.name == "FAILED")
found = scheduler.describe(app)
result = {
    "state": found.state.name,
    "replicas": found.roles[0].num_replicas,
    "logs": logs(),
    "listed": [one.app_id == app for one in scheduler.list()],
}
"""

REDUN = """
import os
from redun.executors import aws_batch

region = {"aws_region": os.environ["AWS_REGION"]}

def run(arguments, **more):
    job_id = aws_batch.batch_submit(arguments, "redun", image="windfall/host", memory=0.0625, **more, **region)["jobId"]
    ended = []
    def over():
        ended[:] = aws_batch.iter_batch_job_status([job_id], **region)
        return ended[0]["status"] in ("SUCCEEDED", "FAILED")
    until(over)
    return ended[0], [line.split("  ")[-1] for line in aws_batch.iter_batch_job_log_lines(job_id, **region)]

command = aws_batch.create_job_override_command(command=["sh", "-c", "echo hello; exit 2"])
failed, lines = run(command, job_name="redun-1")
again, _ = run(command, job_name="redun-2")
gang = aws_batch.create_job_override_command(
    command=["echo", "main"], command_worker=["sleep", "600"], num_nodes=2
)
together, main_lines = run(gang, job_name="redun-3", num_nodes=2)
result = {
    "failed": [failed["status"], failed["attempts"][-1]["container"]["exitCode"], lines],
    "registered_once": failed["jobDefinition"] == again["jobDefinition"],
    "together": [together["status"], main_lines],
}
"""

UNTIL = """
import json, time

def until(true):
    deadline = time.monotonic() + 200
    while not true():
        assert time.monotonic() < deadline, "it did not end"
        time.sleep(0.2)
"""


def run(windfall: RunningWindfall, tmp_path: Any, program: str) -> dict[str, Any]:
    """What a program of the other Python says."""
    python = os.environ.get("WORKFLOW_TOOLS_PYTHON")
    if python is None:
        pytest.skip("name a Python with metaflow, torchx and redun in WORKFLOW_TOOLS_PYTHON")
    done = subprocess.run(
        [python, "-c", f"{UNTIL}\n{program}\nprint('RESULT ' + json.dumps(result))"],
        env={**os.environ, **windfall.environment, "HOME": str(tmp_path), "USERNAME": "me"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    said = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found: dict[str, Any] = json.loads(said.removeprefix("RESULT "))
    return found


def test_metaflow_runs_a_step_alone_and_on_two_nodes(windfall, tmp_path):
    batch = a_queue(windfall, "metaflow")
    told = run(windfall, tmp_path, METAFLOW)
    assert "metaflow" in told["queues"]
    for job_id, *ended in (told["alone"], told["together"]):
        assert ended == ["FAILED", 5, True]
        [job] = batch.describe_jobs(jobs=[job_id])["jobs"]
        assert job["tags"]["app"] == "metaflow"


def test_torchx_runs_an_app_of_two_replicas_reads_both_logs_and_stops_it(windfall, tmp_path):
    a_queue(windfall, "torchx")
    told = run(windfall, tmp_path, TORCHX)
    assert (told["state"], told["replicas"]) == ("FAILED", 2)
    assert told["logs"] == [["rank 0 of 2\n"], ["rank 1 of 2\n"]]
    assert True in told["listed"]


def test_redun_registers_once_and_runs_alone_and_on_two_nodes(windfall, tmp_path):
    a_queue(windfall, "redun")
    told = run(windfall, tmp_path, REDUN)
    assert told["failed"] == ["FAILED", 2, ["hello"]]
    assert told["registered_once"]
    assert told["together"] == ["SUCCEEDED", ["main"]]
