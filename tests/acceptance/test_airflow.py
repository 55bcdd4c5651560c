"""Airflow's own BatchOperator, unmodified: it submits, waits, and reads the log of a job that really runs.

Airflow is large and wants versions of its own, so that it may live in another Python: AIRFLOW_PYTHON names it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue

pytestmark = pytest.mark.long

#: What stands in a DAG, without a scheduler of Airflow's around it; and a job that fails.
PROGRAM = """
import json
from airflow.providers.amazon.aws.operators.batch import BatchOperator

class Instance:
    def xcom_push(self, key, value, **_):
        pass

def run(**changes):
    operator = BatchOperator(
        task_id="train", job_name="from-airflow", job_queue="queue", job_definition="speak",
        aws_conn_id=None, region_name="us-east-1", awslogs_enabled=True, tags={"team": "vision"}, **changes
    )
    operator.hook.DEFAULT_DELAY_MIN, operator.hook.DEFAULT_DELAY_MAX = 0, 1
    context = {"ti": Instance(), "task_instance": Instance()}
    return operator.execute(context)

done = run(container_overrides={"environment": [{"name": "WHO", "value": "airflow"}]})
try:
    failed = run(container_overrides={"command": ["false"]})
except Exception as error:
    failed = f"{type(error).__name__}: {error}"
print("RESULT " + json.dumps({"done": done, "failed": failed}))
"""


def airflow_python() -> str:
    named = os.environ.get("AIRFLOW_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("airflow") is None:
        assert not os.environ.get("CI"), "CI must have Airflow: AIRFLOW_PYTHON names a Python that does"
        pytest.skip(
            "Airflow is not installed: pip install apache-airflow-providers-amazon, or set AIRFLOW_PYTHON"
        )
    return sys.executable


def test_the_operator_runs_a_job_shows_its_log_and_hears_of_a_failure(windfall: RunningWindfall, tmp_path):
    python = airflow_python()
    batch = a_queue(windfall, "queue")
    a_definition(batch, "speak", "sh", "-c", "echo hello from $WHO")
    done = subprocess.run(
        [python, "-c", PROGRAM],
        env={
            **os.environ,
            **windfall.environment,
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])
    (job,) = batch.describe_jobs(jobs=[result["done"]])["jobs"]
    assert (job["status"], job["tags"]["team"]) == ("SUCCEEDED", "vision")
    assert "hello from airflow" in told, "the operator shows the job's log"
    assert "Essential container in task exited" in result["failed"] or "FAILED" in result["failed"]
    assert len(batch.list_jobs(jobQueue="queue", jobStatus="FAILED")["jobSummaryList"]) == 1
