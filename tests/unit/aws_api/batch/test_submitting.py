"""SubmitJob: the command that a request becomes, its limits, and dependencies that have left memory."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.batch.fakes import ARN, JOB_ID, a_job
from windfall.control.events import FinishedJob, SubmitJob
from windfall.jobs.arrays import ChildTable
from windfall.jobs.definitions import ContainerOverrides
from windfall.jobs.dependencies import Dependency, DependencyType
from windfall.jobs.errors import Invalid, MissingParameter, NotFound
from windfall.jobs.ids import JobId
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.states import JobState
from windfall.jobs.submitters import Submitter

OTHER = "bbbbbbbb-0000-4000-8000-000000000002"
SUBMITTER = Submitter("default", "AKIDEXAMPLE", is_admin=True)
PLAIN = {"jobName": "night", "jobQueue": "queue", "jobDefinition": "train"}


def test_a_plain_job(world):
    answer = world.client().submit_job(**PLAIN)
    assert {name: answer[name] for name in ("jobName", "jobId", "jobArn")} == {
        "jobName": "night",
        "jobId": JOB_ID,
        "jobArn": f"{ARN}:job/{JOB_ID}",
    }
    assert world.last == SubmitJob(JOB_ID, "night", "queue", "train", submitter=SUBMITTER)
    assert world.store.asked == []


def test_a_job_with_everything(world):
    world.client().submit_job(
        jobName="night",
        jobQueue=f"{ARN}:job-queue/queue",
        jobDefinition=f"{ARN}:job-definition/train:2",
        arrayProperties={"size": 10_000},
        dependsOn=[
            {"type": "SEQUENTIAL"},
            {"jobId": OTHER, "type": "N_TO_N"},
            {"jobId": f"{ARN}:job/{OTHER}:3"},
        ],
        parameters={"p": "1"},
        containerOverrides={
            "command": ["python", "Ref::p"],
            "environment": [{"name": "EPOCHS", "value": "50"}, {"name": "EMPTY"}],
            "resourceRequirements": [{"type": "GPU", "value": "2"}, {"type": "MEMORY", "value": "64"}],
            "instanceType": "p3.2xlarge",
        },
        retryStrategy={"attempts": 10},
        timeout={"attemptDurationSeconds": 60},
        propagateTags=True,
        tags={"a": "b"},
    )
    assert world.last == SubmitJob(
        JOB_ID,
        "night",
        "queue",
        "train:2",
        array_size=10_000,
        depends_on=(
            Dependency(None, DependencyType.SEQUENTIAL),
            Dependency(JobId(OTHER), DependencyType.N_TO_N),
            Dependency(JobId(f"{OTHER}:3")),
        ),
        overrides=ContainerOverrides(
            ("python", "Ref::p"), {"EPOCHS": "50", "EMPTY": ""}, memory_mib=64, gpus=2
        ),
        parameters={"p": "1"},
        retry=RetryStrategy(10),
        timeout_s=60,
        tags={"a": "b"},
        propagate_tags=True,
        submitter=SUBMITTER,
        document='{"instanceType":"p3.2xlarge"}',
    )


def test_older_amounts_and_empty_fields_are_understood(world):
    world.call(
        "SubmitJob",
        **PLAIN,
        arrayProperties={},
        dependsOn=[],
        parameters={},
        retryStrategy={},
        timeout={},
        nodeOverrides={},
        containerOverrides={"vcpus": 2, "memory": 100, "command": [], "environment": []},
    )
    assert world.last == SubmitJob(
        JOB_ID,
        "night",
        "queue",
        "train",
        overrides=ContainerOverrides(vcpus=2, memory_mib=100),
        submitter=SUBMITTER,
    )


def test_a_dependency_on_a_job_may_be_called_sequential_by_any_job(world):
    world.client().submit_job(**PLAIN, dependsOn=[{"jobId": OTHER, "type": "SEQUENTIAL"}])
    assert world.last.depends_on == (Dependency(JobId(OTHER), DependencyType.SEQUENTIAL),)


def test_an_override_may_ask_for_a_part_of_a_vcpu(world):
    wanted = [{"type": "VCPU", "value": "0.5"}]
    world.client().submit_job(**PLAIN, containerOverrides={"resourceRequirements": wanted})
    assert world.last.overrides == ContainerOverrides(vcpus=0.5)


def test_empty_tags_are_no_tags(world):
    world.call("SubmitJob", **PLAIN, tags={})
    assert world.last.tags == {}


def test_a_tag_that_only_windfall_writes_is_left_out(world):
    world.call("SubmitJob", **PLAIN, tags={"windfall:isolation": "none", "a": "b"})
    assert world.last.tags == {"a": "b"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"jobName": ""}, "Job name should match valid pattern"),
        ({"jobName": "-x"}, "Job name should match valid pattern"),
        ({"jobName": "x\n"}, "Job name should match valid pattern"),
        ({"jobName": "x" * 129}, "Job name should match valid pattern"),
        ({"dependsOn": [{"jobId": OTHER}] * 21}, "Job cannot have more than 20 dependencies"),
        ({"jobDefinition": "a b"}, "Provided name a b is not supported pattern[a-zA-Z_0-9-]{1,128}"),
        ({"jobDefinition": "a:0"}, "Provided name a:0 is not supported pattern[a-zA-Z_0-9-]{1,128}"),
        ({"jobDefinition": f"{ARN}:job-queue/a"}, "is not the ARN of a job-definition"),
        ({"jobQueue": "arn:aws:s3:::bucket"}, "Invalid ARN arn:aws:s3:::bucket"),
        ({"arrayProperties": {"size": 1}}, "Array size must be between 2 and 10000, got 1"),
        ({"arrayProperties": {"size": 10_001}}, "Array size must be between 2 and 10000, got 10001"),
        ({"dependsOn": [{}]}, "A dependency must have a jobId"),
        ({"dependsOn": [{"type": "SEQUENTIAL"}]}, "SEQUENTIAL can only be used by an array job"),
        ({"dependsOn": [{"type": "N_TO_N", "jobId": OTHER}]}, "N_TO_N can only be used by an array job"),
        (
            {"dependsOn": [{"type": "N_TO_N"}], "arrayProperties": {"size": 2}},
            "A dependency must have a jobId",
        ),
        (
            {"dependsOn": [{"type": "N_TO_N", "jobId": f"{OTHER}:1"}], "arrayProperties": {"size": 2}},
            "must name an array job",
        ),
        ({"dependsOn": [{"jobId": "x y"}]}, "Dependency x y is not the id of a job"),
        ({"dependsOn": [{"jobId": f"{OTHER}:²"}]}, "is not the id of a job"),
        ({"dependsOn": [{"jobId": f"{OTHER}:01"}]}, "is not the id of a job"),
        ({"timeout": {"attemptDurationSeconds": 1}}, "must be at least 60 seconds"),
        (
            {"retryStrategy": {"evaluateOnExit": [{"action": "retry", "onReason": "*"}]}},
            "RetryAttempts must be provided with retry strategy",
        ),
        (
            {"containerOverrides": {"environment": [{"name": "AWS_BATCH_JOB_ID", "value": "1"}]}},
            "must not start with AWS_BATCH",
        ),
        (
            {"containerOverrides": {"resourceRequirements": [{"type": "VCPU", "value": "x"}]}},
            "Value x for type VCPU in resourceRequirement is not valid. Please provide a numeric value.",
        ),
        ({"tags": {"AWS:x": "y"}}, "which is reserved"),
        ({"parameters": {"p": "x" * 31_000}}, "Job size must be less than 30 KiB, got 31 KiB"),
    ],
)
def test_a_bad_job_is_refused(world, changes, text):
    assert text in world.refused("SubmitJob", **{**PLAIN, **changes})


def test_a_share_and_a_priority_reach_the_core_and_empty_ones_ask_for_nothing(world):
    world.call("SubmitJob", **PLAIN, shareIdentifier="a", schedulingPriorityOverride=3)
    assert (world.last.share, world.last.priority) == ("a", 3)
    world.call("SubmitJob", **PLAIN, shareIdentifier="")
    assert (world.last.share, world.last.priority) == (None, None)


def test_what_is_not_there_yet_is_refused_by_name(world):
    asked = {"podProperties": {"metadata": {"labels": {"a": "b"}}}}
    text = world.refused("SubmitJob", **PLAIN, eksPropertiesOverride=asked)
    assert "Windfall does not support eksPropertiesOverride" in text
    assert "Nothing has been changed" in text


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (MissingParameter("p"), "Unable to substitute value. No parameter found for reference p"),
        (NotFound("Job queue queue does not exist"), "Job queue queue does not exist"),
        (
            Invalid("Job Queue is attached to Compute Environment that can not run Jobs with capability EC2"),
            "Job Queue is attached to Compute Environment that can not run Jobs with capability EC2",
        ),
    ],
)
def test_the_core_s_refusal_reaches_the_caller(world, refusal, text):
    world.gate.refusal = refusal
    assert world.refused("SubmitJob", **PLAIN) == text


def test_boto3_sees_the_error_as_a_client_exception(world):
    client = world.client()
    with pytest.raises(client.exceptions.ClientException) as caught:
        client.submit_job(**{**PLAIN, "jobName": "?"})
    assert caught.value.response["Error"]["Message"].startswith(
        "Error executing request, Exception : Job name should match valid pattern, RequestId: "
    )


def test_dependencies_that_have_finished_are_told_to_the_core(world):
    ids = [f"cccccccc-0000-4000-8000-{number:012d}" for number in range(4)]
    world.store.all_jobs = {
        ids[0]: a_job(ids[0], JobState.SUCCEEDED),
        ids[1]: a_job(ids[1], JobState.RUNNING),
        ids[2]: a_job(ids[2], JobState.FAILED, rest=JobState.FAILED, submission={"array_size": 4}),
        f"{ids[2]}:1": a_job(
            f"{ids[2]}:1", JobState.SUCCEEDED, parent=ids[2], index=1, submission={"array_size": 4}
        ),
    }
    wanted = [*ids, f"{ids[2]}:1", f"{ids[2]}:2", f"{ids[2]}:4", f"{ids[3]}:0"]
    world.call("SubmitJob", **PLAIN, dependsOn=[{"jobId": job_id} for job_id in wanted])
    assert world.last.finished == (
        FinishedJob(ids[0], JobState.SUCCEEDED),
        FinishedJob(ids[2], JobState.FAILED, 4),
        FinishedJob(f"{ids[2]}:1", JobState.SUCCEEDED),
        FinishedJob(f"{ids[2]}:2", JobState.FAILED),
    )
    assert len(world.store.asked) == 1


def test_how_the_children_of_a_failed_array_ended_is_told_to_an_array_that_follows_them(world):
    array = {"parent": OTHER, "submission": {"array_size": 3}}
    table = ChildTable.of(3, JobState.FAILED)
    table.load(1, JobState.SUCCEEDED)
    summary = table.summary()
    world.store.all_jobs = {
        OTHER: a_job(
            OTHER, JobState.FAILED, rest=JobState.FAILED, summary=summary, submission={"array_size": 3}
        ),
        f"{OTHER}:1": a_job(f"{OTHER}:1", JobState.SUCCEEDED, index=1, **array),
    }
    asked = {**PLAIN, "arrayProperties": {"size": 3}, "dependsOn": [{"jobId": OTHER, "type": "N_TO_N"}]}
    world.call("SubmitJob", **asked)
    assert world.last.finished == (FinishedJob(OTHER, JobState.FAILED, 3, bytes(table.states)),)
    # Old jobs are removed in steps, children first: then it cannot be known any more.
    del world.store.all_jobs[f"{OTHER}:1"]
    world.call("SubmitJob", **asked)
    assert world.last.finished == ()
