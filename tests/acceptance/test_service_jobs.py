"""Service jobs with an unmodified boto3 over a real daemon: training jobs wait, run, leave and survive a kill -9."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.gate import Gate
from tests.waiting import wait_until

TYPE = "ml.m5.large"
ENDED = ("SUCCEEDED", "FAILED")


def a_payload(name: str, command: str, instances: int = 1) -> str:
    return json.dumps(
        {
            "TrainingJobName": name,
            "RoleArn": "arn:aws:iam::123456789012:role/Training",
            "AlgorithmSpecification": {
                "TrainingImage": "windfall/host",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["bash", "-c", command],
            },
            "OutputDataConfig": {"S3OutputPath": "s3://windfall/out"},
            "ResourceConfig": {"InstanceType": TYPE, "InstanceCount": instances, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        }
    )


class Services:
    """A queue of service jobs on a daemon."""

    def __init__(self, windfall: RunningWindfall, name: str, unit: str, capacity: int, **queue: Any) -> None:
        self.windfall, self.name = windfall, name
        self.batch, self.sagemaker = windfall.client("batch"), windfall.client("sagemaker")
        self.batch.create_service_environment(
            serviceEnvironmentName=name,
            serviceEnvironmentType="SAGEMAKER_TRAINING",
            capacityLimits=[{"maxCapacity": capacity, "capacityUnit": unit}],
        )
        self.batch.create_job_queue(
            jobQueueName=name,
            priority=1,
            jobQueueType="SAGEMAKER_TRAINING",
            serviceEnvironmentOrder=[{"order": 1, "serviceEnvironment": name}],
            **queue,
        )

    def submit(self, name: str, command: str, payload: str | None = None, **more: Any) -> str:
        answer = self.batch.submit_service_job(
            jobName=name,
            jobQueue=self.name,
            serviceJobType="SAGEMAKER_TRAINING",
            serviceRequestPayload=payload or a_payload(name, command),
            **more,
        )
        return str(answer["jobId"])

    def describe(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.batch.describe_service_job(jobId=job_id)
        return found

    def reaches(self, job_id: str, *states: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.update(self.describe(job_id))
            return found["status"] in states

        wait_until(reached, f"{job_id} in {states}", interval_s=0.1)
        return found


def test_training_jobs_take_turns_by_priority_and_are_tried_again(
    windfall: RunningWindfall, gate: Gate
) -> None:
    services = Services(windfall, "turns", "NUM_INSTANCES", 1)
    first = services.submit("first", gate.wait)
    second, third = services.submit("second", "true"), services.submit("third", "true")
    services.batch.update_service_job(jobId=third, schedulingPriority=5)
    front = services.batch.get_job_queue_snapshot(jobQueue="turns")["frontOfQueue"]["jobs"]
    assert [job["jobArn"].rpartition("/")[2] for job in front] == [third, second]
    running = services.reaches(first, "RUNNING")
    assert running["capacityUsage"] == [{"capacityUnit": "NUM_INSTANCES", "quantity": 1.0}]
    resource = running["latestAttempt"]["serviceResourceId"]
    training = resource["value"].rpartition("/")[2]
    assert training.startswith("AWSBatchfirst")
    described = services.sagemaker.describe_training_job(TrainingJobName=training)
    assert described["TrainingJobStatus"] == "InProgress"
    gate.open()

    rules = [
        {"action": "RETRY", "onStatusReason": "Received status from SageMaker:AlgorithmError*"},
        {"action": "EXIT", "onStatusReason": "*"},
    ]
    again = services.submit("again", "exit 3", retryStrategy={"attempts": 2, "evaluateOnExit": rules})
    refused = services.submit("refused", "", payload='{"TrainingJobName": "x"}')
    ended = {job: services.reaches(job, *ENDED) for job in (first, second, third, again, refused)}
    assert [ended[job]["status"] for job in (first, second, third)] == ["SUCCEEDED"] * 3
    assert ended[third]["startedAt"] < ended[second]["startedAt"]
    assert ended[first]["statusReason"] == "Received status from SageMaker: Training job completed"
    assert ended[again]["status"] == "FAILED"
    assert [one["statusReason"] for one in ended[again]["attempts"]] == [
        "Received status from SageMaker: AlgorithmError: , exit code: 3"
    ] * 2
    assert ended[refused]["statusReason"].startswith("Received status from SageMaker: ValidationException: ")

    stopped = services.submit("stopped", "sleep 600")
    name = services.reaches(stopped, "RUNNING")["latestAttempt"]["serviceResourceId"]["value"]
    services.batch.terminate_service_job(jobId=stopped, reason="enough")
    found = services.reaches(stopped, *ENDED)
    assert (found["status"], found["statusReason"], found["isTerminated"]) == ("FAILED", "enough", True)
    described = services.sagemaker.describe_training_job(TrainingJobName=name.rpartition("/")[2])
    assert described["TrainingJobStatus"] == "Stopped"
    listed = services.batch.list_service_jobs(jobQueue="turns", jobStatus="SUCCEEDED")["jobSummaryList"]
    assert {job["jobId"] for job in listed} == {first, second, third}


def test_a_training_on_two_instances_holds_both_until_all_its_hosts_have_ended(
    windfall: RunningWindfall, gate: Gate
) -> None:
    services = Services(windfall, "both", "NUM_INSTANCES", 2)
    # The first host ends at once, the second one later.
    first_host = """grep -q '"current_host": "algo-1"' /opt/ml/input/config/resourceconfig.json"""
    command = f"{first_host} || {{ {gate.wait}; }}"
    both = services.submit("both", "", payload=a_payload("both", command, instances=2))
    behind = services.submit("behind", "true")
    running = services.reaches(both, "RUNNING")
    assert running["capacityUsage"] == [{"capacityUnit": "NUM_INSTANCES", "quantity": 2.0}]
    assert services.describe(behind)["status"] == "RUNNABLE"
    gate.open()
    ended = [services.reaches(job, *ENDED) for job in (both, behind)]
    assert [job["status"] for job in ended] == ["SUCCEEDED"] * 2, ended
    assert ended[1]["startedAt"] >= ended[0]["stoppedAt"]


def test_lent_instances_are_taken_back_and_the_borrower_runs_again(windfall: RunningWindfall) -> None:
    policy = windfall.client("batch").create_scheduling_policy(
        name="lending", quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"}
    )["arn"]
    services = Services(windfall, "lending", TYPE, 2, schedulingPolicyArn=policy)
    for share in ("owner", "guest"):
        services.batch.create_quota_share(
            quotaShareName=share,
            jobQueue="lending",
            capacityLimits=[{"maxCapacity": 1, "capacityUnit": TYPE}],
            resourceSharingConfiguration={"strategy": "LEND_AND_BORROW"},
            preemptionConfiguration={"inSharePreemption": "DISABLED"},
        )
    guests = [services.submit(f"guest-{n}", "sleep 600", quotaShareName="guest") for n in range(2)]
    for guest in guests:
        services.reaches(guest, "RUNNING")
    owner = services.submit("owner", "sleep 1", quotaShareName="owner")
    assert services.reaches(owner, *ENDED)["status"] == "SUCCEEDED"

    def preempted() -> list[str]:
        return [
            guest
            for guest in guests
            if services.describe(guest)["preemptionSummary"]["preemptedAttemptCount"] == 1
        ]

    (victim,) = preempted()
    (attempt,) = services.describe(victim)["preemptionSummary"]["recentPreemptedAttempts"]
    assert attempt["statusReason"] == "Cross-share preemption triggered to reclaim borrowed capacity"
    services.reaches(victim, "RUNNING")
    services.batch.terminate_service_jobs(jobs=guests, reason="over")
    assert [services.reaches(guest, *ENDED)["status"] for guest in guests] == ["FAILED", "FAILED"]


def test_a_killed_daemon_creates_the_training_job_once(fresh: Callable[..., RunningWindfall]) -> None:
    windfall = fresh()
    services = Services(windfall, "killed", "NUM_INSTANCES", 1)
    jobs = [services.submit(f"job-{n}", "sleep 1") for n in range(2)]
    windfall.kill_daemon()
    windfall.up()
    services.batch, services.sagemaker = windfall.client("batch"), windfall.client("sagemaker")
    ended = [services.reaches(job, *ENDED) for job in jobs]
    assert [job["status"] for job in ended] == ["SUCCEEDED", "SUCCEEDED"]
    assert [len(job["attempts"]) for job in ended] == [1, 1]
    assert ended[0]["stoppedAt"] <= ended[1]["startedAt"]
    trainings = services.sagemaker.list_training_jobs()["TrainingJobSummaries"]
    assert sorted(it["TrainingJobName"][:13] for it in trainings) == ["AWSBatchjob-0", "AWSBatchjob-1"]
