"""Compute environments: what a request means for the core, and that all of it comes back."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.batch.fakes import ACCOUNT, ARN, NOW, REGION, an_environment
from windfall.capacity.environments import Provisioning, Switch
from windfall.control.events import DeleteComputeEnvironment, UpdateComputeEnvironment
from windfall.jobs.errors import Conflict, NotFound

GPU_ENVIRONMENT = {
    "computeEnvironmentName": "gpu-compute-env",
    "type": "MANAGED",
    "computeResources": {
        "type": "EC2",
        "allocationStrategy": "BEST_FIT_PROGRESSIVE",
        "minvCpus": 0,
        "maxvCpus": 256,
        "instanceTypes": ["p3", "g5"],
        "subnets": ["subnet-0abc123"],
        "securityGroupIds": [],
        "instanceRole": "arn:aws:iam::123456789012:instance-profile/ecsInstanceRole",
        "ec2Configuration": [{"imageType": "ECS_AL2_NVIDIA"}],
        "tags": {"team": "ml"},
    },
    "serviceRole": "arn:aws:iam::123456789012:role/AWSBatchServiceRole",
    "state": "ENABLED",
}


def managed(name: str = "env", **resources) -> dict:
    return {
        "computeEnvironmentName": name,
        "type": "MANAGED",
        "computeResources": {"type": "EC2", "maxvCpus": 8, **resources},
    }


def test_an_environment_is_created_and_described_as_it_was_sent(world):
    client = world.client()
    created = client.create_compute_environment(**GPU_ENVIRONMENT)
    assert created["computeEnvironmentArn"] == f"{ARN}:compute-environment/gpu-compute-env"
    environment = world.last.environment
    assert (environment.provisioning, environment.min_vcpus, environment.max_vcpus) == (
        Provisioning.EC2,
        0,
        256,
    )
    assert (environment.switch, environment.engine, environment.created_at) == (Switch.ENABLED, None, NOW)
    assert (environment.instance_types, environment.allocation) == (("p3", "g5"), "BEST_FIT_PROGRESSIVE")

    (detail,) = client.describe_compute_environments()["computeEnvironments"]
    sent = GPU_ENVIRONMENT["computeResources"]
    assert {name: detail["computeResources"][name] for name in sent} == sent
    assert detail["computeResources"]["desiredvCpus"] == 0
    assert detail["serviceRole"] == GPU_ENVIRONMENT["serviceRole"]
    assert detail["status"] == "VALID"
    assert detail["statusReason"] == "ComputeEnvironment Healthy"
    assert detail["ecsClusterArn"] == f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/AWSBatch-gpu-compute-env"
    assert detail["containerOrchestrationType"] == "ECS"
    assert detail["uuid"] == environment.uuid
    assert detail["tags"] == {}


def test_an_environment_without_service_role_is_valid(world):
    world.call("CreateComputeEnvironment", **managed())
    assert world.last.environment.name == "env"


def test_the_engine_is_named_by_a_tag(world):
    world.call("CreateComputeEnvironment", **managed(), tags={"windfall:engine": "simulated", "a": "b"})
    assert world.last.environment.engine == "simulated"
    assert world.last.environment.tags == {"windfall:engine": "simulated", "a": "b"}


@pytest.mark.parametrize(("sent", "most"), [({}, 1_000_000), ({"unmanagedvCpus": 12}, 12)])
def test_unmanaged_environments_run_jobs_too(world, sent, most):
    world.call("CreateComputeEnvironment", computeEnvironmentName="own", type="UNMANAGED", **sent)
    environment = world.last.environment
    assert (environment.provisioning, environment.max_vcpus) == (Provisioning.UNMANAGED, most)
    (detail,) = world.call("DescribeComputeEnvironments")["computeEnvironments"]
    assert detail["type"] == "UNMANAGED"
    assert detail.get("unmanagedvCpus") == sent.get("unmanagedvCpus")
    assert "computeResources" not in detail


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({**managed(), "computeEnvironmentName": "no spaces"}, "must have 1 to 128 letters"),
        ({**managed(), "computeEnvironmentName": "x" * 129}, "must have 1 to 128 letters"),
        ({"computeEnvironmentName": "e", "type": "MANAGED"}, "computeResources must be provided"),
        ({**managed(), "type": "UNMANAGED"}, "computeResources cannot be provided"),
        ({**managed(), "unmanagedvCpus": 1}, "unmanagedvCpus is only supported"),
        (managed(minvCpus=9), "minvCpus (9) must not be more than maxvCpus (8)"),
        (managed(minvCpus=-1), "minvCpus must not be negative"),
        (managed(maxvCpus=0), "maxvCpus must be at least 1"),
        (managed(desiredvCpus=9), "desiredvCpus (9) must be between"),
        (managed(type="FARGATE", minvCpus=1), "minvCpus not applicable for Fargate."),
        (managed(type="FARGATE_SPOT", instanceTypes=["g5"]), "instanceTypes not applicable for Fargate."),
        (managed(type="ECS_MANAGED_INSTANCES"), "Windfall does not support"),
        (managed(allocationStrategy="SPOT_CAPACITY_OPTIMIZED"), "is for compute resources of type SPOT"),
        (managed(type="SPOT", bidPercentage=0), "bidPercentage must be at least 1"),
        (
            {**managed(), "eksConfiguration": {"eksClusterArn": "a", "kubernetesNamespace": "b"}},
            "Windfall does not support eksConfiguration",
        ),
        ({**managed(), "tags": {"aws:x": "1"}}, "begins with aws:, which is reserved"),
        ({**managed(), "tags": {"k": "v" * 257}}, "less than or equal to 256"),
        ({**managed(), "tags": {f"k{i}": "" for i in range(51)}}, "less than or equal to 50"),
    ],
)
def test_a_contradictory_environment_is_refused(world, request_, text):
    assert text in world.refused("CreateComputeEnvironment", **request_)


def simulated(tags: dict[str, str] | None = None, **resources) -> dict:
    request = managed(**{"type": "SPOT", "instanceTypes": ["p3.2xlarge"], **resources})
    return {**request, "tags": {"windfall:engine": "simulated", **(tags or {})}}


def test_types_strategy_and_bid_reach_the_core_and_come_back(world):
    sent = simulated(
        {"windfall:mtbi-s": "60", "windfall:capacity": "0"},
        instanceTypes=["p3", "g5.xlarge", "optimal"],
        allocationStrategy="SPOT_PRICE_CAPACITY_OPTIMIZED",
        bidPercentage=70,
    )
    world.call("CreateComputeEnvironment", **sent)
    environment = world.last.environment
    assert environment.instance_types == ("p3", "g5.xlarge", "optimal")
    assert (environment.allocation, environment.bid_percent) == ("SPOT_PRICE_CAPACITY_OPTIMIZED", 70)
    (detail,) = world.call("DescribeComputeEnvironments")["computeEnvironments"]
    kept = detail["computeResources"]
    assert {name: kept[name] for name in sent["computeResources"]} == sent["computeResources"]
    assert detail["tags"] == sent["tags"]


def test_unknown_types_are_kept_where_types_mean_nothing(world):
    world.call("CreateComputeEnvironment", **managed(instanceTypes=["z9.huge"]))
    assert world.last.environment.instance_types == ("z9.huge",)


def test_an_update_may_change_types_strategy_and_bid(world):
    world.call("CreateComputeEnvironment", **simulated())
    update = {
        "instanceTypes": ["g5"],
        "allocationStrategy": "SPOT_CAPACITY_OPTIMIZED",
        "bidPercentage": 50,
    }
    world.call("UpdateComputeEnvironment", computeEnvironment="env", computeResources=update)
    command = world.last
    assert (command.instance_types, command.allocation, command.bid_percent) == (
        ("g5",),
        "SPOT_CAPACITY_OPTIMIZED",
        50,
    )
    world.call("UpdateComputeEnvironment", computeEnvironment="env", computeResources={"maxvCpus": 3})
    assert (world.last.instance_types, world.last.allocation, world.last.bid_percent) == (None, None, None)


def test_an_update_takes_away_what_it_sends_empty(world):
    sent = {
        "ec2KeyPair": "key",
        "imageId": "ami-1",
        "placementGroup": "near",
        "launchTemplate": {"launchTemplateName": "boot", "version": "$Latest"},
        "bidPercentage": 40,
    }
    world.call("CreateComputeEnvironment", **simulated(**sent))

    def update(**resources) -> dict:
        world.call("UpdateComputeEnvironment", computeEnvironment="env", computeResources=resources)
        (detail,) = world.call("DescribeComputeEnvironments")["computeEnvironments"]
        return detail["computeResources"]

    assert update(maxvCpus=9).items() >= sent.items()
    template = {"launchTemplateId": "lt-1"}
    assert update(launchTemplate=template)["launchTemplate"] == template
    empty = {"ec2KeyPair": "", "imageId": "", "placementGroup": "", "bidPercentage": 0}
    assert not update(**empty, launchTemplate={"launchTemplateId": ""}).keys() & sent.keys()
    update(bidPercentage=0)
    assert world.last.bid_percent == 100


def test_the_core_s_refusal_reaches_the_caller(world):
    world.gate.refusal = Conflict("Object already exists")
    assert world.refused("CreateComputeEnvironment", **managed()) == "Object already exists"


def test_an_update_changes_what_it_names_and_keeps_the_rest(world):
    client = world.client()
    client.create_compute_environment(**GPU_ENVIRONMENT)
    client.update_compute_environment(
        computeEnvironment=f"{ARN}:compute-environment/gpu-compute-env",
        state="DISABLED",
        computeResources={
            "maxvCpus": 64,
            "desiredvCpus": 4,
            "subnets": [],
            "updateToLatestImageVersion": True,
        },
        updatePolicy={"terminateJobsOnUpdate": False, "jobExecutionTimeoutMinutes": 30},
    )
    command = world.last
    assert isinstance(command, UpdateComputeEnvironment)
    assert (command.name, command.switch, command.max_vcpus, command.min_vcpus) == (
        "gpu-compute-env",
        Switch.DISABLED,
        64,
        None,
    )
    (detail,) = client.describe_compute_environments(computeEnvironments=["gpu-compute-env"])[
        "computeEnvironments"
    ]
    resources = detail["computeResources"]
    assert (resources["maxvCpus"], resources["desiredvCpus"], resources["subnets"]) == (64, 4, [])
    assert resources["instanceTypes"] == ["p3", "g5"]
    assert "updateToLatestImageVersion" not in resources
    assert detail["updatePolicy"]["jobExecutionTimeoutMinutes"] == 30
    assert detail["state"] == "DISABLED"


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({}, "One of [state | compute-resources | service-role | unmanaged-vcpus] is required."),
        ({"updatePolicy": {"jobExecutionTimeoutMinutes": 0}}, "value greater than or equal to 1"),
        ({"computeResources": {"minvCpus": 99}}, "minvCpus (99) must not be more"),
        ({"computeResources": {"desiredvCpus": 99}}, "desiredvCpus (99) must be between"),
        ({"unmanagedvCpus": 1}, "unmanagedvCpus is only supported"),
    ],
)
def test_a_contradictory_update_is_refused(world, update, text):
    world.store.all_environments["env"] = an_environment()
    assert text in world.refused("UpdateComputeEnvironment", computeEnvironment="env", **update)


def test_an_update_of_an_unknown_environment_is_refused_by_the_core(world):
    world.gate.refusal = NotFound("nope does not exist")
    text = world.refused("UpdateComputeEnvironment", computeEnvironment="nope", state="DISABLED")
    assert text == "nope does not exist"


def test_an_unmanaged_environment_is_updated_by_its_vcpus(world):
    world.store.all_environments["env"] = an_environment(provisioning=Provisioning.UNMANAGED)
    world.call("UpdateComputeEnvironment", computeEnvironment="env", unmanagedvCpus=3)
    assert world.last.max_vcpus == 3


def test_an_environment_is_deleted_by_name_or_arn(world):
    for reference in ("env", f"{ARN}:compute-environment/env"):
        assert world.call("DeleteComputeEnvironment", computeEnvironment=reference) == {}
        assert world.last == DeleteComputeEnvironment("env")


def test_deleting_passes_the_core_s_sentence_on(world):
    world.gate.refusal = Conflict("Cannot delete, found existing JobQueue relationship")
    text = world.refused("DeleteComputeEnvironment", computeEnvironment="env")
    assert text == "Cannot delete, found existing JobQueue relationship"


def test_the_arn_of_something_else_is_refused(world):
    text = world.refused("DeleteComputeEnvironment", computeEnvironment=f"{ARN}:job-queue/env")
    assert "is not the ARN of a compute-environment" in text


def test_environments_are_described_in_pages(world):
    for number in range(7):
        world.store.all_environments[f"e{number}"] = an_environment(f"e{number}")
    client = world.client()
    names, token = [], None
    while True:
        page = client.describe_compute_environments(maxResults=3, **({"nextToken": token} if token else {}))
        names += [detail["computeEnvironmentName"] for detail in page["computeEnvironments"]]
        token = page.get("nextToken")
        if token is None:
            break
        # What the last page ended with may be gone by now.
        world.store.all_environments.pop(names[-1])
    assert names == [f"e{number}" for number in range(7)]


def test_unknown_names_are_left_out(world):
    world.store.all_environments["a"] = an_environment("a")
    found = world.call(
        "DescribeComputeEnvironments", computeEnvironments=["b", f"{ARN}:compute-environment/a"]
    )
    assert [detail["computeEnvironmentName"] for detail in found["computeEnvironments"]] == ["a"]


@pytest.mark.parametrize("token", ["%%%", "ImEi", "YWJjZGVmZ2hpamtsbW5vcA==", "é"])
def test_a_forged_token_is_refused(world, token):
    assert "nextToken is not valid" in world.refused("DescribeComputeEnvironments", nextToken=token)


def test_fewer_than_one_result_is_refused(world):
    assert "maxResults must be between" in world.refused("DescribeComputeEnvironments", maxResults=0)
