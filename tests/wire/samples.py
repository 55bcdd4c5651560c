"""One right request for every operation, and the things that must be there before it.

Requests are as small as AWS allows. What an operation answers is tested elsewhere: here it is enough that it is done.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.wire.world import ACCOUNT, REGION, World, a_world

BATCH = f"arn:aws:batch:{REGION}:{ACCOUNT}"
SCHEDULER = f"arn:aws:scheduler:{REGION}:{ACCOUNT}"
MODEL = {"PrimaryContainer": {"Image": "busybox"}, "ExecutionRoleArn": f"arn:aws:iam::{ACCOUNT}:role/anybody"}
VARIANTS = [
    {
        "VariantName": "AllTraffic",
        "ModelName": "model",
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
    }
]
TRAINING = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/train"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/anybody"
LIMITS = [{"maxCapacity": 2, "capacityUnit": "NUM_INSTANCES"}]
SHARE = {
    "capacityLimits": [{"maxCapacity": 4, "capacityUnit": "VCPU"}],
    "resourceSharingConfiguration": {"strategy": "RESERVE"},
    "preemptionConfiguration": {"inSharePreemption": "DISABLED"},
}
CONTAINER = {
    "image": "busybox",
    "command": ["true"],
    "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}],
}
TARGET = {
    "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
    "RoleArn": ROLE,
    "Input": json.dumps({"JobName": "n", "JobQueue": "queue", "JobDefinition": "echo"}),
}
SCHEDULE = {
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "ScheduleExpression": "cron(0 2 ? * MON-FRI *)",
    "Target": TARGET,
}
TRAIN = {
    "RoleArn": ROLE,
    "AlgorithmSpecification": {"TrainingImage": "busybox", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}
SERVICE_JOB = {
    "jobName": "service",
    "jobQueue": "service-queue",
    "serviceJobType": "SAGEMAKER_TRAINING",
    "serviceRequestPayload": json.dumps({"TrainingJobName": "t", **TRAIN}),
}


@dataclass(frozen=True)
class Sample:
    """A right request; `code` is that of a refusal where there is nothing here that it could be about."""

    params: dict[str, Any]
    code: str = ""


async def furnish(world: World) -> dict[str, Any]:
    """Declare what the samples speak of; the answer has the ids that Windfall gave."""
    batch = [
        ("CreateComputeEnvironment", _environment("env")),
        ("CreateComputeEnvironment", {**_environment("spare"), "state": "DISABLED"}),
        ("CreateSchedulingPolicy", {"name": "fair", "fairsharePolicy": {"shareDecaySeconds": 60}}),
        ("CreateSchedulingPolicy", {"name": "spare", "fairsharePolicy": {}}),
        (
            "CreateSchedulingPolicy",
            {"name": "quota", "quotaSharePolicy": {"idleResourceAssignmentStrategy": "FIFO"}},
        ),
        ("CreateJobQueue", _queue("queue")),
        ("CreateJobQueue", {**_queue("spare"), "state": "DISABLED"}),
        ("CreateJobQueue", {**_queue("fair"), "schedulingPolicyArn": f"{BATCH}:scheduling-policy/fair"}),
        ("CreateJobQueue", {**_queue("quota"), "schedulingPolicyArn": f"{BATCH}:scheduling-policy/quota"}),
        ("CreateQuotaShare", {"quotaShareName": "team", "jobQueue": "quota", **SHARE}),
        (
            "CreateQuotaShare",
            {"quotaShareName": "spare", "jobQueue": "quota", "state": "DISABLED", **SHARE},
        ),
        ("CreateServiceEnvironment", _service_environment("service")),
        ("CreateServiceEnvironment", {**_service_environment("spare"), "state": "DISABLED"}),
        (
            "CreateJobQueue",
            {
                "jobQueueName": "service-queue",
                "priority": 1,
                "jobQueueType": "SAGEMAKER_TRAINING",
                "serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": "service"}],
            },
        ),
        ("CreateConsumableResource", {"consumableResourceName": "licence", "totalQuantity": 3}),
        ("CreateConsumableResource", {"consumableResourceName": "spare", "totalQuantity": 3}),
        ("RegisterJobDefinition", _definition()),
    ]
    for operation, params in batch:
        await world.done("batch", operation, params)
    await world.done("scheduler", "CreateScheduleGroup", {"Name": "group"})
    await world.done("scheduler", "CreateSchedule", {"Name": "nightly", **SCHEDULE})
    await world.done("sagemaker", "CreateTrainingJob", {"TrainingJobName": "train", **TRAIN})
    await world.done("sagemaker", "CreateModel", {"ModelName": "model", **MODEL})
    await world.done("sagemaker", "CreateEndpointConfig", _config("config"))
    await world.done("sagemaker", "CreateEndpoint", _endpoint("endpoint"))
    job = await world.done("batch", "SubmitJob", _job())
    service_job = await world.done("batch", "SubmitServiceJob", SERVICE_JOB)
    shares = await world.done("batch", "ListQuotaShares", {"jobQueue": "quota"})
    arns = {share["quotaShareName"]: share["quotaShareArn"] for share in shares["quotaShares"]}
    return {
        "job": job["jobId"],
        "service_job": service_job["jobId"],
        "share": arns["team"],
        "spare_share": arns["spare"],
    }


#: The first furnished world of this process, and the ids in it: the others begin as copies of its file.
_FURNISHED: list[tuple[bytes, dict[str, Any]]] = []


@asynccontextmanager
async def a_furnished_world(directory: Path) -> AsyncIterator[tuple[World, dict[str, Any]]]:
    """A world in which all is there that the samples speak of, and the ids that Windfall gave."""
    if not _FURNISHED:
        file = directory / "template.db"
        async with a_world(file) as world:
            ids = await furnish(world)
        _FURNISHED.append((file.read_bytes(), ids))
    content, ids = _FURNISHED[0]
    file = directory / f"{uuid.uuid4()}.db"
    file.write_bytes(content)
    async with a_world(file) as world:
        yield world, ids


def samples(ids: dict[str, str]) -> dict[tuple[str, str], Sample]:
    """A right request for every operation that is served."""
    known: dict[tuple[str, str], Sample] = {}
    for service, requests in (
        ("batch", _batch(ids)),
        ("scheduler", _scheduler()),
        ("sagemaker", _sagemaker()),
    ):
        known |= {(service, operation): Sample(params) for operation, params in requests.items()}
    return known | _without_subject()


def _environment(name: str) -> dict[str, Any]:
    return {
        "computeEnvironmentName": name,
        "type": "MANAGED",
        "computeResources": {"type": "EC2", "maxvCpus": 4, "subnets": []},
    }


def _queue(name: str) -> dict[str, Any]:
    order = [{"order": 1, "computeEnvironment": "env"}]
    return {"jobQueueName": name, "priority": 1, "computeEnvironmentOrder": order}


def _service_environment(name: str) -> dict[str, Any]:
    return {
        "serviceEnvironmentName": name,
        "serviceEnvironmentType": "SAGEMAKER_TRAINING",
        "capacityLimits": LIMITS,
    }


def _definition() -> dict[str, Any]:
    return {"jobDefinitionName": "echo", "type": "container", "containerProperties": CONTAINER}


def _job() -> dict[str, Any]:
    return {"jobName": "one", "jobQueue": "queue", "jobDefinition": "echo"}


def _batch(ids: dict[str, str]) -> dict[str, dict[str, Any]]:
    queue = f"{BATCH}:job-queue/queue"
    return {
        "CreateComputeEnvironment": _environment("another"),
        "UpdateComputeEnvironment": {"computeEnvironment": "env", "computeResources": {"maxvCpus": 8}},
        "DescribeComputeEnvironments": {},
        "DeleteComputeEnvironment": {"computeEnvironment": "spare"},
        "CreateJobQueue": _queue("another"),
        "UpdateJobQueue": {"jobQueue": "queue", "priority": 7},
        "DescribeJobQueues": {},
        "DeleteJobQueue": {"jobQueue": "spare"},
        "GetJobQueueSnapshot": {"jobQueue": "queue"},
        "RegisterJobDefinition": {**_definition(), "jobDefinitionName": "another"},
        "DescribeJobDefinitions": {},
        "DeregisterJobDefinition": {"jobDefinition": "echo:1"},
        "SubmitJob": _job(),
        "DescribeJobs": {"jobs": [ids["job"]]},
        "ListJobs": {"jobQueue": "queue"},
        "CancelJob": {"jobId": ids["job"], "reason": "why not"},
        "CancelJobs": {"jobs": [ids["job"]], "reason": "why not"},
        "TerminateJob": {"jobId": ids["job"], "reason": "why not"},
        "TerminateJobs": {"jobs": [ids["job"]], "reason": "why not"},
        "TagResource": {"resourceArn": queue, "tags": {"a": "b"}},
        "UntagResource": {"resourceArn": queue, "tagKeys": ["a"]},
        "ListTagsForResource": {"resourceArn": queue},
        "CreateSchedulingPolicy": {"name": "another", "fairsharePolicy": {}},
        "UpdateSchedulingPolicy": {"arn": f"{BATCH}:scheduling-policy/fair", "fairsharePolicy": {}},
        "DescribeSchedulingPolicies": {"arns": [f"{BATCH}:scheduling-policy/fair"]},
        "ListSchedulingPolicies": {},
        "DeleteSchedulingPolicy": {"arn": f"{BATCH}:scheduling-policy/spare"},
        "CreateQuotaShare": {"quotaShareName": "another", "jobQueue": "quota", **SHARE},
        "UpdateQuotaShare": {"quotaShareArn": ids["share"], "state": "DISABLED"},
        "DescribeQuotaShare": {"quotaShareArn": ids["share"]},
        "ListQuotaShares": {"jobQueue": "quota"},
        "DeleteQuotaShare": {"quotaShareArn": ids["spare_share"]},
        "CreateConsumableResource": {"consumableResourceName": "another", "totalQuantity": 1},
        "UpdateConsumableResource": {"consumableResource": "licence", "operation": "ADD", "quantity": 1},
        "DescribeConsumableResource": {"consumableResource": "licence"},
        "ListConsumableResources": {},
        "ListJobsByConsumableResource": {"consumableResource": "licence"},
        "DeleteConsumableResource": {"consumableResource": "spare"},
        "CreateServiceEnvironment": _service_environment("another"),
        "UpdateServiceEnvironment": {"serviceEnvironment": "service", "capacityLimits": LIMITS},
        "DescribeServiceEnvironments": {},
        "DeleteServiceEnvironment": {"serviceEnvironment": "spare"},
        "SubmitServiceJob": SERVICE_JOB,
        "DescribeServiceJob": {"jobId": ids["service_job"]},
        "ListServiceJobs": {"jobQueue": "service-queue"},
        "UpdateServiceJob": {"jobId": ids["service_job"], "schedulingPriority": 5},
        "TerminateServiceJob": {"jobId": ids["service_job"], "reason": "why not"},
        "TerminateServiceJobs": {"jobs": [ids["service_job"]], "reason": "why not"},
    }


def _scheduler() -> dict[str, dict[str, Any]]:
    group = f"{SCHEDULER}:schedule-group/group"
    return {
        "CreateSchedule": {"Name": "another", **SCHEDULE},
        "UpdateSchedule": {"Name": "nightly", **SCHEDULE},
        "GetSchedule": {"Name": "nightly"},
        "ListSchedules": {},
        "DeleteSchedule": {"Name": "nightly"},
        "CreateScheduleGroup": {"Name": "another"},
        "GetScheduleGroup": {"Name": "group"},
        "ListScheduleGroups": {},
        "DeleteScheduleGroup": {"Name": "group"},
        "TagResource": {"ResourceArn": group, "Tags": [{"Key": "a", "Value": "b"}]},
        "UntagResource": {"ResourceArn": group, "TagKeys": ["a"]},
        "ListTagsForResource": {"ResourceArn": group},
    }


def _config(name: str) -> dict[str, Any]:
    return {"EndpointConfigName": name, "ProductionVariants": VARIANTS}


def _endpoint(name: str) -> dict[str, Any]:
    return {"EndpointName": name, "EndpointConfigName": "config"}


def _sagemaker() -> dict[str, dict[str, Any]]:
    return {
        "CreateModel": {"ModelName": "another", **MODEL},
        "DescribeModel": {"ModelName": "model"},
        "ListModels": {},
        "DeleteModel": {"ModelName": "model"},
        "CreateEndpointConfig": _config("another"),
        "DescribeEndpointConfig": {"EndpointConfigName": "config"},
        "ListEndpointConfigs": {},
        "DeleteEndpointConfig": {"EndpointConfigName": "config"},
        "CreateEndpoint": _endpoint("another"),
        "DescribeEndpoint": {"EndpointName": "endpoint"},
        "ListEndpoints": {},
        "DeleteEndpoint": {"EndpointName": "endpoint"},
        "CreateTrainingJob": {"TrainingJobName": "another", **TRAIN},
        "DescribeTrainingJob": {"TrainingJobName": "train"},
        "ListTrainingJobs": {},
        "StopTrainingJob": {"TrainingJobName": "train"},
        "UpdateTrainingJob": {"TrainingJobName": "train"},
        "AddTags": {"ResourceArn": TRAINING, "Tags": [{"Key": "a", "Value": "b"}]},
        "ListTags": {"ResourceArn": TRAINING},
        "DeleteTags": {"ResourceArn": TRAINING, "TagKeys": ["a"]},
    }


def _without_subject() -> dict[tuple[str, str], Sample]:
    """Operations about what only a run leaves: nothing has run here, so a right request finds nothing."""
    group = {"logGroupName": "/aws/batch/job"}
    missing = "ResourceNotFoundException"
    period = {"StartTime": 1_700_000_000, "EndTime": 1_700_003_600}
    metric = {"Namespace": "Windfall", "MetricName": "GPUUtilization"}
    query = {"Id": "a", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}
    resource = {"resourceArn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/batch/job"}
    return {
        ("logs", "CreateLogGroup"): Sample({"logGroupName": "/team/logs"}),
        ("logs", "DeleteLogGroup"): Sample(group),
        ("logs", "PutRetentionPolicy"): Sample({**group, "retentionInDays": 7}),
        ("logs", "DeleteRetentionPolicy"): Sample(group),
        ("logs", "TagLogGroup"): Sample({**group, "tags": {"a": "b"}}),
        ("logs", "UntagLogGroup"): Sample({**group, "tags": ["a"]}),
        ("logs", "ListTagsLogGroup"): Sample(group),
        ("logs", "TagResource"): Sample({**resource, "tags": {"a": "b"}}),
        ("logs", "UntagResource"): Sample({**resource, "tagKeys": ["a"]}),
        ("logs", "ListTagsForResource"): Sample(resource),
        ("sagemaker", "DeleteTrainingJob"): Sample({"TrainingJobName": "train"}, "ResourceInUse"),
        # It is still being created.
        ("sagemaker", "UpdateEndpoint"): Sample(_endpoint("endpoint"), "ValidationException"),
        ("sagemaker", "UpdateEndpointWeightsAndCapacities"): Sample(
            {
                "EndpointName": "endpoint",
                "DesiredWeightsAndCapacities": [{"VariantName": "AllTraffic", "DesiredWeight": 2}],
            },
            "ValidationException",
        ),
        ("logs", "DescribeLogGroups"): Sample({}),
        ("logs", "DescribeLogStreams"): Sample(group),
        ("logs", "GetLogEvents"): Sample({**group, "logStreamName": "echo/default/1"}, missing),
        ("logs", "FilterLogEvents"): Sample(group),
        ("cloudwatch", "ListMetrics"): Sample({}),
        ("cloudwatch", "GetMetricData"): Sample({"MetricDataQueries": [query], **period}),
        ("cloudwatch", "GetMetricStatistics"): Sample(
            {**metric, **period, "Period": 60, "Statistics": ["Average"]}
        ),
    }
