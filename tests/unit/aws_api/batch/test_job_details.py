"""DescribeJobs: every field that clients read, for single jobs, arrays, children and retried jobs."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.unit.aws_api.batch.fakes import ACCOUNT, ARN, JOB_ID, NOW, REGION, a_definition, a_job, an_attempt
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.job_details import describe_jobs
from windfall.aws_api.protocol.service import Call, Caller, Role
from windfall.jobs.containers import ContainerOptions, Mount
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec
from windfall.jobs.dependencies import Dependency, DependencyType
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.ids import JobId, attempt_token, task_id
from windfall.jobs.resources import Resources
from windfall.jobs.retry import Action, ExitRule, RetryStrategy
from windfall.jobs.states import JobState
from windfall.jobs.storage import StorageLayout
from windfall.jobs.submitters import Submitter

OTHER = JobId("bbbbbbbb-0000-4000-8000-000000000002")
TASK = task_id(attempt_token(JOB_ID, 1), 0)


@pytest.fixture
def described(world):
    """Describes a job that the store has, as boto3 sees it."""
    world.store.all_definitions["train:1"] = a_definition()

    def describe(job):
        world.store.all_jobs[job.id] = job
        (detail,) = world.client().describe_jobs(jobs=[job.id])["jobs"]
        return detail

    return describe


def test_a_waiting_job(described):
    detail = described(a_job(submission={"tags": {"a": "b"}, "propagate_tags": True, "timeout_s": 90}))
    assert detail == {
        "jobArn": f"{ARN}:job/{JOB_ID}",
        "jobName": "night",
        "jobId": JOB_ID,
        "jobQueue": f"{ARN}:job-queue/queue",
        "status": "RUNNABLE",
        "attempts": [],
        "createdAt": NOW,
        "retryStrategy": {"attempts": 1, "evaluateOnExit": []},
        "dependsOn": [],
        "jobDefinition": f"{ARN}:job-definition/train:1",
        "parameters": {"what": "all"},
        "container": {
            "image": "img",
            "command": ["run", "all"],
            "volumes": [],
            "environment": [{"name": "A", "value": "1"}],
            "mountPoints": [],
            "ulimits": [],
            "resourceRequirements": [{"type": "MEMORY", "value": "128"}, {"type": "VCPU", "value": "1"}],
            "secrets": [],
            "privileged": False,
            "linuxParameters": {"sharedMemorySize": 64},
            "networkInterfaces": [],
        },
        "timeout": {"attemptDurationSeconds": 90},
        "tags": {"a": "b"},
        "propagateTags": True,
        "platformCapabilities": ["EC2"],
        "isCancelled": False,
        "isTerminated": False,
    }


def test_overrides_and_parameters_are_merged_into_the_container(described):
    overrides = ContainerOverrides(("go", "Ref::what"), {"A": "2", "B": "3"}, memory_mib=256, gpus=2)
    detail = described(
        a_job(
            submission={
                "overrides": overrides,
                "parameters": {"what": "this"},
                "resources": Resources(1, 256, 2),
                "document": '{"instanceType":"p3"}',
            }
        )
    )
    container = detail["container"]
    assert container["command"] == ["go", "this"]
    assert container["environment"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    assert container["resourceRequirements"] == [
        {"type": "MEMORY", "value": "256"},
        {"type": "VCPU", "value": "1"},
        {"type": "GPU", "value": "2"},
    ]
    assert container["instanceType"] == "p3"
    assert detail["parameters"] == {"what": "this"}


def test_older_amounts_come_back_where_they_were_sent(world, described):
    document = {"containerProperties": {"image": "img", "vcpus": 1, "memory": 64}}
    world.store.all_definitions["train:1"] = a_definition(
        container=ContainerSpec("img", Resources(1, 64)), document=msgspec.json.encode(document).decode()
    )
    container = described(a_job(submission={"resources": Resources(4, 128)}))["container"]
    assert (container["vcpus"], container["memory"], container["resourceRequirements"]) == (4, 128, [])


def test_parts_of_a_vcpu_are_shown_as_they_are_asked_for(described):
    detail = described(a_job(submission={"resources": Resources(0.25, 128)}))
    assert {"type": "VCPU", "value": "0.25"} in detail["container"]["resourceRequirements"]


def test_a_starting_job_has_a_task_and_no_log_yet(described):
    container = described(a_job(state=JobState.STARTING, attempts=[an_attempt()]))["container"]
    assert container["taskArn"] == f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/AWSBatch-env/{TASK}"
    assert (
        container["containerInstanceArn"]
        == f"arn:aws:ecs:{REGION}:{ACCOUNT}:container-instance/AWSBatch-env/i-1"
    )
    assert "logStreamName" not in container


def test_a_running_job_has_a_log_and_no_ended_attempt(described):
    attempt = an_attempt(started_at=NOW + 20, isolation="cgroup v2; private /dev/shm")
    detail = described(a_job(state=JobState.RUNNING, started_at=NOW + 20, attempts=[attempt]))
    assert detail["container"]["logStreamName"] == f"train/default/{TASK}"
    assert detail["startedAt"] == NOW + 20
    assert detail["attempts"] == []
    assert detail["tags"] == {"windfall:isolation": "cgroup v2; private /dev/shm"}


def test_why_an_attempt_failed_is_a_tag_that_aws_would_allow(described):
    diagnosis = Diagnosis(FailureCause.GPU_MEMORY, "CUDA out of memory. " * 15)
    detail = described(a_job(state=JobState.FAILED, attempts=[an_attempt(diagnosis=diagnosis)]))
    told = detail["tags"]["windfall:diagnosis"]
    assert told.startswith("gpu-out-of-memory: CUDA out of memory.")
    assert len(told) == 256


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        (None, None),
        ("process + cgroup v2 (memory, cpu)", "user, mountPoints, linuxParameters.sharedMemorySize"),
        ("warm worker, process", "user, mountPoints, linuxParameters.sharedMemorySize"),
        ("namespaces without bubblewrap + cgroup v1 (memory)", "user, mountPoints"),
        ("bubblewrap", "user, mountPoints"),
        ("container (docker 28.2.2)", None),
    ],
)
def test_a_process_says_what_of_its_definition_means_nothing_to_it(world, described, isolation, expected):
    options = ContainerOptions(user="app", mounts=(Mount(None, "/scratch"),))
    container = ContainerSpec("img", Resources(1, 64), options=options, shared_memory_mib=128)
    world.store.all_definitions["train:1"] = a_definition(container=container)
    detail = described(a_job(state=JobState.RUNNING, attempts=[an_attempt(isolation=isolation)]))
    assert detail["tags"].get("windfall:not-applied") == expected


@pytest.mark.parametrize(
    ("storage", "is_admin", "has_role", "expected"),
    [
        (
            StorageLayout(bucket_home="file:///b"),
            True,
            True,
            "jobRoleArn (there is no S3: see windfall up --s3)",
        ),
        (StorageLayout(), False, True, "jobRoleArn (the setting job_role is missing)"),
        (StorageLayout(), True, True, None),
        (StorageLayout(gives_sessions=True), False, True, None),
        (StorageLayout(bucket_home="file:///b"), True, False, None),
    ],
)
def test_a_role_that_opens_nothing_is_named_with_the_reason(world, storage, is_admin, has_role, expected):
    container = ContainerSpec("img", Resources(1, 64), has_role=has_role)
    world.store.all_definitions["train:1"] = a_definition(container=container)
    job = a_job(submission={"submitter": Submitter(is_admin=is_admin)})
    world.store.all_jobs[job.id] = job
    context = BatchContext(world.gate, ACCOUNT, lambda: JOB_ID, lambda: NOW, storage)
    caller = Caller("k", Role.READ, "t")
    call = Call("batch", "DescribeJobs", {"jobs": [job.id]}, caller, REGION, "request", 10)
    (detail,) = asyncio.run(describe_jobs(context, call))["jobs"]
    assert detail["tags"].get("windfall:not-applied") == expected


def test_a_retried_job_shows_each_attempt_and_mirrors_the_last(described):
    lost = an_attempt(
        1, started_at=NOW + 20, stopped_at=NOW + 30, status_reason="Host EC2 (instance i-1) terminated."
    )
    failed = an_attempt(
        2,
        started_at=NOW + 40,
        stopped_at=NOW + 50,
        exit_code=137,
        reason="OutOfMemoryError: " + "x" * 300,
        status_reason="Essential container in task exited",
    )
    rules = (ExitRule(Action.RETRY, on_status_reason="Host EC2*"), ExitRule(Action.EXIT, on_reason="*"))
    detail = described(
        a_job(
            state=JobState.FAILED,
            started_at=NOW + 40,
            stopped_at=NOW + 50,
            status_reason="Essential container in task exited",
            attempts=[lost, failed],
            submission={"retry": RetryStrategy(2, rules)},
        )
    )
    first, second = detail["attempts"]
    assert "exitCode" not in first["container"]
    assert first["statusReason"] == "Host EC2 (instance i-1) terminated."
    assert (second["container"]["exitCode"], second["startedAt"], second["stoppedAt"]) == (
        137,
        NOW + 40,
        NOW + 50,
    )
    assert len(second["container"]["reason"]) == 255
    assert detail["container"]["exitCode"] == 137
    assert detail["container"]["taskArn"] == second["container"]["taskArn"] != first["container"]["taskArn"]
    assert (detail["statusReason"], detail["stoppedAt"]) == ("Essential container in task exited", NOW + 50)
    assert detail["retryStrategy"] == {
        "attempts": 2,
        "evaluateOnExit": [
            {"onStatusReason": "Host EC2*", "action": "retry"},
            {"onReason": "*", "action": "exit"},
        ],
    }


def test_exit_code_zero_is_shown(described):
    attempt = an_attempt(started_at=NOW, stopped_at=NOW + 1, exit_code=0)
    assert described(a_job(state=JobState.SUCCEEDED, attempts=[attempt]))["container"]["exitCode"] == 0


def test_dependencies_and_stops_are_shown(described):
    detail = described(
        a_job(
            state=JobState.FAILED,
            cancelled=True,
            terminated=True,
            status_reason="enough",
            submission={
                "array_size": 2,
                "depends_on": (
                    Dependency(OTHER, DependencyType.N_TO_N),
                    Dependency(None, DependencyType.SEQUENTIAL),
                ),
            },
        )
    )
    assert detail["dependsOn"] == [{"jobId": OTHER, "type": "N_TO_N"}, {"type": "SEQUENTIAL"}]
    assert (detail["isCancelled"], detail["isTerminated"], detail["statusReason"]) == (True, True, "enough")


def test_an_array_tells_how_its_children_stand(described):
    summary = {**dict.fromkeys(JobState, 0), JobState.RUNNING: 2, JobState.RUNNABLE: 3}
    counts = {state.value: count for state, count in summary.items()}
    detail = described(
        a_job(state=JobState.PENDING, summary=counts, summary_at=NOW + 9, submission={"array_size": 5})
    )
    assert detail["arrayProperties"] == {
        "size": 5,
        "statusSummary": counts,
        "statusSummaryLastUpdatedAt": NOW + 9,
    }


def test_a_new_array_has_a_summary_too(described):
    detail = described(a_job(state=JobState.PENDING, rest=JobState.RUNNABLE, submission={"array_size": 5}))
    assert detail["arrayProperties"]["statusSummary"]["RUNNABLE"] == 5
    assert sum(detail["arrayProperties"]["statusSummary"].values()) == 5


def test_children_with_and_without_a_record(world):
    world.store.all_definitions["train:1"] = a_definition()
    array = {"array_size": 3}
    world.store.all_jobs = {
        JOB_ID: a_job(
            state=JobState.PENDING,
            rest=JobState.FAILED,
            rest_reason="Dependent Job failed",
            rest_at=NOW + 7,
            submission=array,
        ),
        f"{JOB_ID}:1": a_job(f"{JOB_ID}:1", JobState.RUNNING, parent=JOB_ID, index=1, submission=array),
    }
    asked = [f"{JOB_ID}:2", f"{ARN}:job/{JOB_ID}:1", f"{JOB_ID}:3", f"{JOB_ID}:x", JOB_ID]
    details = world.client().describe_jobs(jobs=asked)["jobs"]
    assert [detail["jobId"] for detail in details] == [f"{JOB_ID}:2", f"{JOB_ID}:1", JOB_ID]
    resting, running, parent = details
    assert (resting["status"], resting["statusReason"], resting["stoppedAt"]) == (
        "FAILED",
        "Dependent Job failed",
        NOW + 7,
    )
    assert (resting["arrayProperties"], resting["jobArn"]) == ({"index": 2}, f"{ARN}:job/{JOB_ID}:2")
    assert (running["arrayProperties"], running["status"]) == ({"index": 1}, "RUNNING")
    assert parent["arrayProperties"]["size"] == 3


def test_unknown_jobs_are_left_out_and_order_is_kept(world):
    world.store.all_jobs = {job_id: a_job(job_id) for job_id in (JOB_ID, OTHER)}
    jobs = world.call("DescribeJobs", jobs=[OTHER, "nope", "²", f"{OTHER}#1", f"{ARN}:job/{JOB_ID}", OTHER])[
        "jobs"
    ]
    assert [job["jobId"] for job in jobs] == [OTHER, JOB_ID]
    assert world.call("DescribeJobs", jobs=["a b"]) == {"jobs": []}


def test_a_job_whose_definition_is_gone_can_still_be_described(world):
    world.store.all_jobs[JOB_ID] = a_job()
    (detail,) = world.call("DescribeJobs", jobs=[JOB_ID])["jobs"]
    assert (detail["jobDefinition"], detail["container"]) == (f"{ARN}:job-definition/train:1", {})


def test_more_than_a_hundred_jobs_are_refused(world):
    assert world.refused("DescribeJobs", jobs=["x"] * 101) == "Maximum number of jobs supported is  100 ."
    assert world.call("DescribeJobs", jobs=["x"] * 100) == {"jobs": []}
