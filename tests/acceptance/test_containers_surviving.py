"""Containers while parts of Windfall die, and while their place is taken away: nothing lost, nothing twice."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.acceptance.containers import a_boxed_definition, log_of, submitted, with_engine
from tests.acceptance.daemon import RunningWindfall, a_queue
from tests.waiting import wait_until

#: Starts, says so in the host's ledger, waits for the gate, says that it ended.
GATED = """
echo "start $AWS_BATCH_JOB_ATTEMPT" >> /ledger/lines
echo begun
while [ ! -e /ledger/go ]; do sleep 0.2; done
echo "end $AWS_BATCH_JOB_ATTEMPT" >> /ledger/lines
echo done
exit 5
"""
#: Saves when it is told to leave, and goes on from there the next time.
SAVING = """
trap 'echo 41 > $WINDFALL_CHECKPOINT_DIR/state; exit 143' TERM
if [ -e $WINDFALL_CHECKPOINT_DIR/state ]; then echo "resumed at $(cat $WINDFALL_CHECKPOINT_DIR/state)"; exit 0; fi
echo ready
while :; do sleep 0.1; done
"""
ISOLATED = """
cat /proc/net/dev; env
"""
#: Of two hosts the second speaks to the first by its name, and each leaves a part of the model.
TOGETHER = """
me=$(sed 's/.*"current_host": "\\([^"]*\\)".*/\\1/' /opt/ml/input/config/resourceconfig.json)
echo part > /opt/ml/model/$me
if [ $me = algo-1 ]; then
    nc -l -p 7124 -e sh -c "cat >&2"
else
    until echo "$me speaks" | nc algo-1 7124; do sleep 0.1; done
