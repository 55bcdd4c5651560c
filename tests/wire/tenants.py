"""One of everything that a tenant can have, and every request that another tenant could send about it.

By id, by name and by ARN, with and without the tenant's name in front. Operations about what all tenants share are
named too, so that an operation which nobody thought of is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.wire.samples import CONTAINER, MODEL, SCHEDULE, SERVICE_JOB, TRAIN, VARIANTS
from tests.wire.world import ACCOUNT, REGION, RELAY, Answer, World
from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import ApiService, Caller, Role
from windfall.aws_api.sagemaker.service import TrainingSettings, training_service
from windfall.control.changes import Changes, LogStream
from windfall.control.state import State
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.operations import Operations
from windfall.daemon.settings import Settings
from windfall.jobs.ids import JobId
from windfall.jobs.storage import StoragePlace
from windfall.jobs.tenants import qualified, qualified_log_group
from windfall.schedules.schedule import Tick

ARN = f"arn:aws:{{}}:{REGION}:{ACCOUNT}:{{}}"
TASK = "0" * 32
#: What an administrator makes for all: no request about it can tell one tenant's things from another's.
SHARED = {
    ("batch", operation + kind)
    for operation in ("Create", "Update", "Delete", "Describe", "List")
    for kind in (
        "ComputeEnvironment",
        "ComputeEnvironments",
        "JobQueue",
        "JobQueues",
        "SchedulingPolicy",
        "SchedulingPolicies",
        "QuotaShare",
        "QuotaShares",
        "ConsumableResource",
        "ConsumableResources",
        "ServiceEnvironment",
        "ServiceEnvironments",
    )
} | {
    ("windfall", operation)
    for operation in (
        "CheckDirectories",
        "CreateSession",
        "WhoAmI",
        "Watch",
        "FenceGpu",
        "ListImages",
        "AddImage",
        "RemoveImage",
        "SetSecret",
        "ListSecrets",
        "RemoveSecret",
        "ListHosts",
        "AddHost",
        "DrainHost",
        "RemoveHost",
        "CheckHost",
        "AddStorage",
        "ListStorage",
        "RemoveStorage",
        "Down",
    )
}

Asked = tuple[str, str, dict[str, Any]]


def own_operations(directory: Path) -> ApiService:
    """Windfall's own operations over the present world."""

    async def stay_up(_kill: bool) -> int:
        return 0

    relay: Any = RELAY
    settings = Settings(directory)
    objects, files = ObjectStorage(settings, {}), AttemptDirectory(directory / "logs")
    trainings = training_service(relay, ACCOUNT, RELAY.clock_ms, files, TrainingSettings())
    return Operations(
        relay, settings, 1, 0, ("batch",), stay_up, RELAY.clock_ms, objects, trainings, files, lambda _: None
    ).service()


async def asked_own(service: ApiService, operation: str, params: dict[str, Any], caller: Caller) -> Answer:
    """Send a request for one of Windfall's own operations."""
    request = HttpRequest("POST", f"/windfall/v1/{operation}", "", {}, json.dumps(params).encode())
    try:
        response = await service.answer(request, caller, REGION, "1")
    except ApiError as error:
        return Answer(error.status, error.code, error.message)
    return Answer(response.status, "", json.loads(response.body))


async def open_bucket(world: World) -> None:
    """Let the jobs of every tenant use the bucket of the samples."""

    def register(state: State, *_: Any) -> None:
        state.storage_places["s3://bucket"] = StoragePlace("s3://bucket", write=True)

    await world.loop.inspect(register)


