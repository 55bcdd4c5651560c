"""Job queues: order of environments, what is kept, and the front of a queue."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.batch.fakes import ARN, JOB_ID, NOW, a_queue
from windfall.capacity.environments import StateTimeLimit, Switch
from windfall.control.events import DeleteJobQueue
from windfall.jobs.errors import Conflict, NotFound

LIMITS = [
    {
        "reason": "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
        "state": "RUNNABLE",
        "maxTimeSeconds": 600,
        "action": "CANCEL",
    }
]


def order(*environments: str) -> list[dict]:
    return [{"order": place, "computeEnvironment": name} for place, name in enumerate(environments, 1)]


def request(**changes) -> dict:
    return {"jobQueueName": "q", "priority": 10, "computeEnvironmentOrder": order("env"), **changes}


def test_a_queue_is_created_and_described(world):
    client = world.client()
    created = client.create_job_queue(
        jobQueueName="gpu-job-queue",
        state="ENABLED",
        priority=10,
        computeEnvironmentOrder=[
            {"order": 20, "computeEnvironment": "slow"},
            {"order": 3, "computeEnvironment": f"{ARN}:compute-environment/fast"},
        ],
        jobStateTimeLimitActions=LIMITS,
        tags={"a": "b"},
    )
    assert created["jobQueueArn"] == f"{ARN}:job-queue/gpu-job-queue"
    queue = world.last.queue
    assert (queue.environments, queue.priority, queue.created_at) == (("fast", "slow"), 10, NOW)
    (detail,) = client.describe_job_queues(jobQueues=["gpu-job-queue"])["jobQueues"]
    assert detail == {
        "jobQueueName": "gpu-job-queue",
        "jobQueueArn": f"{ARN}:job-queue/gpu-job-queue",
        "state": "ENABLED",
        "status": "VALID",
        "statusReason": "JobQueue Healthy",
        "priority": 10,
        "computeEnvironmentOrder": [
            {"order": 3, "computeEnvironment": f"{ARN}:compute-environment/fast"},
            {"order": 20, "computeEnvironment": f"{ARN}:compute-environment/slow"},
        ],
        "jobStateTimeLimitActions": LIMITS,
        "tags": {"a": "b"},
    }


def test_a_queue_without_state_is_enabled(world):
    world.call("CreateJobQueue", **request())
    assert world.last.queue.switch is Switch.ENABLED


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"jobQueueName": "ä"}, "must have 1 to 128 letters"),
        ({"computeEnvironmentOrder": []}, "1 to 3 compute environments, got 0"),
        ({"computeEnvironmentOrder": order("a", "b", "c", "d")}, "1 to 3 compute environments, got 4"),
        ({"computeEnvironmentOrder": order("a", "a")}, "same compute environment twice"),
        (
            {"computeEnvironmentOrder": [{"order": 1, "computeEnvironment": x} for x in "ab"]},
            "same order twice",
        ),
        ({"priority": -1}, "priority must not be negative"),
        ({"jobQueueType": "SAGEMAKER_TRAINING"}, "must name the service environment"),
        ({"jobQueueType": "EKS"}, "Windfall does not support jobQueueType EKS"),
        (
            {"serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": "s"}]},
            "cannot be used together",
        ),
        ({"jobStateTimeLimitActions": [{**LIMITS[0], "maxTimeSeconds": 599}]}, "between 600 and 86400"),
        ({"jobStateTimeLimitActions": [{**LIMITS[0], "maxTimeSeconds": 86_401}]}, "between 600 and 86400"),
        (
            {"jobStateTimeLimitActions": [{**LIMITS[0], "action": "TERMINATE"}]},
            "must be CANCEL, got TERMINATE",
        ),
        (
            {"jobStateTimeLimitActions": [{**LIMITS[0], "reason": "bored"}]},
            "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
        ),
        ({"jobStateTimeLimitActions": [{**LIMITS[0], "state": "RUNNING"}]}, "RUNNABLE"),
        ({"jobStateTimeLimitActions": [{"reason": LIMITS[0]["reason"]}]}, "maxTimeSeconds"),
    ],
)
def test_a_contradictory_queue_is_refused(world, changes, text):
    assert text in world.refused("CreateJobQueue", **request(**changes))


def test_no_environments_at_all_is_refused(world):
    assert "got 0" in world.refused("CreateJobQueue", jobQueueName="q", priority=1)


def test_an_update_changes_what_it_names_and_keeps_the_rest(world):
    world.call("CreateJobQueue", **request(jobStateTimeLimitActions=LIMITS))
    world.call("UpdateJobQueue", jobQueue=f"{ARN}:job-queue/q", state="DISABLED")
    assert (world.last.switch, world.last.priority, world.last.environments) == (Switch.DISABLED, None, None)
    world.call("UpdateJobQueue", jobQueue="q", priority=3, computeEnvironmentOrder=order("x", "y"))
    (detail,) = world.call("DescribeJobQueues")["jobQueues"]
    assert (detail["state"], detail["priority"]) == ("DISABLED", 3)
    assert [
        entry["computeEnvironment"].rpartition("/")[2] for entry in detail["computeEnvironmentOrder"]
    ] == ["x", "y"]
    assert detail["jobStateTimeLimitActions"] == LIMITS


def test_the_core_is_told_how_long_a_head_may_be_blocked(world):
    world.call("CreateJobQueue", **request(jobStateTimeLimitActions=LIMITS))
    told = (StateTimeLimit("MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT", 600),)
    assert world.last.queue.time_limits == told
    world.call("UpdateJobQueue", jobQueue="q", priority=3)
    assert world.last.time_limits == told, "what an update does not name stays"
    world.call(
        "UpdateJobQueue", jobQueue="q", jobStateTimeLimitActions=[{**LIMITS[0], "maxTimeSeconds": 86_400}]
    )
    assert [limit.max_time_s for limit in world.last.time_limits] == [86_400]
    world.call("UpdateJobQueue", jobQueue="q", jobStateTimeLimitActions=[])
    assert world.last.time_limits == ()
    assert "between" in world.refused(
        "UpdateJobQueue", jobQueue="q", jobStateTimeLimitActions=[{**LIMITS[0], "maxTimeSeconds": 0}]
    )


def test_the_core_refuses_by_its_own_sentences(world):
    world.gate.refusal = NotFound("env does not exist")
    assert world.refused("CreateJobQueue", **request()) == "env does not exist"
    assert world.refused("UpdateJobQueue", jobQueue="q", state="ENABLED") == "env does not exist"
    world.gate.refusal = Conflict("Cannot delete, state must be DISABLED")
    assert world.refused("DeleteJobQueue", jobQueue="q") == "Cannot delete, state must be DISABLED"


def test_a_queue_is_deleted_by_arn(world):
    world.call("DeleteJobQueue", jobQueue=f"{ARN}:job-queue/q")
    assert world.last == DeleteJobQueue("q")


def test_the_front_of_a_queue_is_in_dispatch_order(world):
    world.store.all_queues["queue"] = a_queue()
    world.gate.front = [(JOB_ID, NOW - 5), (f"{JOB_ID}:3", NOW)] + [(JOB_ID, NOW)] * 200
    answer = world.client().get_job_queue_snapshot(jobQueue=f"{ARN}:job-queue/queue")
    jobs = answer["frontOfQueue"]["jobs"]
    assert len(jobs) == 100
    assert jobs[0] == {"jobArn": f"{ARN}:job/{JOB_ID}", "earliestTimeAtPosition": NOW - 5}
    assert jobs[1]["jobArn"] == f"{ARN}:job/{JOB_ID}:3"
    assert answer["frontOfQueue"]["lastUpdatedAt"] == NOW


def test_an_unknown_queue_has_no_front(world):
    assert world.refused("GetJobQueueSnapshot", jobQueue="nope") == f"{ARN}:job-queue/nope does not exist"