fi
"""
TRAINING = """
echo "told to $0 as $TRAINING_JOB_NAME"
cat /opt/ml/input/config/hyperparameters.json && echo
cat /opt/ml/code/train.py
cat /etc/hosts
echo weights > /opt/ml/model/weights
"""


@pytest.fixture
def boxed(docker_engine) -> Iterator[RunningWindfall]:
    running = with_engine(docker_engine, "--stop-grace-s", "1.5")
    try:
        yield running.up()
    finally:
        running.close()


def kill_daemon(running: RunningWindfall) -> None:
    running.kill_daemon()
    running.up()


def kill_agent(running: RunningWindfall) -> None:
    killed = running.kill_agent()
    wait_until(lambda: running.agent_pids().get("agent", killed) != killed, "a new agent")


def kill_both(running: RunningWindfall) -> None:
    running.kill_agent()
    kill_daemon(running)


@pytest.mark.parametrize("kill", [kill_daemon, kill_agent, kill_both])
def test_a_container_is_adopted_and_not_run_twice(
    boxed: RunningWindfall, kill: Callable[[RunningWindfall], None]
):
    ledger = boxed.root / "ledger"
    ledger.mkdir()
    batch = a_queue(boxed)
    a_boxed_definition(
        batch,
        "gated",
        GATED,
        volumes=[{"name": "ledger", "host": {"sourcePath": str(ledger)}}],
        mountPoints=[{"sourceVolume": "ledger", "containerPath": "/ledger"}],
    )
    job_id = submitted(batch, "gated", retryStrategy={"attempts": 3})
    boxed.wait_for([job_id], "RUNNING")
    wait_until((ledger / "lines").exists, "the container runs")
    kill(boxed)
    batch = boxed.client("batch")
    (job,) = batch.describe_jobs(jobs=[job_id])["jobs"]
    assert job["status"] == "RUNNING", job
    (ledger / "go").touch()
    (job,) = boxed.wait_for([job_id], "RUNNABLE", "STARTING", "FAILED")
    wait_until(lambda: len((ledger / "lines").read_text().splitlines()) == 6, "three attempts")
    (job,) = boxed.wait_for([job_id], "FAILED")
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [5, 5, 5]
    lines = (ledger / "lines").read_text().splitlines()
    assert sorted(lines) == sorted(f"{word} {number}" for number in (1, 2, 3) for word in ("start", "end"))
    logs = boxed.client("logs")
    for attempt in job["attempts"]:
        stream = attempt["container"]["logStreamName"]
        events = logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream)["events"]
        assert [event["message"] for event in events] == ["begun", "done"]


def test_a_container_that_a_damaged_journal_does_not_know_is_gone_before_the_next_attempt(
    boxed: RunningWindfall, docker_engine
):
    ledger = boxed.root / "ledger"
    ledger.mkdir()
    batch = a_queue(boxed)
    a_boxed_definition(
        batch,
        "gated",
        GATED,
        volumes=[{"name": "ledger", "host": {"sourcePath": str(ledger)}}],
        mountPoints=[{"sourceVolume": "ledger", "containerPath": "/ledger"}],
    )
    job_id = submitted(batch, "gated", retryStrategy={"attempts": 2})
    boxed.wait_for([job_id], "RUNNING")
    wait_until((ledger / "lines").exists, "the container runs")
    os.kill(boxed.agent_pids()["warden"], signal.SIGSTOP)
    boxed.kill_agent()
    (boxed.data / "agent" / "journal").write_bytes(b"junk\n" * 100)
    os.kill(boxed.agent_pids()["warden"], signal.SIGCONT)
    wait_until(lambda: "start 2" in (ledger / "lines").read_text(), "the second attempt runs")
    (running,) = docker_engine.api.containers("windfall.agent")
    (ledger / "go").touch()
    boxed.wait_for([job_id], "FAILED")
    assert (ledger / "lines").read_text().splitlines() == ["start 1", "start 2", "end 2"], running
    assert "the journal is damaged" in (boxed.data / "agent" / "agent.log").read_text()


def test_an_interrupted_container_saves_and_goes_on_from_there(boxed: RunningWindfall):
    batch = a_queue(boxed)
    a_boxed_definition(batch, "saving", SAVING)
    job_id = submitted(batch, "saving", tags={"windfall:checkpoint": "true"})
    boxed.wait_for([job_id], "RUNNING")
    wait_until(lambda: "ready" in log_of(boxed, job_id), "the job listens")
    boxed.windfall("interrupt", job_id, "--notice", "20")
    (job,) = boxed.wait_for([job_id])
    assert job["status"] == "SUCCEEDED", (job, log_of(boxed, job_id))
    assert len(job["attempts"]) == 2
    assert job["attempts"][0]["statusReason"].startswith("Host EC2 (instance i-")
    assert log_of(boxed, job_id).splitlines()[-1] == "resumed at 41"
    assert job["tags"]["windfall:isolation"].startswith("container (docker ")


def test_a_stopped_container_is_gone(boxed: RunningWindfall, docker_engine):
    batch = a_queue(boxed)
    a_boxed_definition(batch, "stubborn", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    job_id = submitted(batch, "stubborn")
    boxed.wait_for([job_id], "RUNNING")
    wait_until(lambda: "up" in log_of(boxed, job_id), "the job ignores SIGTERM")
    batch.terminate_job(jobId=job_id, reason="enough")
    (job,) = boxed.wait_for([job_id], "FAILED")
    assert (job["statusReason"], job["container"]["exitCode"]) == ("enough", 137)
    wait_until(lambda: not docker_engine.api.containers("windfall.agent"), "nothing is left of it")


def trained(running: RunningWindfall, name: str, image: str, **more: Any) -> tuple[dict[str, Any], list[str]]:
    """Train to the end; the answer is the job's description and its log."""
    sagemaker, logs = running.client("sagemaker"), running.client("logs")
    request = {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/Training",
        "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }
    sagemaker.create_training_job(**{**request, **more})

    def described() -> dict[str, Any]:
        found: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=name)
        return found

    wait_until(
        lambda: described()["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"),
        "the training job ended",
        interval_s=0.2,
    )
    events = logs.filter_log_events(logGroupName="/aws/sagemaker/TrainingJobs")["events"]
    return described(), [event["message"] for event in events]