async def furnish_tenant(world: World, tenant: str) -> dict[str, str]:
    """Let a tenant have one of everything; the answer has the ids that Windfall gave."""
    key = Caller("AKIAOWNER", Role.SUBMIT, tenant)
    await open_bucket(world)

    async def done(service: str, operation: str, **params: Any) -> Any:
        answer = await world.ask(service, operation, params, key)
        assert answer.status < 300, f"{service}:{operation} {params}: {answer}"
        return answer.body

    await done(
        "batch",
        "RegisterJobDefinition",
        jobDefinitionName="private",
        type="container",
        containerProperties=CONTAINER,
        tags={"own": "tag"},
    )
    job = {"jobName": "hidden", "jobQueue": "queue", "jobDefinition": "private", "tags": {"own": "tag"}}
    tokens = {"consumableResourceList": [{"consumableResource": "licence", "quantity": 1}]}
    one = await done("batch", "SubmitJob", **job, consumableResourcePropertiesOverride=tokens)
    array = await done("batch", "SubmitJob", **job, arrayProperties={"size": 3})
    shared = await done("batch", "SubmitJob", **{**job, "jobQueue": "quota"}, shareIdentifier="team")
    service_job = await done("batch", "SubmitServiceJob", **SERVICE_JOB, clientToken="token")
    await done("scheduler", "CreateScheduleGroup", Name="team", Tags=[{"Key": "own", "Value": "tag"}])
    await done("scheduler", "CreateSchedule", Name="weekly", GroupName="team", **SCHEDULE)
    await done("scheduler", "CreateSchedule", Name="weekly", **SCHEDULE)
    await done("sagemaker", "CreateTrainingJob", TrainingJobName="run-1", **TRAIN)
    await done("sagemaker", "CreateModel", ModelName="model-1", **MODEL)
    variants = [{**VARIANTS[0], "ModelName": "model-1"}]
    await done(
        "sagemaker", "CreateEndpointConfig", EndpointConfigName="config-1", ProductionVariants=variants
    )
    await done("sagemaker", "CreateEndpoint", EndpointName="endpoint-1", EndpointConfigName="config-1")
    group = qualified_log_group(tenant, "/private/logs")
    stream = LogStream(group, "private/default/1", TASK, JobId(one["jobId"]), 1)
    tick = Tick(f"{qualified(tenant, 'team')}/weekly", 1, 1)
    world.store.commit(Changes(log_streams={TASK: stream}, ticks={(tick.schedule, 1): tick}))
    return {
        "job": one["jobId"],
        "array": array["jobId"],
        "shared": shared["jobId"],
        "service_job": service_job["jobId"],
        "training": "training-run-1" if tenant == "default" else f"training-{tenant}.run-1",
    }


def requests(ids: dict[str, str], owner: str) -> Iterator[Asked]:
    """All that another tenant could try."""
    yield from _jobs(ids)
    yield from _definitions(owner)
    yield from _service_jobs(ids)
    yield from _schedules(owner)
    yield from _trainings(owner)
    yield from _endpoints(owner)
    yield from _logs(owner)
    yield from _metrics(ids, owner)
    yield from _own(ids, owner)


def _jobs(ids: dict[str, str]) -> Iterator[Asked]:
    whole = [ids["job"], ids["array"], ids["shared"], ids["training"], ids["service_job"]]
    for job in [*whole, f"{ids['array']}:1", f"{ids['training']}#0"]:
        arn = ARN.format("batch", f"job/{job}")
        for name in (job, arn):
            yield "batch", "DescribeJobs", {"jobs": [name]}
            for operation in ("CancelJob", "TerminateJob"):
                yield "batch", operation, {"jobId": name, "reason": "mine now"}
                yield "batch", f"{operation}s", {"jobs": [name], "reason": "mine now"}
            yield "batch", "ListJobs", {"arrayJobId": name}
            yield "batch", "ListJobs", {"multiNodeJobId": name}
            submit = {"jobName": "after", "jobQueue": "queue", "jobDefinition": "nothing"}
            yield "batch", "SubmitJob", {**submit, "dependsOn": [{"jobId": name}]}
            yield "batch", "SubmitJob", {**submit, "jobDefinition": "own", "dependsOn": [{"jobId": name}]}
        yield "batch", "TagResource", {"resourceArn": arn, "tags": {"a": "b"}}
        yield "batch", "UntagResource", {"resourceArn": arn, "tagKeys": ["own"]}
        yield "batch", "ListTagsForResource", {"resourceArn": arn}
    for queue in (
        "queue",
        "quota",
        "windfall-training-spot",
        "windfall-training-on-demand",
        "windfall-endpoints",
    ):
        for state in ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED", "FAILED"):
            yield "batch", "ListJobs", {"jobQueue": queue, "jobStatus": state}
        for name, value in (
            ("JOB_NAME", "hidden"),
            ("JOB_NAME", "h*"),
            ("JOB_DEFINITION", "private"),
            ("JOB_DEFINITION", "p*"),
            ("AFTER_CREATED_AT", "1"),
            ("SHARE_IDENTIFIER", "team"),
        ):
            yield "batch", "ListJobs", {"jobQueue": queue, "filters": [{"name": name, "values": [value]}]}
        yield "batch", "GetJobQueueSnapshot", {"jobQueue": queue}
    yield "batch", "ListJobsByConsumableResource", {"consumableResource": "licence"}


