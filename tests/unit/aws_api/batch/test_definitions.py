"""Job definitions: what the core goes by, that the rest comes back, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.aws_api.batch.fakes import ARN, NOW, a_definition
from windfall.aws_api.batch.run_definitions import plain_definition
from windfall.aws_api.protocol.errors import AccessDeniedError
from windfall.aws_api.protocol.keys import Role
from windfall.control.events import DeregisterJobDefinition
from windfall.jobs.errors import NotFound
from windfall.jobs.resources import Resources
from windfall.jobs.retry import Action, ExitRule, RetryStrategy

GPU_TRAINING = {
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/ml-training:latest",
    "resourceRequirements": [
        {"type": "VCPU", "value": "8"},
        {"type": "MEMORY", "value": "32768"},
        {"type": "GPU", "value": "1"},
    ],
    "linuxParameters": {"sharedMemorySize": 8192},
    "logConfiguration": {
        "logDriver": "awslogs",
        "options": {"awslogs-group": "/aws/batch/gpu-jobs", "awslogs-stream-prefix": "training"},
    },
    "environment": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
}


def container(**changes) -> dict:
    sent = {"image": "busybox", "vcpus": 1, "memory": 128, **changes}
    return {name: value for name, value in sent.items() if value is not None}


def register(world, **changes) -> dict:
    request = {"jobDefinitionName": "d", "type": "container", "containerProperties": container(), **changes}
    return world.call("RegisterJobDefinition", **request)


def refused(world, **changes) -> str:
    request = {"jobDefinitionName": "d", "type": "container", "containerProperties": container(), **changes}
    return world.refused("RegisterJobDefinition", **request)


def test_a_gpu_definition_is_registered(world):
    answer = world.client().register_job_definition(
        jobDefinitionName="gpu-training-job", type="container", containerProperties=GPU_TRAINING
    )
    assert answer["jobDefinitionArn"] == f"{ARN}:job-definition/gpu-training-job:1"
    assert (answer["jobDefinitionName"], answer["revision"]) == ("gpu-training-job", 1)
    definition = world.last.definition
    spec = definition.container
    assert spec.resources == Resources(8, 32768, 1)
    assert (spec.shared_memory_mib, spec.log_group, spec.log_prefix) == (
        8192,
        "/aws/batch/gpu-jobs",
        "training",
    )
    assert spec.environment == {"NVIDIA_VISIBLE_DEVICES": "all"}
    assert definition.registered_at == NOW


def test_what_was_sent_comes_back_unchanged(world):
    sent = container(
        command=[],
        mountPoints=[],
        volumes=[],
        ulimits=[{"name": "nofile", "softLimit": 1, "hardLimit": 2}],
        privileged=False,
        readonlyRootFilesystem=True,
        jobRoleArn="arn:aws:iam::1:role/x",
        secrets=[{"name": "S", "valueFrom": "arn:aws:ssm:us-east-1:123456789012:parameter/s"}],
        user="nobody",
        linuxParameters={"initProcessEnabled": True, "devices": [], "tmpfs": []},
    )
    client = world.client()
    client.register_job_definition(
        jobDefinitionName="d",
        type="container",
        containerProperties=sent,
        parameters={"p": "1"},
        propagateTags=True,
        schedulingPriority=7,
        platformCapabilities=["EC2"],
        timeout={"attemptDurationSeconds": 60},
        retryStrategy={"attempts": 3, "evaluateOnExit": [{"action": "RETRY", "onStatusReason": "Host EC2*"}]},
        tags={"t": "v"},
    )
    (detail,) = client.describe_job_definitions(jobDefinitionName="d")["jobDefinitions"]
    assert detail["containerProperties"] == {**sent, "environment": [], "resourceRequirements": []}
    assert detail["retryStrategy"] == {
        "attempts": 3,
        "evaluateOnExit": [{"onStatusReason": "Host EC2*", "action": "retry"}],
    }
    assert detail["parameters"] == {"p": "1"}
    assert detail["timeout"] == {"attemptDurationSeconds": 60}
    assert (detail["propagateTags"], detail["schedulingPriority"]) == (True, 7)
    assert (detail["platformCapabilities"], detail["tags"]) == (["EC2"], {"t": "v"})
    assert (detail["status"], detail["type"], detail["revision"]) == ("ACTIVE", "container", 1)
    assert detail["containerOrchestrationType"] == "ECS"


def test_nothing_is_added_that_was_not_sent(world):
    register(world)
    (detail,) = world.call("DescribeJobDefinitions")["jobDefinitions"]
    assert not {"retryStrategy", "timeout", "propagateTags", "platformCapabilities"} & detail.keys()
    assert (detail["parameters"], detail["tags"]) == ({}, {})


@pytest.mark.parametrize("action", ["retry", "RETRY", "Retry"])
def test_retry_actions_are_taken_in_any_case(world, action):
    register(world, retryStrategy={"attempts": 2, "evaluateOnExit": [{"action": action, "onExitCode": "1*"}]})
    rule = ExitRule(Action.RETRY, on_exit_code="1*")
    assert world.last.definition.retry == RetryStrategy(2, (rule,))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"jobDefinitionName": "a b"}, "must have 1 to 128 letters"),
        ({"type": "multinode"}, "nodeProperties and the type multinode go together"),
        (
            {
                "nodeProperties": {
                    "numNodes": 1,
                    "mainNode": 0,
                    "nodeRangeProperties": [{"targetNodes": "0:"}],
                }
            },
            "nodeProperties and the type multinode go together",
        ),
        (
            {"ecsProperties": {"taskProperties": [{"containers": [{"image": "x"}]}]}},
            "Give either containerProperties or ecsProperties, not both",
        ),
        (
            {"eksProperties": {"podProperties": {"hostNetwork": True}}},
            "Windfall does not support eksProperties",
        ),
        (
            {
                "consumableResourceProperties": {
                    "consumableResourceList": [{"consumableResource": "x", "quantity": 0}]
                }
            },
            "quantity of x must be at least 1, got 0",
        ),
        ({"platformCapabilities": ["MANAGED_INSTANCES"]}, "Windfall does not support platformCapabilities"),
        ({"containerProperties": {}}, "Container properties should not be empty for a job of type container"),
        ({"containerProperties": container(image=None)}, "must have 1 to 255 characters"),
        ({"containerProperties": container(image="x" * 256)}, "must have 1 to 255 characters"),
        ({"containerProperties": container(vcpus=None)}, "vCPU is not provided."),
        ({"containerProperties": container(memory=None)}, "Memory is not provided."),
        ({"containerProperties": container(vcpus=0)}, "vcpus must be at least 1"),
        ({"containerProperties": container(memory=3)}, "memory must be at least 4"),
        ({"containerProperties": container(user="Some Body")}, "User 'Some Body' does not match regex"),
        (
            {"containerProperties": container(networkConfiguration={"assignPublicIp": "ENABLED"})},
            "networkConfiguration not applicable for EC2.",
        ),
        (
            {"containerProperties": container(fargatePlatformConfiguration={"platformVersion": "LATEST"})},
            "fargatePlatformConfiguration not applicable for EC2.",
        ),
        (
            {"containerProperties": container(environment=[{"name": "AWS_BATCH_X", "value": "1"}])},
            "must not start with AWS_BATCH",
        ),
        ({"containerProperties": container(environment=[{"value": "1"}])}, "name '' is not valid"),
        ({"containerProperties": container(environment=[{"name": "a=b"}])}, "name 'a=b' is not valid"),
        ({"containerProperties": container(linuxParameters={"sharedMemorySize": 0})}, "at least 1 MiB"),
        (
            {
                "containerProperties": container(
                    logConfiguration={"logDriver": "awslogs", "options": {"awslogs-group": "a b"}}
                )
            },
            "is not a valid log group name",
        ),
        (
            {
                "containerProperties": container(
                    logConfiguration={"logDriver": "awslogs", "options": {"awslogs-stream-prefix": "a:b"}}
                )
            },
            "must not contain a colon",
        ),
        ({"timeout": {"attemptDurationSeconds": 59}}, "must be at least 60 seconds, got 59"),
        ({"retryStrategy": {"attempts": 0}}, "RetryAttempts must be between 1 and 10"),
        ({"retryStrategy": {"attempts": 11}}, "RetryAttempts must be between 1 and 10"),
        (
            {"retryStrategy": {"evaluateOnExit": [{"action": "EXIT"}]}},
            "RetryAttempts must be provided with retry strategy",
        ),
        ({"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "EXIT"}] * 6}}, "more than 5 rules"),
        ({"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "WAIT"}]}}, "must be RETRY or EXIT"),
        (
            {"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "EXIT", "onExitCode": "1*2"}]}},
            "onExitCode '1*2' is not valid",
        ),
        (
            {"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "EXIT", "onReason": "a(b)"}]}},
            "onReason 'a(b)' is not valid",
        ),
        (
            {"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "EXIT", "onReason": "x" * 513}]}},
            "is not valid: use up to 512",
        ),
    ],
)
def test_a_bad_definition_is_refused(world, changes, text):
    assert text in refused(world, **changes)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            "VCPU",
            "1.0",
            "Value 1.0 for type VCPU in resourceRequirement is not valid. Please provide a numeric value.",
        ),
        ("VCPU", "0", "VCPU must be at least 1"),
        ("MEMORY", "3", "MEMORY must be at least 4"),
        ("MEMORY", "1e3", "Please provide a numeric value."),
        ("GPU", "0", "GPU must be at least 1"),
        ("GPU", "-1", "Please provide a numeric value."),
        ("GPU", "٣", "Please provide a numeric value."),
    ],
)
def test_a_bad_amount_is_refused(world, kind, value, text):
    amounts = {"VCPU": "1", "MEMORY": "8", kind: value}
    requirements = [{"type": k, "value": v} for k, v in amounts.items()]
    sent = container(vcpus=None, memory=None, resourceRequirements=requirements)
    assert text in refused(world, containerProperties=sent)


def test_an_amount_given_twice_is_refused(world):
    twice = [{"type": "VCPU", "value": "1"}]
    text = "Resource VCPU is provided more than once"
    assert refused(world, containerProperties=container(resourceRequirements=twice)) == text
    assert refused(world, containerProperties=container(vcpus=None, resourceRequirements=twice * 2)) == text


def fargate(**changes) -> dict:
    requirements = [{"type": "VCPU", "value": "0.25"}, {"type": "MEMORY", "value": "512"}]
    return container(**{"vcpus": None, "memory": None, "resourceRequirements": requirements, **changes})


def test_fargate_definitions_have_quarters_of_a_vcpu(world):
    register(world, platformCapabilities=["FARGATE"], containerProperties=fargate(networkConfiguration={}))
    assert world.last.definition.container.resources == Resources(0.25, 512)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vcpus": 1}, "vcpus is not applicable for Fargate. Use resource requirements instead."),
        ({"memory": 512}, "memory is not applicable for Fargate. Use resource requirements instead."),
        ({"privileged": True}, "privileged not applicable for Fargate."),
        ({"resourceRequirements": [{"type": "GPU", "value": "1"}]}, "GPU is not applicable for Fargate."),
        ({"resourceRequirements": [{"type": "VCPU", "value": "0.3"}]}, "Please provide a numeric value."),
        (
            {"resourceRequirements": [{"type": "VCPU", "value": "0.25"}, {"type": "MEMORY", "value": "777"}]},
            "Fargate resource requirements (0.25 vCPU, 777 MiB) not valid. On Fargate, with 0.25 vCPU, MEMORY must",
        ),
        (
            {"resourceRequirements": [{"type": "VCPU", "value": "3"}, {"type": "MEMORY", "value": "8192"}]},
            "VCPU must be one of 0.25, 0.5, 1, 2, 4, 8, 16, 32.",
        ),
    ],
)
def test_a_bad_fargate_definition_is_refused(world, changes, text):
    assert text in refused(world, platformCapabilities=["FARGATE"], containerProperties=fargate(**changes))


def test_a_large_definition_is_refused(world):
    text = refused(world, parameters={"p": "x" * 25_000})
    assert text == "Job definition size must be less than 24 KiB, got 25 KiB"


def test_definitions_are_found_by_name_status_and_reference(world):
    for definition in (
        a_definition("a", 1),
        a_definition("a", 2),
        a_definition("b", 10),
        a_definition("b", 9),
    ):
        world.store.all_definitions[definition.key] = definition
    world.store.all_definitions["a:1"] = replace(a_definition("a", 1), active=False)

    def found(**params):
        listed = world.client().describe_job_definitions(**params)["jobDefinitions"]
        return [f"{d['jobDefinitionName']}:{d['revision']} {d['status']}" for d in listed]

    assert found() == ["a:1 INACTIVE", "a:2 ACTIVE", "b:9 ACTIVE", "b:10 ACTIVE"]
    assert found(status="ACTIVE") == ["a:2 ACTIVE", "b:9 ACTIVE", "b:10 ACTIVE"]
    assert found(status="INACTIVE") == ["a:1 INACTIVE"]
    assert found(jobDefinitionName="a", status="ACTIVE") == ["a:2 ACTIVE"]
    assert found(jobDefinitions=["b:9", f"{ARN}:job-definition/a:1", "c:1"]) == ["a:1 INACTIVE", "b:9 ACTIVE"]
    assert found(jobDefinitions=["b"]) == ["b:9 ACTIVE", "b:10 ACTIVE"]
    pages = (
        world.client().get_paginator("describe_job_definitions").paginate(PaginationConfig={"PageSize": 3})
    )
    assert [len(page["jobDefinitions"]) for page in pages] == [3, 1]


def test_too_many_definitions_asked_for_are_refused(world):
    text = world.refused("DescribeJobDefinitions", jobDefinitions=["a:1"] * 101)
    assert text == "Maximum number of job definitions supported is 100"


def test_a_revision_is_deregistered(world):
    for reference in ("d:3", f"{ARN}:job-definition/d:3"):
        world.call("DeregisterJobDefinition", jobDefinition=reference)
        assert world.last == DeregisterJobDefinition("d", 3)


def test_deregistering_needs_a_revision_that_exists(world):
    assert "must be given with its revision" in world.refused("DeregisterJobDefinition", jobDefinition="d")
    assert "is not supported pattern" in world.refused("DeregisterJobDefinition", jobDefinition="d:x")
    world.gate.refusal = NotFound("Job definition d:9 does not exist")
    assert (
        world.refused("DeregisterJobDefinition", jobDefinition="d:9") == "Job definition d:9 does not exist"
    )


REQUESTS = [plain_definition(None), plain_definition("busybox:1")]


@pytest.mark.parametrize("request_", REQUESTS)
def test_everybody_who_submits_registers_what_windfall_run_needs(world, request_):
    world.role = Role.SUBMIT
    assert world.call("RegisterJobDefinition", **request_)["revision"] == 1


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize(
    "change",
    [
        {"tags": {"windfall:git": "https://example.com/evil.git@main"}},
        {"parameters": {"windfall-dir": "/tmp"}},
        {"containerProperties": container(image="busybox:1", environment=[{"name": "A", "value": "b"}])},
        {"containerProperties": container(image="windfall/host", command=["sh"])},
        {"containerProperties": container(image="evil")},
        {"retryStrategy": {"attempts": 2}},
    ],
)
def test_nobody_but_an_admin_changes_what_windfall_run_uses(world, request_, change):
    world.role = Role.SUBMIT
    with pytest.raises(AccessDeniedError, match="is the one that `windfall run` uses, and changing it needs"):
        world.call("RegisterJobDefinition", **{**request_, **change})
    world.role = Role.ADMIN
    assert world.call("RegisterJobDefinition", **{**request_, **change})["revision"] == 1
