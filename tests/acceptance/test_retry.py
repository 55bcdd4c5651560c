"""A job that has ended is run again as it was, by `windfall retry`, with real jobs under a real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.test_keys import a_key, client_with
from tests.acceptance.test_multi_node import a_gang

#: Fails the first time that it has this checkpoint directory, and says what it was given.
ONCE = (
    'cd "$WINDFALL_CHECKPOINT_DIR"; echo "try $AWS_BATCH_JOB_ARRAY_INDEX/$AWS_BATCH_JOB_ARRAY_SIZE $WHO $1"'
    " | tee -a tries; test $(wc -l < tries) -ge 2"
)


class House:
    """A daemon, and what a person types."""

    def __init__(self, running: RunningWindfall) -> None:
        self.running = running
        self.batch = a_queue(running)
        a_definition(self.batch, "shell", "sh", "-c", "true")

    def submit(self, script: str, batch: Any = None, **more: Any) -> str:
        overrides = {
            "command": ["sh", "-c", script, "sh", "Ref::word"],
            "environment": [{"name": "WHO", "value": "me"}],
        }
        asked = {
            "jobName": "train",
            "jobQueue": "q",
            "jobDefinition": "shell",
            "containerOverrides": overrides,
        }
        return str((batch or self.batch).submit_job(**asked, parameters={"word": "hello"}, **more)["jobId"])

    def ended(self, job_id: str) -> dict[str, Any]:
        [job] = self.running.wait_for([job_id])
        return job

    def retried(self, *arguments: str) -> str:
        done = self.running.windfall("retry", *arguments)
        return done.stdout.strip()

    def log(self, job_id: str) -> str:
        return self.running.windfall("logs", job_id).stdout


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    running = RunningWindfall("--vcpus", "8", "--memory-mib", "8192", "--gpus", "none")
    try:
        yield House(running.up())
    finally:
        running.close()


def test_a_failed_job_goes_on_from_its_checkpoint(house):
    tags = {"windfall:checkpoint": "true", "team": "vision"}
    old = house.submit(ONCE, tags=tags, timeout={"attemptDurationSeconds": 600})
    assert house.ended(old)["status"] == "FAILED"
    done = house.running.windfall("retry", old)
    assert "it begins with the newest checkpoint: tries (" in done.stderr
    new = house.ended(done.stdout.strip())
    assert new["status"] == "SUCCEEDED"
    assert new["jobName"] == "train"
    assert new["tags"]["windfall:retry-of"] == old
    assert new["tags"]["team"] == "vision"
    assert new["timeout"] == {"attemptDurationSeconds": 600}
    assert new["jobDefinition"].endswith("/shell:1")
    assert house.log(new["jobId"]) == "try / me hello\n"


def test_of_an_array_the_failed_children_keep_their_index_and_checkpoint(house):
    script = f'case $AWS_BATCH_JOB_ARRAY_INDEX in 0) exit 0;; 3) test -z "$AGAIN" && exit 1;; esac; {ONCE}'
    old = house.submit(script, arrayProperties={"size": 4}, tags={"windfall:checkpoint": "true"})
    assert house.ended(old)["status"] == "FAILED"
    done = house.running.windfall("retry", old)
    assert "with 3 children (indexes 1, 2, 3)" in done.stderr
    assert "each child begins with its newest checkpoint" in done.stderr
    again = house.ended(done.stdout.strip())
    assert again["arrayProperties"]["size"] == 3
    assert again["arrayProperties"]["statusSummary"]["SUCCEEDED"] == 2
    assert house.log(f"{again['jobId']}:0") == "try 1/4 me hello\n"
    assert house.log(f"{again['jobId']}:1") == "try 2/4 me hello\n"
    # What failed again is a single job by now, with the index that it had at first.
    done = house.running.windfall("retry", again["jobId"])
    assert "with 1 child (index 3)" in done.stderr
    single = house.ended(done.stdout.strip())
    assert "arrayProperties" not in single
    child = house.ended(house.retried(f"{old}:2"))
    assert house.log(child["jobId"]) == "try 2/4 me hello\n"


def test_all_runs_also_what_succeeded(house):
    old = house.submit("echo $AWS_BATCH_JOB_ARRAY_INDEX", arrayProperties={"size": 2})
    assert house.ended(old)["status"] == "SUCCEEDED"
    refused = house.running.windfall("retry", old, check=False)
    assert refused.returncode == 1
    assert f"succeeded; `windfall retry --all {old}` runs it again" in refused.stderr
    again = house.ended(house.retried("--all", old))
    assert again["arrayProperties"]["statusSummary"]["SUCCEEDED"] == 2


def test_what_has_not_ended_is_refused_and_so_are_two_at_once(house):
    running = house.submit("exec sleep 600")
    refused = house.running.windfall("retry", running, check=False)
    assert f"stop it first with `windfall terminate {running}`" in refused.stderr
    house.running.windfall("terminate", running)
    failing = house.submit("exec sleep 600", tags={"windfall:checkpoint": "true"})
    house.running.wait_for([failing], "RUNNING")
    house.running.windfall("terminate", failing)
    house.ended(failing)
    first = house.retried(failing)
    refused = house.running.windfall("retry", failing, check=False)
    assert refused.returncode == 1
    assert f"Job {first} is" in refused.stderr
    assert "continues the same checkpoints" in refused.stderr
    house.running.windfall("terminate", first)


def test_a_second_tenant_finds_no_such_job_and_an_admin_takes_no_rights_along(house):
    vision = a_key(house.running, "--role", "submit", "--tenant", "vision")
    own = a_key(house.running, "--role", "submit")
    submitter = client_with(house.running, own)
    old = house.submit("exit 1", batch=submitter)
    house.ended(old)
    house.running.extra_environment |= vision
    try:
        refused = house.running.windfall("retry", old, check=False)
    finally:
        for name in vision:
            house.running.extra_environment.pop(name)
    assert f"There is no job {old}" in refused.stderr
    new = json.loads(house.running.windfall("retry", "--json", old).stdout)
    assert new["retryOf"] == old
    theirs = house.submit("exit 1", batch=client_with(house.running, vision))
    house.ended(theirs)
    refused = house.running.windfall("retry", theirs, check=False)
    assert "belongs to the tenant vision" in refused.stderr


TRAINING = {
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "OutputDataConfig": {"S3OutputPath": "s3://windfall/out"},
    "CheckpointConfig": {"S3Uri": "s3://windfall/checkpoints"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    "Tags": [{"Key": "team", "Value": "vision"}],
}


def test_a_training_runs_again_under_another_name_from_its_checkpoints(house):
    sagemaker = house.running.client("sagemaker")
    script = 'cd "$WINDFALL_CHECKPOINT_DIR"; echo "$TRAINING_JOB_NAME" >> tries; cat tries; test $(wc -l < tries) -ge 2'
    sagemaker.create_training_job(
        TrainingJobName="fit",
        AlgorithmSpecification={
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/not-here:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sh", "-c", script],
        },
        **TRAINING,
    )
    assert house.ended("training-fit")["status"] == "FAILED"
    done = house.running.windfall("retry", "fit")
    assert "job training-fit-retry-2 (fit-retry-2) is in queue" in done.stderr
    assert "it begins with the newest checkpoint: tries (" in done.stderr
    assert house.ended(done.stdout.strip())["status"] == "SUCCEEDED"
    assert house.log("training-fit-retry-2") == "fit\nfit-retry-2\n"
    described = sagemaker.describe_training_job(TrainingJobName="fit-retry-2")
    assert described["CheckpointConfig"] == TRAINING["CheckpointConfig"]
    tags = sagemaker.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    assert {"Key": "windfall:retry-of", "Value": "training-fit"} in tags
    assert TRAINING["Tags"][0] in tags


def test_a_multi_node_job_runs_again_with_all_its_nodes(house):
    a_gang(house.batch, "gang", "false", nodes=2)
    script = 'echo "node $AWS_BATCH_JOB_NODE_INDEX of $AWS_BATCH_JOB_NUM_NODES"; exit 1'
    overrides = {
        "numNodes": 3,
        "nodePropertyOverrides": [
            {"targetNodes": "0:", "containerOverrides": {"command": ["sh", "-c", script]}}
        ],
    }
    old = house.batch.submit_job(jobName="g", jobQueue="q", jobDefinition="gang", nodeOverrides=overrides)[
        "jobId"
    ]
    assert house.ended(old)["status"] == "FAILED"
    refused = house.running.windfall("retry", f"{old}#1", check=False)
    assert f"is a node: `windfall retry {old}` runs all nodes again" in refused.stderr
    done = house.running.windfall("retry", old)
    assert "with 3 nodes" in done.stderr
    new = house.ended(done.stdout.strip())
    assert new["nodeProperties"]["numNodes"] == 3
    assert new["nodeProperties"]["nodeRangeProperties"][0]["container"]["command"] == ["sh", "-c", script]
    assert house.log(f"{new['jobId']}#0") == "node 0 of 3\n"