def _definitions(owner: str) -> Iterator[Asked]:
    for name in ("private", f"{owner}/private"):
        for reference in (name, f"{name}:1", ARN.format("batch", f"job-definition/{name}:1")):
            yield "batch", "DescribeJobDefinitions", {"jobDefinitions": [reference]}
            yield "batch", "DeregisterJobDefinition", {"jobDefinition": reference}
            job = {"jobName": "theirs", "jobQueue": "queue", "jobDefinition": reference}
            yield "batch", "SubmitJob", job
            overrides = {"taskProperties": [{"containers": [{"command": ["true"]}]}]}
            yield "batch", "SubmitJob", {**job, "ecsPropertiesOverride": overrides}
        yield "batch", "DescribeJobDefinitions", {"jobDefinitionName": name}
        arn = ARN.format("batch", f"job-definition/{name}:1")
        yield "batch", "TagResource", {"resourceArn": arn, "tags": {"a": "b"}}
        yield "batch", "UntagResource", {"resourceArn": arn, "tagKeys": ["own"]}
        yield "batch", "ListTagsForResource", {"resourceArn": arn}
    yield "batch", "DescribeJobDefinitions", {}
    # The name is free for everybody else, and its revisions begin with 1.
    definition = {"type": "container", "containerProperties": CONTAINER}
    yield "batch", "RegisterJobDefinition", {**definition, "jobDefinitionName": "private"}
    yield "batch", "SubmitJob", {"jobName": "own", "jobQueue": "queue", "jobDefinition": "private"}


def _service_jobs(ids: dict[str, str]) -> Iterator[Asked]:
    arn = ARN.format("batch", f"service-job/{ids['service_job']}")
    for name in (ids["service_job"], arn):
        yield "batch", "DescribeServiceJob", {"jobId": name}
        yield "batch", "UpdateServiceJob", {"jobId": name, "schedulingPriority": 9}
        yield "batch", "TerminateServiceJob", {"jobId": name, "reason": "mine now"}
        yield "batch", "TerminateServiceJobs", {"jobs": [name], "reason": "mine now"}
    yield "batch", "TagResource", {"resourceArn": arn, "tags": {"a": "b"}}
    yield "batch", "UntagResource", {"resourceArn": arn, "tagKeys": ["own"]}
    yield "batch", "ListTagsForResource", {"resourceArn": arn}
    for state in ("SUBMITTED", "RUNNABLE", "SCHEDULED"):
        yield "batch", "ListServiceJobs", {"jobQueue": "service-queue", "jobStatus": state}
    yield "batch", "GetJobQueueSnapshot", {"jobQueue": "service-queue"}
    # A client token is the tenant's own: the same request of another tenant is not a repetition.
    yield "batch", "SubmitServiceJob", {**SERVICE_JOB, "clientToken": "token"}


def _schedules(owner: str) -> Iterator[Asked]:
    tags = [{"Key": "a", "Value": "b"}]
    for group in ("team", "default", f"{owner}/team", f"{owner}/default"):
        named = {"Name": "weekly", "GroupName": group}
        yield "scheduler", "GetSchedule", named
        yield "scheduler", "UpdateSchedule", {**named, **SCHEDULE}
        yield "scheduler", "ListSchedules", {"GroupName": group}
        yield "scheduler", "GetScheduleGroup", {"Name": group}
        for arn in (f"schedule/{group}/weekly", f"schedule-group/{group}"):
            resource = {"ResourceArn": ARN.format("scheduler", arn)}
            yield "scheduler", "ListTagsForResource", resource
            if group != "default":
                yield "scheduler", "TagResource", {**resource, "Tags": tags}
                yield "scheduler", "UntagResource", {**resource, "TagKeys": ["own"]}
        yield "scheduler", "DeleteSchedule", named
        yield "scheduler", "DeleteScheduleGroup", {"Name": group}
    yield "scheduler", "ListSchedules", {}
    yield "scheduler", "ListScheduleGroups", {}
    yield "scheduler", "CreateSchedule", {"Name": "weekly", "GroupName": "team", **SCHEDULE}
    yield "scheduler", "CreateScheduleGroup", {"Name": "team"}
    yield "scheduler", "CreateSchedule", {"Name": "weekly", "GroupName": "team", **SCHEDULE}
    yield "scheduler", "CreateSchedule", {"Name": "weekly", **SCHEDULE}