def test_a_training_job_runs_in_its_image_as_sagemaker_runs_it(boxed: RunningWindfall, docker_engine):
    docker_engine.build_image("trainer:1", Entrypoint=["sh", "-c", TRAINING])
    # The code of script mode is where the toolkit of a SageMaker image looks first.
    bucket = boxed.data / "objects" / "buckets" / "bucket"
    bucket.mkdir(parents=True)
    (boxed.root / "train.py").write_text("print('for the toolkit')\n")
    with tarfile.open(bucket / "code.tar.gz", "w:gz") as archive:
        archive.add(boxed.root / "train.py", "train.py")
    hyperparameters = {"epochs": "3", "sagemaker_program": "train.py"}
    hyperparameters["sagemaker_submit_directory"] = "s3://bucket/code.tar.gz"
    described, said = trained(boxed, "boxed", "trainer:1", HyperParameters=hyperparameters)
    assert described["TrainingJobStatus"] == "Completed", described
    assert (said[0], json.loads(said[1])) == ("told to train as boxed", hyperparameters)
    assert said[2] == "print('for the toolkit')"
    assert any(line.split()[1:2] == ["algo-1"] for line in said[3:]), said
    messages = [stage["StatusMessage"] for stage in described["SecondaryStatusTransitions"]]
    assert not any("without the image" in message for message in messages)
    uri = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://")
    packed = (boxed.data / "objects" / "buckets" / uri).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.extractfile("weights").read() == b"weights\n"


def test_the_hosts_of_a_training_job_are_containers_that_know_one_another_by_name(
    boxed: RunningWindfall, docker_engine
):
    docker_engine.build_image("together:1", Entrypoint=["sh", "-c", TOGETHER])
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    described, said = trained(boxed, "together", "together:1", ResourceConfig=two)
    assert described["TrainingJobStatus"] == "Completed", (described, said)
    assert "algo-2 speaks" in said
    uri = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://")
    with tarfile.open(boxed.data / "objects" / "buckets" / uri) as archive:
        assert {name.lstrip("./") for name in archive.getnames()} >= {"algo-1", "algo-2"}


def test_a_training_job_with_network_isolation_has_no_network_in_its_container(
    boxed: RunningWindfall, docker_engine
):
    docker_engine.build_image("isolated:1", Entrypoint=["sh", "-c", ISOLATED])
    described, said = trained(boxed, "isolated", "isolated:1", EnableNetworkIsolation=True)
    assert described["TrainingJobStatus"] == "Completed", described
    assert [line.split(":")[0].strip() for line in said if line.count(" ") > 10 and ":" in line] == ["lo"], (
        said
    )
    assert not [line for line in said if line.startswith("AWS_SECRET_ACCESS_KEY=")]


def test_a_container_on_the_simulated_market_outlives_its_instance(docker_engine):
    running = with_engine(docker_engine, "--engine", "simulated")
    running.extra_environment |= {"WINDFALL_SIMULATED_BOOT_S": "0.2", "WINDFALL_SIMULATED_MTBI_S": "86400"}
    try:
        running.up()
        batch = a_queue(running)
        a_boxed_definition(batch, "saving", SAVING)
        job_id = submitted(batch, "saving", tags={"windfall:checkpoint": "true"})
        running.wait_for([job_id], "RUNNING")
        wait_until(lambda: "ready" in log_of(running, job_id), "the job listens")
        running.windfall("interrupt", job_id, "--notice", "20")
        (job,) = running.wait_for([job_id])
        assert (job["status"], len(job["attempts"])) == ("SUCCEEDED", 2), job
        assert job["tags"]["windfall:isolation"].startswith("container (docker ")
        assert log_of(running, job_id).splitlines()[-1] == "resumed at 41"
    finally:
        running.close()
