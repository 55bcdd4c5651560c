"""Describe, list, stop, delete, update and tag training jobs, with a real boto3 client over a real store."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from botocore.exceptions import ClientError, WaiterError
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.unit.aws_api.sagemaker.world import (
    ARN,
    NOW,
    REGION,
    SPOT,
    a_channel,
    a_request,
    a_training_job,
    an_attempt,
)
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Role
from windfall.aws_api.sagemaker.service import OPERATIONS
from windfall.control.events import DeleteTraining, TerminateJob
from windfall.control.why import Why
from windfall.jobs.attempts import StopCause
from windfall.jobs.job import JobKind
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, SUCCEEDED
from windfall.jobs.submitters import Submitter

FULL = {
    **SPOT,
    "HyperParameters": {"lr": "0.1"},
    "InputDataConfig": [a_channel("train")],
    "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    "EnableNetworkIsolation": True,
    "DebugHookConfig": {"S3OutputPath": "s3://bucket/debug", "CollectionConfigurations": []},
    "ProfilerConfig": {"DisableProfiler": True},
    "ExperimentConfig": {"TrialName": "trial"},
    "Environment": {"A": "b"},
    "RetryStrategy": {"MaximumRetryAttempts": 2},
    "TensorBoardOutputConfig": {"S3OutputPath": "s3://bucket/tb"},
}


def ended(name="first", **more):
    attempt = an_attempt(name=name, placed=1, started=2, exited=50, stopped=60, exit_code=0)
    return a_training_job(name, SUCCEEDED, attempts=[attempt], stopped_at=NOW + 60_000, **more)


def code_of(error) -> str:
    return error.value.response["Error"]["Code"]


def test_what_was_sent_comes_back(world):
    client = world.client()
    client.create_training_job(**a_request(**FULL))
    described = client.describe_training_job(TrainingJobName="first")
    for member, sent in FULL.items():
        assert described[member] == sent
    assert described["OutputDataConfig"] == {"KmsKeyId": "", "S3OutputPath": "s3://bucket/out"}
    assert described["TrainingJobArn"] == f"{ARN}/first"
    assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Starting")
    assert described["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bucket/out/first/output/model.tar.gz"
    assert described["CreationTime"].timestamp() == NOW / 1000
    assert described["EnableInterContainerTrafficEncryption"] is False
    (transition,) = described["SecondaryStatusTransitions"]
    assert transition["StatusMessage"]
    assert "EndTime" not in transition


def test_a_silent_request_has_aws_s_defaults(world):
    world.call("CreateTrainingJob", **a_request(StoppingCondition={}))
    described = world.call("DescribeTrainingJob", TrainingJobName="first")
    assert described["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}
    assert described["EnableManagedSpotTraining"] is False
    assert "CheckpointConfig" not in described


def test_a_job_that_waits_is_explained(world):
    world.gate.keep(a_training_job())
    world.gate.reason = Why("training-first", RUNNABLE, [("busy", "job x holds the GPU")])
    (transition,) = world.call("DescribeTrainingJob", TrainingJobName="first")["SecondaryStatusTransitions"]
    assert transition["StatusMessage"] == "Starting the training job. It waits: job x holds the GPU."
    capacity = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - The job queue's compute environment has none"
    world.gate.reason = Why("training-first", RUNNABLE, [], aws_reason=capacity)
    (transition,) = world.call("DescribeTrainingJob", TrainingJobName="first")["SecondaryStatusTransitions"]
    assert transition["StatusMessage"].startswith("Insufficient capacity error from EC2")


def test_the_stock_waiter_works(world):
    waiter = world.client().get_waiter("training_job_completed_or_stopped")
    world.gate.keep(ended())
    waiter.wait(TrainingJobName="first")
    with pytest.raises(WaiterError, match="ValidationException"):
        waiter.wait(TrainingJobName="unknown")


@pytest.mark.parametrize(
    "operation", ["DescribeTrainingJob", "StopTrainingJob", "DeleteTrainingJob", "UpdateTrainingJob"]
)
def test_an_unknown_job_is_a_validation_error(world, operation):
    assert world.refused(operation, TrainingJobName="nobody") == "Requested resource not found."


def test_stopping(world):
    world.gate.keep(a_training_job(state=RUNNING, attempts=[an_attempt(placed=1, started=2)]))
    world.client().stop_training_job(TrainingJobName="first")
    assert world.last == TerminateJob("training-first", "Stopped by StopTrainingJob")
    world.gate.keep(ended("done"))
    assert world.refused("StopTrainingJob", TrainingJobName="done") == (
        "The request was rejected because the training job is in status Completed."
    )


def test_deleting_is_for_what_has_ended(world):
    client = world.client()
    world.gate.keep(
        a_training_job("runs", RUNNING, attempts=[an_attempt(name="runs", placed=1, started=2)]),
        ended(),
    )
    with pytest.raises(ClientError) as caught:
        client.delete_training_job(TrainingJobName="runs")
    assert code_of(caught) == "ResourceInUse"
    client.delete_training_job(TrainingJobName="first")
    assert world.last == DeleteTraining("training-first")
    with pytest.raises(ClientError) as caught:
        client.describe_training_job(TrainingJobName="first")
    assert code_of(caught) == "ValidationException"


def test_updating_what_may_be_updated(world):
    world.gate.keep(a_training_job(state=RUNNING, attempts=[an_attempt(placed=1, started=2)]))
    client = world.client()
    answer = client.update_training_job(
        TrainingJobName="first",
        ProfilerConfig={"DisableProfiler": True},
        ResourceConfig={"KeepAlivePeriodInSeconds": 60},
        RemoteDebugConfig={"EnableRemoteDebug": True},
    )
    assert answer["TrainingJobArn"] == f"{ARN}/first"
    described = client.describe_training_job(TrainingJobName="first")
    assert described["ProfilerConfig"] == {"DisableProfiler": True}
    assert described["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert described["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
    assert described["ResourceConfig"]["InstanceType"] == "ml.m5.large"
    assert described["WarmPoolStatus"] == {"Status": "InUse"}


def test_updating_at_the_wrong_time(world):
    world.gate.keep(a_training_job(), ended("done"))
    assert "it is Starting" in world.refused(
        "UpdateTrainingJob", TrainingJobName="first", RemoteDebugConfig={"EnableRemoteDebug": True}
    )
    assert "in status Completed" in world.refused("UpdateTrainingJob", TrainingJobName="done")


def test_tags(world):
    client = world.client()
    world.gate.keep(a_training_job(tags={"team": "vision"}))
    wrong = [{"Key": "windfall:budget", "Value": "1"}]
    refused = world.refused("AddTags", ResourceArn=f"{ARN}/first", Tags=wrong)
    assert "did you mean windfall:budget-usd?" in refused
    added = client.add_tags(ResourceArn=f"{ARN}/first", Tags=[{"Key": "a", "Value": "1"}])
    assert added["Tags"] == [{"Key": "a", "Value": "1"}, {"Key": "team", "Value": "vision"}]
    pages = client.get_paginator("list_tags").paginate(ResourceArn=f"{ARN}/first")
    assert [tag["Key"] for page in pages for tag in page["Tags"]] == ["a", "team"]
    client.delete_tags(ResourceArn=f"{ARN}/first", TagKeys=["team", "unknown"])
    assert client.list_tags(ResourceArn=f"{ARN}/first")["Tags"] == [{"Key": "a", "Value": "1"}]


def test_tags_of_a_job_that_has_ended_stay(world):
    world.gate.keep(ended())
    arn = f"{ARN}/first"
    assert "has ended" in world.refused("AddTags", ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    assert "has ended" in world.refused("DeleteTags", ResourceArn=arn, TagKeys=["a"])


def test_tags_are_listed_in_pages(world):
    tags = {f"{n:03d}": "" for n in range(60)}
    world.gate.keep(a_training_job("many", tags=tags))
    found, token = [], {}
    while True:
        page = world.call("ListTags", ResourceArn=f"{ARN}/many", MaxResults=50, **token)
        found += [tag["Key"] for tag in page["Tags"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert found == sorted(tags)
    assert "NextToken is not valid" in world.refused("ListTags", ResourceArn=f"{ARN}/many", NextToken="x")


@pytest.mark.parametrize(
    ("arn", "words"),
    [
        (f"{ARN}/nobody", "Requested resource not found."),
        (f"{ARN}/-no-", "Requested resource not found."),
        (f"arn:aws:sagemaker:{REGION}:123456789012:model/m", "Could not find model"),
        (f"arn:aws:sagemaker:{REGION}:123456789012:app/a", "app cannot have tags here"),
        ("arn:aws:sagemaker:eu-west-1:123456789012:x", "Invalid ARN"),
    ],
)
def test_only_what_is_there_has_tags(world, arn, words):
    assert words in world.refused("ListTags", ResourceArn=arn)
    assert words in world.refused("AddTags", ResourceArn=arn, Tags=[])
    assert words in world.refused("DeleteTags", ResourceArn=arn, TagKeys=["a"])


@pytest.fixture
def many(world):
    """Twelve jobs of both kinds: every third has ended, every fourth failed."""
    for n in range(12):
        kind = "spot" if n % 2 else "on-demand"
        made = {"created_at": NOW + n * 1000, "queue": f"windfall-training-{kind}"}
        name = f"job-{'abcdefghijkl'[(n * 5) % 12]}"
        if n % 3 == 0:
            job = ended(name, **made)
        elif n % 4 == 0:
            job = a_training_job(name, FAILED, stopped_at=NOW + 90_000, **made)
        else:
            job = a_training_job(name, RUNNABLE, **made)
        world.gate.keep(job)
    return world


def listed(world, size=None, **params):
    """Names over all pages."""
    client = world.client()
    config = {} if size is None else {"PaginationConfig": {"PageSize": size}}
    pages = client.get_paginator("list_training_jobs").paginate(**params, **config)
    return [it["TrainingJobName"] for page in pages for it in page["TrainingJobSummaries"]]


@pytest.mark.parametrize("size", [None, 1, 3, 5, 100])
def test_all_jobs_in_every_order(many, size):
    by_age = [f"job-{'abcdefghijkl'[(n * 5) % 12]}" for n in range(12)]
    assert listed(many, size) == by_age
    assert listed(many, size, SortOrder="Descending") == by_age[::-1]
    assert listed(many, size, SortBy="Name") == sorted(by_age)
    assert listed(many, size, SortBy="Name", SortOrder="Descending") == sorted(by_age, reverse=True)
    by_status = listed(many, size, SortBy="Status")
    assert sorted(by_status) == sorted(by_age)
    assert by_status[:4] == sorted(by_status[:4])  # the four that are Completed


def test_filters(many):
    assert listed(many, NameContains="-c") == ["job-c"]
    assert listed(many, NameContains="-C") == []
    assert len(listed(many, StatusEquals="Completed")) == 4
    assert len(listed(many, StatusEquals="Failed")) == 2
    # As on AWS, the page is cut first: pages of three have one ended job each.
    pages = (
        many.client()
        .get_paginator("list_training_jobs")
        .paginate(StatusEquals="Completed", PaginationConfig={"PageSize": 3})
    )
    assert [len(page["TrainingJobSummaries"]) for page in pages] == [1, 1, 1, 1]
    times = {"CreationTimeAfter": (NOW + 2500) / 1000, "CreationTimeBefore": (NOW + 5500) / 1000}
    assert len(listed(many, **times)) == 3
    assert len(listed(many, LastModifiedTimeAfter=(NOW + 80_000) / 1000)) == 2
    assert len(listed(many, LastModifiedTimeBefore=(NOW + 59_000) / 1000)) == 6
    assert listed(many, WarmPoolStatusEquals="InUse") == []
    plan = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/plan"
    assert listed(many, TrainingPlanArnEquals=plan) == []


@pytest.mark.parametrize("size", [1, 2, 7])
def test_pages_of_what_a_filter_leaves_are_full_and_complete(many, size):
    wanted = [name for name in listed(many) if name in {"job-a", "job-f", "job-k"}]
    for n in range(300):
        made = {"created_at": NOW + 100_000 + n, "queue": "windfall-training-spot"}
        many.gate.keep(a_training_job(f"other-{n}" if n % 50 else f"job-{n}", **made))
    found = listed(many, size, NameContains="job-")
    assert len(found) == len(set(found)) == 12 + 6
    assert [name for name in found if name in wanted] == wanted
    assert listed(many, size, NameContains="job-", SortOrder="Descending") == found[::-1]


def test_a_batch_job_in_a_queue_of_training_jobs_is_not_listed(many):
    job = a_training_job("batch")
    job.submission = replace(job.submission, kind=JobKind.BATCH, document="{}")
    many.gate.keep(job)
    assert len(listed(many)) == len(listed(many, SortBy="Name")) == 12


def test_a_summary_has_what_clients_read(many):
    first = many.call("ListTrainingJobs", MaxResults=1)["TrainingJobSummaries"][0]
    assert first["TrainingJobArn"] == f"{ARN}/{first['TrainingJobName']}"
    assert (first["TrainingJobStatus"], first["SecondaryStatus"]) == ("Completed", "Completed")
    assert first["TrainingEndTime"] == NOW / 1000 + 60


def test_a_token_of_another_question_is_refused(many):
    by_time = many.call("ListTrainingJobs", MaxResults=1)["NextToken"]
    by_name = many.call("ListTrainingJobs", MaxResults=1, SortBy="Name")["NextToken"]
    for token, sort in ((by_time, "Name"), (by_name, "CreationTime"), ("bm9uc2Vuc2U=", "Name")):
        assert "NextToken is not valid" in many.refused("ListTrainingJobs", NextToken=token, SortBy=sort)


def test_who_may_call_what(world):
    world.role = Role.READ
    world.gate.keep(ended())
    assert world.call("ListTrainingJobs")["TrainingJobSummaries"]
    with pytest.raises(ApiError) as caught:
        world.call("StopTrainingJob", TrainingJobName="first")
    assert caught.value.code == "AccessDeniedException"


def test_what_aws_has_and_windfall_has_not_is_refused_by_name(world):
    assert "CreateTransformJob" in world.refused("CreateTransformJob", TransformJobName="x")


def test_a_stopping_job_says_so(world):
    attempt = an_attempt(placed=1, started=2, stop=5, stop_cause=StopCause.TERMINATED)
    world.gate.keep(a_training_job(state=RUNNING, attempts=[attempt], terminated=True))
    described = world.call("DescribeTrainingJob", TrainingJobName="first")
    assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Stopping", "Stopping")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.text(max_size=20) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = sorted({*FULL, *a_request(), "Tags", "NextToken", "ResourceArn", "SortBy", "MaxResults", "TagKeys"})


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    operation=st.sampled_from(sorted(OPERATIONS)),
    base=st.booleans(),
    odd=st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=3),
)
def test_no_request_is_a_fault_of_ours(world, operation, base, odd):
    # One world for all examples: what one of them has made is there for the next.
    params = {**(a_request(**FULL) if base else {}), **odd}
    headers = {b"x-amz-target": f"SageMaker.{operation}".encode()}
    try:
        status = world.answer(HttpRequest("POST", "/", "", headers, msgspec.json.encode(params))).status
    except UnicodeEncodeError:
        reject()
    except ApiError as refusal:
        status = refusal.status
    assert status in (200, 400)


def test_a_key_without_the_rights_of_a_training_does_not_decide_how_it_is_run_again(world):
    job = a_training_job("first", RUNNING)
    job.submission = replace(job.submission, submitter=Submitter("default", "AKIAADMIN", True))
    world.gate.keep(job)
    tag = {"Key": "windfall:runtime", "Value": "process"}
    for operation, params in (
        ("AddTags", {"ResourceArn": f"{ARN}/first", "Tags": [tag]}),
        ("DeleteTags", {"ResourceArn": f"{ARN}/first", "TagKeys": [tag["Key"]]}),
        ("UpdateTrainingJob", {"TrainingJobName": "first", "ProfilerConfig": {"DisableProfiler": True}}),
    ):
        with pytest.raises(ApiError, match="has other rights than jobs of the key AKIDEXAMPLE"):
            world.call(operation, **params)
    assert world.gate.commands == []
    world.call("AddTags", ResourceArn=f"{ARN}/first", Tags=[{"Key": "team", "Value": "x"}])
    world.role = Role.ADMIN
    world.call("AddTags", ResourceArn=f"{ARN}/first", Tags=[tag])