def _trainings(owner: str) -> Iterator[Asked]:
    for name in ("run-1", f"{owner}/run-1"):
        for operation in ("Describe", "Stop", "Update", "Delete"):
            yield "sagemaker", f"{operation}TrainingJob", {"TrainingJobName": name}
        resource = {"ResourceArn": ARN.format("sagemaker", f"training-job/{name}")}
        yield "sagemaker", "AddTags", {**resource, "Tags": [{"Key": "a", "Value": "b"}]}
        yield "sagemaker", "ListTags", resource
        yield "sagemaker", "DeleteTags", {**resource, "TagKeys": ["own"]}
    for order in ("Name", "CreationTime", "Status"):
        yield "sagemaker", "ListTrainingJobs", {"SortBy": order}
    yield "sagemaker", "CreateTrainingJob", {"TrainingJobName": "run-1", **TRAIN}


def _endpoints(owner: str) -> Iterator[Asked]:
    for kind, arn_kind in (
        ("Model", "model"),
        ("EndpointConfig", "endpoint-config"),
        ("Endpoint", "endpoint"),
    ):
        given = f"{arn_kind.rpartition('-')[2]}-1"
        for name in (given, f"{owner}/{given}"):
            named = {f"{kind}Name": name}
            yield "sagemaker", f"Describe{kind}", named
            yield "sagemaker", f"Delete{kind}", named
            resource = {"ResourceArn": ARN.format("sagemaker", f"{arn_kind}/{name}")}
            yield "sagemaker", "AddTags", {**resource, "Tags": [{"Key": "a", "Value": "b"}]}
            yield "sagemaker", "ListTags", resource
            yield "sagemaker", "DeleteTags", {**resource, "TagKeys": ["own"]}
        for order in ("Name", "CreationTime"):
            yield "sagemaker", f"List{kind}s", {"SortBy": order}
    for name in ("endpoint-1", f"{owner}/endpoint-1"):
        for config in ("config-1", f"{owner}/config-1"):
            named = {"EndpointName": name, "EndpointConfigName": config}
            yield "sagemaker", "UpdateEndpoint", named
            yield "sagemaker", "CreateEndpoint", named
        sizes = [{"VariantName": "AllTraffic", "DesiredWeight": 2}]
        yield (
            "sagemaker",
            "UpdateEndpointWeightsAndCapacities",
            {"EndpointName": name, "DesiredWeightsAndCapacities": sizes},
        )
    for model in ("model-1", f"{owner}/model-1"):
        variants = [{**VARIANTS[0], "ModelName": model}]
        yield (
            "sagemaker",
            "CreateEndpointConfig",
            {"EndpointConfigName": "config-1", "ProductionVariants": variants},
        )
    yield "sagemaker", "CreateModel", {"ModelName": "model-1", **MODEL}
    for name in (None, "endpoint-1", f"{owner}/endpoint-1"):
        yield "windfall", "Endpoints", {"name": name}


def _logs(owner: str) -> Iterator[Asked]:
    yield "logs", "DescribeLogGroups", {}
    for group in ("/private/logs", f"{owner}:/private/logs"):
        named = {"logGroupName": group}
        yield "logs", "DescribeLogStreams", named
        yield "logs", "GetLogEvents", {**named, "logStreamName": "private/default/1"}
        yield "logs", "FilterLogEvents", named
        yield "logs", "FilterLogEvents", {**named, "logStreamNames": ["private/default/1"]}
        yield "logs", "CreateLogGroup", {"logGroupName": f"{group}/new"}
        yield "logs", "PutRetentionPolicy", {**named, "retentionInDays": 7}
        yield "logs", "DeleteRetentionPolicy", named
        yield "logs", "TagLogGroup", {**named, "tags": {"a": "b"}}
        yield "logs", "UntagLogGroup", {**named, "tags": ["own"]}
        yield "logs", "ListTagsLogGroup", named
        resource = {"resourceArn": ARN.format("logs", f"log-group:{group}")}
        yield "logs", "TagResource", {**resource, "tags": {"a": "b"}}
        yield "logs", "UntagResource", {**resource, "tagKeys": ["own"]}
        yield "logs", "ListTagsForResource", resource
        yield "logs", "DeleteLogGroup", named
        arn = {"logGroupIdentifier": ARN.format("logs", f"log-group:{group}")}
        yield "logs", "DescribeLogStreams", arn
        yield "logs", "GetLogEvents", {**arn, "logStreamName": "private/default/1"}


