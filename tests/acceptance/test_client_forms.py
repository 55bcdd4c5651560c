"""The calls of tools that people have: their order, their members, and what they read of the answers.

Each test makes the requests of one tool as its sources write them, through boto3, because most of these tools cannot be
installed everywhere: Terraform's AWS provider, Metaflow, TorchX, redun, Snakemake, Nextflow; and the console's tasks.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore import waiter
from botocore.exceptions import ClientError

from tests.acceptance.daemon import a_queue
from tests.waiting import wait_until

ROLE = "arn:aws:iam::123456789012:role/anybody"
NEEDS = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
LOGS = "/aws/batch/job"


def printed(windfall: Any, stream: str) -> list[str]:
    """All lines of a log stream, which need not be there yet."""
    logs = windfall.client("logs")
    try:
        events = logs.get_log_events(logGroupName=LOGS, logStreamName=stream, startFromHead=True)["events"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    return [event["message"] for event in events]


def without_empty(properties: Any) -> Any:
    """A document without the empty lists and maps that an answer has more than the request had."""
    if isinstance(properties, dict):
        lean = {name: without_empty(value) for name, value in properties.items()}
        return {name: value for name, value in lean.items() if value not in ([], {})}
    return [without_empty(one) for one in properties] if isinstance(properties, list) else properties


# Definitions as tasks ---------------------------------------------------------------------------------------------


def test_a_task_of_the_console_runs_its_essential_container(windfall):
    batch = a_queue(windfall, "console")
    shell = 'echo "$WHO has $AWS_BATCH_JOB_ID"; exit 3'
    registered = batch.register_job_definition(
        jobDefinitionName="as-a-task",
        type="container",
        platformCapabilities=["EC2"],
        ecsProperties={
            "taskProperties": [
                {
                    "executionRoleArn": ROLE,
                    "containers": [
                        {"name": "log-router", "image": "fluent-bit", "essential": False},
                        {
                            "name": "training",
                            "image": "windfall/host",
                            "essential": True,
                            "command": ["sh", "-c", "Ref::script"],
                            "environment": [{"name": "WHO", "value": "nobody"}],
                            "resourceRequirements": NEEDS,
                        },
                    ],
                }
            ]
        },
        parameters={"script": shell},
        retryStrategy={"attempts": 2},
    )
    job_id = batch.submit_job(
        jobName="task",
        jobQueue="console",
        jobDefinition=registered["jobDefinitionArn"],
        ecsPropertiesOverride={
            "taskProperties": [
                {"containers": [{"name": "training", "environment": [{"name": "WHO", "value": "training"}]}]}
            ]
        },
    )["jobId"]
    [job] = windfall.wait_for([job_id], "FAILED")
    assert job["container"] == {}
    [task] = job["ecsProperties"]["taskProperties"]
    router, training = task["containers"]
    assert training["exitCode"] == 3
    assert training["command"] == ["sh", "-c", shell]
    assert training["logStreamName"].startswith("as-a-task/training/")
    assert training["logStreamName"].endswith(task["taskArn"].rpartition("/")[2])
    assert router["reason"].startswith("Not run")
    assert job["tags"]["windfall:not-applied"].startswith("container log-router")
    assert len(job["attempts"]) == 2
    first = job["attempts"][0]["taskProperties"][0]["containers"][1]
    assert (first["name"], first["exitCode"]) == ("training", 3)
    assert printed(windfall, first["logStreamName"]) == [f"training has {job_id}"]
    # Our own commands know both ways to write a job.
    assert f"training has {job_id}" in windfall.windfall("logs", job_id).stdout
    described = windfall.windfall("describe", job_id).stdout
    assert training["logStreamName"] in described
    assert "windfall/host" in described


def test_a_client_that_knows_no_tasks_reads_one_of_one_container(windfall):
    batch = a_queue(windfall, "airflow")
    container = {"image": "windfall/host", "command": ["echo", "one"], "resourceRequirements": NEEDS}
    batch.register_job_definition(
        jobDefinitionName="one",
        type="container",
        ecsProperties={"taskProperties": [{"containers": [container], "taskRoleArn": ROLE}]},
    )
    job_id = batch.submit_job(jobName="one", jobQueue="airflow", jobDefinition="one")["jobId"]
    [job] = windfall.wait_for([job_id], "SUCCEEDED")
    # Airflow looks for the log here, and takes an empty container for a job that it does not know.
    assert printed(windfall, job["container"]["logStreamName"]) == ["one"]
    assert (job["container"]["exitCode"], job["container"]["jobRoleArn"]) == (0, ROLE)
    assert job["attempts"][0]["container"]["exitCode"] == 0
    assert job["ecsProperties"]["taskProperties"][0]["containers"][0]["exitCode"] == 0


# Terraform --------------------------------------------------------------------------------------------------------


def environment_of(batch: Any, name: str) -> list[dict[str, Any]]:
    return batch.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]


def queue_of(batch: Any, arn: str) -> list[dict[str, Any]]:
    return batch.describe_job_queues(jobQueues=[arn])["jobQueues"]


def test_terraform_makes_changes_and_removes_what_batch_needs(windfall):
    batch = windfall.client("batch")
    # Members that a configuration leaves out come as empty strings.
    made = batch.create_compute_environment(
        computeEnvironmentName="tf",
        type="MANAGED",
        state="ENABLED",
        serviceRole="",
        computeResources={
            "type": "SPOT",
            "allocationStrategy": "SPOT_PRICE_CAPACITY_OPTIMIZED",
            "bidPercentage": 60,
            "ec2Configuration": [{"imageType": "ECS_AL2023"}],
            "instanceRole": ROLE,
            "instanceTypes": ["optimal"],
            "launchTemplate": {"launchTemplateName": "boot", "version": "$Latest"},
            "maxvCpus": 8,
            "minvCpus": 0,
            "securityGroupIds": ["sg-1"],
            "subnets": ["subnet-1"],
            "tags": {"on": "instances"},
        },
        tags={"team": "vision"},
    )
    [environment] = environment_of(batch, made["computeEnvironmentName"])
    assert (environment["status"], environment["state"], environment["type"]) == (
        "VALID",
        "ENABLED",
        "MANAGED",
    )
    assert environment["ecsClusterArn"].startswith("arn:aws:ecs:")
    assert environment["computeResources"]["launchTemplate"]["version"] == "$Latest"
    batch.update_compute_environment(
        computeEnvironment="tf",
        updatePolicy={"terminateJobsOnUpdate": False, "jobExecutionTimeoutMinutes": 30},
    )
    # What is taken out of a configuration is sent as empty too, and the largest size always.
    batch.update_compute_environment(
        computeEnvironment="tf",
        computeResources={
            "maxvCpus": 16,
            "bidPercentage": 0,
            "ec2KeyPair": "",
            "imageId": "",
            "launchTemplate": {"launchTemplateId": ""},
            "ec2Configuration": [{"imageType": "ECS_AL2"}],
            "tags": {},
        },
    )
    [environment] = environment_of(batch, "tf")
    assert environment["status"] == "VALID"
    assert environment["computeResources"]["maxvCpus"] == 16
    assert environment["computeResources"]["type"] == "SPOT"
    assert (
        not {"ec2KeyPair", "imageId", "launchTemplate", "bidPercentage"}
        & environment["computeResources"].keys()
    )
    assert environment["updatePolicy"]["jobExecutionTimeoutMinutes"] == 30
    assert environment["tags"] == {"team": "vision"}

    policy = batch.create_scheduling_policy(
        name="tf",
        fairsharePolicy={
            "computeReservation": 0,
            "shareDecaySeconds": 3600,
            "shareDistribution": [{"shareIdentifier": "a*", "weightFactor": 0.5}],
        },
        tags={"team": "vision"},
    )["arn"]
    [found] = batch.describe_scheduling_policies(arns=[policy])["schedulingPolicies"]
    assert (found["name"], found["tags"]) == ("tf", {"team": "vision"})
    assert found["fairsharePolicy"]["shareDistribution"] == [{"shareIdentifier": "a*", "weightFactor": 0.5}]

    queue = batch.create_job_queue(
        jobQueueName="tf",
        priority=1,
        state="ENABLED",
        schedulingPolicyArn=policy,
        computeEnvironmentOrder=[{"order": 0, "computeEnvironment": environment["computeEnvironmentArn"]}],
        jobStateTimeLimitActions=[
            {
                "action": "CANCEL",
                "maxTimeSeconds": 600,
                "reason": "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
                "state": "RUNNABLE",
            }
        ],
        tags={},
    )["jobQueueArn"]
    [found] = queue_of(batch, queue)
    assert (found["status"], found["state"], found["priority"]) == ("VALID", "ENABLED", 1)
    assert found["schedulingPolicyArn"] == policy
    assert found["computeEnvironmentOrder"] == [
        {"order": 0, "computeEnvironment": environment["computeEnvironmentArn"]}
    ]
    assert found["jobStateTimeLimitActions"][0]["maxTimeSeconds"] == 600
    batch.update_job_queue(jobQueue="tf", priority=2, schedulingPolicyArn=policy)
    batch.tag_resource(resourceArn=queue, tags={"team": "sound"})
    assert batch.list_tags_for_resource(resourceArn=queue)["tags"] == {"team": "sound"}
    batch.untag_resource(resourceArn=queue, tagKeys=["team"])
    [found] = queue_of(batch, queue)
    assert (found["priority"], found.get("tags", {})) == (2, {})

    # To remove is to disable, to wait until VALID, to delete, and to wait until it is gone.
    batch.update_job_queue(jobQueue=queue, state="DISABLED")
    wait_until(lambda: queue_of(batch, queue)[0]["status"] == "VALID", "the queue to be disabled")
    batch.delete_job_queue(jobQueue=queue)
    wait_until(lambda: all(one["status"] == "DELETED" for one in queue_of(batch, queue)), "the queue to go")
    batch.update_compute_environment(computeEnvironment="tf", state="DISABLED")
    wait_until(lambda: environment_of(batch, "tf")[0]["status"] == "VALID", "it to be disabled")
    batch.delete_compute_environment(computeEnvironment="tf")
    wait_until(lambda: not environment_of(batch, "tf"), "the environment to go")
    batch.delete_scheduling_policy(arn=policy)
    assert batch.describe_scheduling_policies(arns=[policy])["schedulingPolicies"] == []
    with pytest.raises(ClientError, match="does not exist"):
        batch.update_compute_environment(computeEnvironment="tf", state="DISABLED")
    with pytest.raises(ClientError, match="does not exist"):
        batch.update_job_queue(jobQueue=queue, state="DISABLED")


@pytest.mark.parametrize("member", ["containerProperties", "ecsProperties"])
def test_terraform_sees_no_change_in_a_definition_that_it_registered(windfall, member):
    batch = windfall.client("batch")
    container = {
        "image": "busybox",
        "command": ["echo", "hello"],
        "environment": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
        "resourceRequirements": NEEDS,
        "mountPoints": [{"sourceVolume": "tmp", "containerPath": "/in", "readOnly": False}],
        "linuxParameters": {"initProcessEnabled": True},
        "logConfiguration": {"logDriver": "awslogs", "options": {"awslogs-stream-prefix": "tf"}},
    }
    volumes = [{"name": "tmp", "host": {"sourcePath": "/tmp"}}]
    written = {
        "containerProperties": {**container, "volumes": volumes, "jobRoleArn": ROLE},
        "ecsProperties": {
            "taskProperties": [
                {
                    "containers": [{**container, "name": "a", "essential": True}],
                    "volumes": volumes,
                    "taskRoleArn": ROLE,
                }
            ]
        },
    }[member]
    asked = {"jobDefinitionName": f"tf-{member}", "type": "container", "propagateTags": False, "tags": {}}
    rule = {"onExitCode": "1*", "action": "RETRY"}
    first = batch.register_job_definition(
        **asked,
        **{member: written},
        parameters={"a": "b"},
        retryStrategy={"attempts": 2, "evaluateOnExit": [rule]},
        timeout={"attemptDurationSeconds": 60},
    )["jobDefinitionArn"]
    [found] = batch.describe_job_definitions(jobDefinitions=[first])["jobDefinitions"]
    assert without_empty(found[member]) == written
    assert {"containerProperties", "ecsProperties", "nodeProperties", "eksProperties"} & found.keys() == {
        member
    }
    assert (found["status"], found["type"], found["revision"]) == ("ACTIVE", "container", 1)
    assert (found["parameters"], found["propagateTags"]) == ({"a": "b"}, False)
    assert found["retryStrategy"]["evaluateOnExit"] == [{**rule, "action": "retry"}]
    assert found["timeout"] == {"attemptDurationSeconds": 60}
    second = batch.register_job_definition(**asked, **{member: written})["jobDefinitionArn"]
    assert second == f"{first.removesuffix(':1')}:2"
    [found] = batch.describe_job_definitions(jobDefinitions=[second])["jobDefinitions"]
    assert "retryStrategy" not in found
    assert "timeout" not in found
    batch.deregister_job_definition(jobDefinition=first)
    [found] = batch.describe_job_definitions(jobDefinitions=[first])["jobDefinitions"]
    assert found["status"] == "INACTIVE"
    batch.tag_resource(resourceArn=second, tags={"team": "vision"})
    [found] = batch.describe_job_definitions(jobDefinitionName=f"tf-{member}", status="ACTIVE")[
        "jobDefinitions"
    ]
    assert (found["jobDefinitionArn"], found["tags"]) == (second, {"team": "vision"})


def test_terraform_keeps_a_schedule_in_a_group(windfall):
    scheduler = windfall.client("scheduler")
    group = scheduler.create_schedule_group(Name="tf", Tags=[{"Key": "team", "Value": "vision"}])
    found = scheduler.get_schedule_group(Name="tf")
    assert (found["State"], found["Arn"]) == ("ACTIVE", group["ScheduleGroupArn"])
    assert found["CreationDate"] <= found["LastModificationDate"]
    assert scheduler.list_tags_for_resource(ResourceArn=found["Arn"])["Tags"] == [
        {"Key": "team", "Value": "vision"}
    ]
    target = {
        "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
        "RoleArn": ROLE,
        "Input": json.dumps({"JobName": "weekly", "JobQueue": "q", "JobDefinition": "d"}),
        "RetryPolicy": {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185},
    }
    asked: dict[str, Any] = {
        "Name": "weekly",
        "ActionAfterCompletion": "NONE",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ScheduleExpression": "cron(0 2 ? * MON-FRI 2040-2050)",
        "ScheduleExpressionTimezone": "UTC",
        "State": "ENABLED",
        "Target": target,
    }
    alone = scheduler.create_schedule(**asked)["ScheduleArn"]
    assert alone.endswith(":schedule/default/weekly")
    assert scheduler.create_schedule(**asked, GroupName="tf")["ScheduleArn"].endswith(":schedule/tf/weekly")
    scheduler.update_schedule(**{**asked, "GroupName": "tf", "State": "DISABLED", "Description": "at night"})
    found = scheduler.get_schedule(GroupName="tf", Name="weekly")
    assert {name: found[name] for name in asked} == {**asked, "State": "DISABLED"}
    assert (found["GroupName"], found["Description"]) == ("tf", "at night")
    assert not {"KmsKeyArn", "StartDate", "EndDate"} & found.keys()
    for name in ("default", "tf"):
        scheduler.delete_schedule(GroupName=name, Name="weekly")
        with pytest.raises(scheduler.exceptions.ResourceNotFoundException):
            scheduler.get_schedule(GroupName=name, Name="weekly")
    scheduler.delete_schedule_group(Name="tf")

    def gone() -> bool:
        try:
            return scheduler.get_schedule_group(Name="tf")["State"] != "DELETING"
        except scheduler.exceptions.ResourceNotFoundException:
            return True

    wait_until(gone, "the group to go")
    with pytest.raises(scheduler.exceptions.ResourceNotFoundException):
        scheduler.delete_schedule_group(Name="tf")


# Workflow tools ---------------------------------------------------------------------------------------------------


def test_metaflow_finds_the_platform_registers_once_and_waits_with_a_waiter_of_its_own(windfall):
    batch = a_queue(windfall, "metaflow")
    [queue] = batch.describe_job_queues(jobQueues=["metaflow"])["jobQueues"]
    environment = queue["computeEnvironmentOrder"][0]["computeEnvironment"]
    [found] = batch.describe_compute_environments(computeEnvironments=[environment])["computeEnvironments"]
    assert found["computeResources"]["type"] == "EC2"
    name = "metaflow_" + "0" * 56
    assert batch.describe_job_definitions(jobDefinitionName=name, status="ACTIVE")["jobDefinitions"] == []
    container = {
        "image": "python:3.11",
        "jobRoleArn": ROLE,
        "command": ["echo", "hello world"],
        "resourceRequirements": [{"value": "1", "type": "VCPU"}, {"value": "4096", "type": "MEMORY"}],
        "linuxParameters": {
            "tmpfs": [{"containerPath": "/scratch", "size": 64, "mountOptions": ["defaults"]}]
        },
    }
    node = {"container": container}
    ranges = [{"targetNodes": "0:0", **node}, {"targetNodes": "1:1", **node}]
    definition = batch.register_job_definition(
        jobDefinitionName=name,
        type="multinode",
        nodeProperties={"numNodes": 2, "mainNode": 0, "nodeRangeProperties": ranges},
        propagateTags=True,
    )["jobDefinitionArn"]
    change = {
        "resourceRequirements": [{"value": "1", "type": "VCPU"}, {"value": "128", "type": "MEMORY"}],
        "environment": [{"name": "METAFLOW_USER", "value": "me"}],
    }
    script = "test $METAFLOW_USER$AWS_BATCH_JOB_NODE_INDEX = me%d || exit 9; exit %d"
    job_id = batch.submit_job(
        jobName="flow-1-step-2-0",
        jobQueue="metaflow",
        jobDefinition=definition,
        nodeOverrides={
            "nodePropertyOverrides": [
                {
                    "targetNodes": f"{n}:{n}",
                    "containerOverrides": {**change, "command": ["sh", "-c", script % (n, 4)]},
                }
                for n in (0, 1)
            ]
        },
        retryStrategy={"attempts": 1},
        timeout={"attemptDurationSeconds": 432000},
        tags={"app": "metaflow", "metaflow.run_id.$": "1"},
        parameters={"metaflow.user": "me"},
    )["jobId"]
    one_of = [
        {"argument": "jobs[].status", "expected": state, "matcher": "pathAny", "state": "success"}
        for state in ("SUCCEEDED", "FAILED", "RUNNING")
    ]
    running = {"delay": 1, "operation": "DescribeJobs", "maxAttempts": 60, "acceptors": one_of}
    model = waiter.WaiterModel({"version": 2, "waiters": {"JobRunning": running}})
    waiter.create_waiter_with_client("JobRunning", model, batch).wait(jobs=[job_id])
    [job] = windfall.wait_for([job_id])
    assert job["jobQueue"] == queue["jobQueueArn"]
    assert (job["status"], job["createdAt"] <= job["stoppedAt"]) == ("FAILED", True)
    # It looks into `container` if there is one, else into the last attempt.
    assert job["container"]["exitCode"] == 4
    assert job["attempts"][-1]["container"]["exitCode"] == 4
    assert job["statusReason"]
    assert job["tags"]["metaflow.run_id.$"] == "1"
    pages = batch.get_paginator("list_jobs").paginate(jobQueue="metaflow", jobStatus="FAILED")
    assert [one["jobId"] for page in pages for one in page["jobSummaryList"]] == [job_id]
    assert [
        one["jobQueueName"]
        for page in batch.get_paginator("describe_job_queues").paginate()
        for one in page["jobQueues"]
        if (one["state"], one["status"], one["jobQueueName"]) == ("ENABLED", "VALID", "metaflow")
    ] == ["metaflow"]


def test_torchx_finds_its_job_by_name_and_a_node_by_the_job_s_arn(windfall):
    batch = a_queue(windfall, "torchx")
    tags = {"torchx.pytorch.org/version": "0.8.0", "torchx.pytorch.org/user": "me"}
    name = "trainer-h4x0r"

    def role(node: int) -> dict[str, Any]:
        return {
            "targetNodes": f"{node}:{node}",
            "container": {
                "command": ["sh", "-c", "echo $TORCHX_ROLE_NAME; exec sleep 600"],
                "image": "windfall/host",
                "environment": [{"name": "TORCHX_ROLE_NAME", "value": f"role-{node}"}],
                "privileged": False,
                "resourceRequirements": NEEDS,
                "linuxParameters": {"sharedMemorySize": 64, "devices": []},
                "logConfiguration": {"logDriver": "awslogs"},
                "mountPoints": [],
                "volumes": [],
            },
        }

    batch.register_job_definition(
        jobDefinitionName=name,
        type="multinode",
        nodeProperties={"numNodes": 2, "mainNode": 0, "nodeRangeProperties": [role(0), role(1)]},
        retryStrategy={"attempts": 1, "evaluateOnExit": [{"onExitCode": "0", "action": "EXIT"}]},
        tags=tags,
    )
    batch.submit_job(jobName=name, jobQueue="torchx", jobDefinition=name, tags=tags)
    by_name = [{"name": "JOB_NAME", "values": [name]}]
    pages = batch.get_paginator("list_jobs").paginate(jobQueue="torchx", filters=by_name)
    [summary] = [one for page in pages for one in page["jobSummaryList"]]
    arn = summary["jobArn"]

    def stream_of(node: int) -> str | None:
        [described] = batch.describe_jobs(jobs=[f"{arn}#{node}"])["jobs"]
        if described["status"] == "RUNNING":
            return described["container"]["logStreamName"]
        return described["attempts"][-1]["container"]["logStreamName"] if described["attempts"] else None

    def all_have_spoken() -> bool:
        streams = [stream_of(node) for node in (0, 1)]
        return all(stream is not None and printed(windfall, stream) for stream in streams)

    wait_until(all_have_spoken, "both nodes to say who they are")
    batch.terminate_job(jobId=arn, reason="killed via torchx CLI")
    [job] = windfall.wait_for([arn], "FAILED")
    for node, group in enumerate(job["nodeProperties"]["nodeRangeProperties"]):
        container = group["container"]
        assert group["targetNodes"] == f"{node}:{node}"
        assert {one["type"]: int(one["value"]) for one in container["resourceRequirements"]} == {
            "VCPU": 1,
            "MEMORY": 64,
        }
        assert (container["image"], container["command"][0]) == ("windfall/host", "sh")
        assert batch.describe_jobs(jobs=[f"{arn}#{node}"])["jobs"][0]["status"] != "RUNNING"
        stream = stream_of(node)
        assert stream is not None
        assert printed(windfall, stream) == [f"role-{node}"]
    since = [{"name": "AFTER_CREATED_AT", "values": ["1"]}]
    pages = batch.get_paginator("list_jobs").paginate(
        jobQueue="torchx", filters=since, PaginationConfig={"MaxItems": 100}
    )
    ids = [one["jobId"] for page in pages for one in page["jobSummaryList"]]
    [listed] = batch.describe_jobs(jobs=ids)["jobs"]
    assert tags.items() <= listed["tags"].items()


def test_redun_registers_old_members_overrides_them_and_looks_into_an_array(windfall):
    batch = a_queue(windfall, "redun")
    account = windfall.client("sts").get_caller_identity()["Account"]
    properties = {
        "command": ["ls"],
        "image": "windfall/host",
        "vcpus": 1,
        "memory": 4,
        "jobRoleArn": f"arn:aws:iam::{int(account)}:role/ecsTaskExecutionRole",
        "environment": [],
        "mountPoints": [],
        "volumes": [],
        "resourceRequirements": [],
        "ulimits": [],
        "privileged": False,
    }
    registered = batch.register_job_definition(
        jobDefinitionName="redun-jd", type="container", containerProperties=properties
    )
    listed = batch.describe_job_definitions(jobDefinitionName="redun-jd", status="ACTIVE")["jobDefinitions"]
    newest = max(listed, key=lambda one: one["revision"])
    assert newest["jobDefinitionArn"] == registered["jobDefinitionArn"]
    # It registers again unless all that it sent comes back.
    assert {name: newest["containerProperties"][name] for name in properties} == properties
    submitted = batch.submit_job(
        jobName="redun-abc-array",
        jobQueue="redun",
        jobDefinition=registered["jobDefinitionArn"],
        containerOverrides={
            "vcpus": 1,
            "memory": 64,
            "command": ["sh", "-c", "echo index $AWS_BATCH_JOB_ARRAY_INDEX; exit $AWS_BATCH_JOB_ARRAY_INDEX"],
            "resourceRequirements": [{"type": "GPU", "value": "1"}],
        },
        retryStrategy={"attempts": 1},
        propagateTags=True,
        arrayProperties={"size": 2},
        tags={"redun_job_id": "1"},
    )
    windfall.wait_for([submitted["jobId"]], "FAILED")
    pages = batch.get_paginator("list_jobs").paginate(arrayJobId=submitted["jobId"], jobStatus="FAILED")
    [child] = [one for page in pages for one in page["jobSummaryList"]]
    assert child["arrayProperties"]["index"] == 1
    [job] = batch.describe_jobs(jobs=[child["jobId"]])["jobs"]
    assert (job["container"]["vcpus"], job["container"]["memory"]) == (1, 64)
    assert job["attempts"][-1]["container"]["exitCode"] == 1
    assert job["attempts"][-1]["statusReason"]
    assert printed(windfall, job["container"]["logStreamName"]) == ["index 1"]


def test_snakemake_cleans_up_after_a_job_that_has_ended(windfall):
    batch = a_queue(windfall, "snakemake")
    registered = batch.register_job_definition(
        jobDefinitionName="snakejob-def-align",
        type="container",
        containerProperties={
            "image": "windfall/host",
            "command": ["/bin/bash", "-c", "exit 1"],
            "environment": [],
            "jobRoleArn": ROLE,
            "privileged": True,
            "resourceRequirements": NEEDS,
        },
        timeout={"attemptDurationSeconds": 300},
        tags={},
        platformCapabilities=["EC2"],
    )
    revision = f"{registered['jobDefinitionName']}:{registered['revision']}"
    job_id = batch.submit_job(jobName="snakejob-align", jobQueue="snakemake", jobDefinition=revision)["jobId"]
    [job] = windfall.wait_for([job_id], "FAILED")
    assert (job["container"]["exitCode"], bool(job["statusReason"])) == (1, True)
    # It stops every job that it has seen end, and forgets the definition that the job names.
    batch.terminate_job(jobId=job_id, reason="terminated by snakemake")
    batch.deregister_job_definition(jobDefinition=job["jobDefinition"])
    assert batch.describe_jobs(jobs=[job_id])["jobs"][0]["statusReason"] == job["statusReason"]
    listed = batch.describe_job_definitions(jobDefinitions=[revision], status="ACTIVE")["jobDefinitions"]
    assert listed == []


def test_nextflow_knows_its_definition_by_a_token_and_reads_how_a_job_ended(windfall):
    batch = a_queue(windfall, "nextflow")
    name, token = "nf-quay-io-tool-1-0", "0f1e2d"
    assert batch.describe_job_definitions(jobDefinitionName=name)["jobDefinitions"] == []
    registered = batch.register_job_definition(
        jobDefinitionName=name,
        type="container",
        parameters={"nf-token": token},
        containerProperties={
            "image": "windfall/host",
            "command": ["true"],
            "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "1024"}],
            "jobRoleArn": ROLE,
            "logConfiguration": {
                "logDriver": "awslogs",
                "options": {"awslogs-region": "eu-west-1", "awslogs-group": LOGS},
            },
        },
        tags={"nextflow.io/createdAt": "2026-01-02T03:04:05.678901Z", "nextflow.io/version": "25.10.0"},
    )
    [found] = batch.describe_job_definitions(jobDefinitionName=name)["jobDefinitions"]
    assert (found["status"], found["parameters"]["nf-token"]) == ("ACTIVE", token)
    job_id = batch.submit_job(
        jobName="align_sample_1",
        jobQueue="nextflow",
        jobDefinition=f"{registered['jobDefinitionName']}:{registered['revision']}",
        retryStrategy={
            "attempts": 5,
            "evaluateOnExit": [
                {"action": "RETRY", "onStatusReason": "Host EC2*"},
                {"action": "EXIT", "onReason": "*"},
            ],
        },
        timeout={"attemptDurationSeconds": 60},
        containerOverrides={
            "command": [
                "bash",
                "-o",
                "pipefail",
                "-c",
                "trap '{ ret=$?; exit $ret; }' EXIT; cat nothing | cat",
            ],
            "resourceRequirements": [{"type": "MEMORY", "value": "64"}],
            "environment": [{"name": "AWS_MAX_ATTEMPTS", "value": "5"}, {"name": "NXF_DEBUG", "value": "1"}],
        },
        tags={"uniqueRunId": "tw-1"},
        propagateTags=True,
    )["jobId"]
    [job] = windfall.wait_for([job_id])
    assert (job["status"], len(job["attempts"])) == ("FAILED", 1)
    assert job["container"]["exitCode"] == 1
    assert "/" in job["container"]["taskArn"]
    assert job["statusReason"] == "Essential container in task exited"
    assert "nothing" in printed(windfall, job["container"]["logStreamName"])[0]
    killed = batch.submit_job(
        jobName="sleep",
        jobQueue="nextflow",
        jobDefinition=name,
        containerOverrides={"command": ["sleep", "600"]},
    )["jobId"]
    windfall.wait_for([killed], "RUNNING")
    batch.terminate_job(jobId=killed, reason="Job killed by NF")
    [job] = windfall.wait_for([killed])
    assert (job["status"], job["statusReason"]) == ("FAILED", "Job killed by NF")