def _metrics(ids: dict[str, str], owner: str) -> Iterator[Asked]:
    period = {"StartTime": 1_700_000_000, "EndTime": 1_700_003_600}
    yield "cloudwatch", "ListMetrics", {}
    hosts = [f"{name}/algo-1" for name in ("run-1", f"{owner}/run-1")]
    for dimension in [("JobId", ids["job"]), ("JobId", ids["training"]), *(("Host", host) for host in hosts)]:
        named = {"Name": dimension[0], "Value": dimension[1]}
        metric = {"Namespace": "Windfall", "MetricName": "GPUUtilization", "Dimensions": [named]}
        query = {"Id": "a", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}
        yield "cloudwatch", "GetMetricData", {"MetricDataQueries": [query], **period}
        yield (
            "cloudwatch",
            "GetMetricStatistics",
            {**metric, **period, "Period": 60, "Statistics": ["Average"]},
        )


def _own(ids: dict[str, str], owner: str) -> Iterator[Asked]:
    for job in [*ids.values(), f"{ids['array']}:1"]:
        for operation in ("Why", "Attempts", "Cost", "Advise", "Samples", "StoredFiles"):
            yield "windfall", operation, {"jobId": job}
        for operation in ("JobPage", "Marks", "ArrayMap", "LogWindow", "Reasons", "JobMetrics"):
            yield "windfall", operation, {"jobId": job}
        yield "windfall", "FindInLog", {"jobId": job, "text": "a"}
        yield "windfall", "JobRows", {"jobIds": [job]}
        yield "windfall", "Whys", {"jobIds": [job]}
        yield "windfall", "ExpectedEnds", {"jobIds": [job]}
        yield "windfall", "WhatIf", {"priorities": {job: 5}}
        yield "windfall", "Jobs", {"parent": job}
        for part in ({"part": "checkpoint"}, {"part": "output", "output": 0}):
            yield "windfall", "ListStored", {"jobId": job, **part}
            yield "windfall", "ReadStored", {"jobId": job, **part, "reads": [[".windfall/fence", 0, 1]]}
        yield "windfall", "ListFiles", {"jobId": job}
        yield "windfall", "ReadFile", {"jobId": job, "part": "log", "path": "attempt-1.log", "start": 0}
        yield "windfall", "StartExec", {"jobId": job, "session": "0" * 32}
        yield "windfall", "Retry", {"jobId": job, "all": True}
        yield "windfall", "Hold", {"jobId": job}
        yield "windfall", "Release", {"jobId": job}
        yield "windfall", "SetPriority", {"jobId": job, "priority": 5}
        yield "windfall", "Interrupt", {"jobId": job, "noticeS": 0}
        yield "windfall", "Owners", {"jobIds": [job]}
        yield "windfall", "FindJobs", {"text": job}
        yield "windfall", "FindJobs", {"text": job[:8]}
    yield "windfall", "Interrupt", {"instance": "i-0"}
    for text in ("hidden", "run-1", "service", f"{owner}/run-1"):
        yield "windfall", "FindJobs", {"text": text}
    for by in ("queue", "user", "tenant", "job", "day", "tag:own"):
        yield "windfall", "Cost", {"by": by}
    for operation in ("ReadExec", "WriteExec", "EndExec"):
        yield "windfall", operation, {"session": "0" * 32, "position": 0}
    yield "windfall", "Advise", {}
    for asked in ({}, {"queue": "queue"}, {"name": "hid*"}, {"states": ["RUNNABLE", "PENDING"]}):
        yield "windfall", "Jobs", asked
    yield "windfall", "Submissions", {"sinceAt": 0, "untilAt": 1 << 45}
    for operation in ("Counts", "Alarms", "Machines", "Activity"):
        yield "windfall", operation, {}
    for operation in ("Status", "Top", "Shares", "Gpus", "Schedules"):
        yield "windfall", operation, {}
    for name in ("weekly", "team/weekly", f"{owner}/team/weekly"):
        yield "windfall", "ScheduleHistory", {"name": name}
