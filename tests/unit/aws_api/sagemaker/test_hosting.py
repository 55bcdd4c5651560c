"""Models, configurations and endpoints over the real reactor and a real store, spoken to by boto3."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.core_gate import CoreGate
from tests.unit.aws_api.sagemaker.world import ACCOUNT, NOW, REGION, World
from windfall.aws_api.protocol.service import Role
from windfall.hosting.endpoint import RolloutKind
from windfall.jobs.storage import StoragePlace

ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/serve:1"
CONTAINER = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/model.tar.gz", "Environment": {"A": "b"}}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, CoreGate(None, NOW))
    made.gate.store = made.store
    place = StoragePlace("s3://bucket", write=True)
    made.gate.state.storage_places[place.key] = place
    yield made
    made.close()


@pytest.fixture
def client(world):
    return world.client()


def a_variant(name: str = "AllTraffic", **changes: Any) -> dict[str, Any]:
    variant = {
        "VariantName": name,
        "ModelName": "m",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    return {**variant, **changes}


def declare(client: Any, **variant: Any) -> None:
    client.create_model(ModelName="m", PrimaryContainer=CONTAINER, Tags=[{"Key": "a", "Value": "b"}])
    client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[a_variant(**variant)])


def refused(call: Any, **request: Any) -> str:
    with pytest.raises(ClientError) as error:
        call(**request)
    assert error.value.response["Error"]["Code"] == "ValidationException"
    return str(error.value.response["Error"]["Message"])


def test_a_model_comes_back_as_it_was_sent(client):
    declare(client)
    model = client.describe_model(ModelName="m")
    assert (model["ModelArn"], model["PrimaryContainer"]) == (f"{ARN}:model/m", CONTAINER)
    assert model["EnableNetworkIsolation"] is False
    assert [it["ModelName"] for it in client.list_models()["Models"]] == ["m"]
    assert client.list_tags(ResourceArn=f"{ARN}:model/m")["Tags"] == [{"Key": "a", "Value": "b"}]
    client.delete_tags(ResourceArn=f"{ARN}:model/m", TagKeys=["a"])
    added = client.add_tags(ResourceArn=f"{ARN}:model/m", Tags=[{"Key": "c", "Value": "d"}])
    assert added["Tags"] == [{"Key": "c", "Value": "d"}]
    client.delete_model(ModelName="m")
    assert refused(client.describe_model, ModelName="m") == f'Could not find model "{ARN}:model/m".'


def test_a_configuration_says_what_is_left_out(client):
    client.create_model(ModelName="m", PrimaryContainer=CONTAINER)
    variant = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.m5.large"}
    client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
    config = client.describe_endpoint_config(EndpointConfigName="c")
    assert config["EndpointConfigArn"] == f"{ARN}:endpoint-config/c"
    assert config["ProductionVariants"] == [
        {**variant, "InitialInstanceCount": 1, "InitialVariantWeight": 1.0}
    ]
    client.delete_endpoint_config(EndpointConfigName="c")
    assert "Could not find endpoint configuration" in refused(
        client.describe_endpoint_config, EndpointConfigName="c"
    )


def test_what_is_not_there_and_what_is_taken_reads_as_clients_expect(client):
    declare(client)
    assert refused(client.create_model, ModelName="m", PrimaryContainer=CONTAINER).startswith(
        "Cannot create already existing model"
    )
    message = refused(
        client.create_endpoint_config, EndpointConfigName="d", ProductionVariants=[a_variant(ModelName="x")]
    )
    assert message == f'Could not find model "{ARN}:model/x".'
    message = refused(client.create_endpoint, EndpointName="e", EndpointConfigName="x")
    assert message == f'Could not find endpoint configuration "{ARN}:endpoint-config/x".'
    for call in (client.describe_endpoint, client.delete_endpoint):
        assert refused(call, EndpointName="e") == f'Could not find endpoint "{ARN}:endpoint/e".'
    client.create_endpoint(EndpointName="e", EndpointConfigName="c")
    assert "already existing endpoint" in refused(
        client.create_endpoint, EndpointName="e", EndpointConfigName="c"
    )


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({}, "must have an Image"),
        ({**CONTAINER, "Mode": "MultiModel"}, "MultiModel"),
        ({**CONTAINER, "ModelDataUrl": "s3://bucket/model/"}, ".tar.gz"),
        ({**CONTAINER, "ModelDataUrl": "https://bucket/model.tar.gz"}, "must begin with s3://"),
        ({"ModelPackageName": "p"}, "PrimaryContainer.ModelPackageName"),
        (
            {
                "Image": IMAGE,
                "ModelDataSource": {
                    "S3DataSource": {
                        "S3Uri": "s3://bucket/m",
                        "S3DataType": "S3Object",
                        "CompressionType": "None",
                    }
                },
            },
            "S3Object with CompressionType None",
        ),
    ],
)
def test_models_that_cannot_be_served_are_refused(client, container, words):
    assert words in refused(client.create_model, ModelName="m", PrimaryContainer=container)
    assert client.list_models()["Models"] == []


def test_a_model_has_one_container(client):
    assert "Exactly one" in refused(client.create_model, ModelName="m")
    several = refused(client.create_model, ModelName="m", Containers=[CONTAINER, CONTAINER])
    assert "more than one container" in several
    client.create_model(ModelName="m", Containers=[CONTAINER])
    assert client.describe_model(ModelName="m")["Containers"] == [CONTAINER]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"ProductionVariants": [a_variant(), a_variant()]}, "more than once"),
        ({"ProductionVariants": [a_variant(InitialVariantWeight=0.0)]}, "above 0"),
        ({"ProductionVariants": [a_variant(InstanceType="ml.z9.huge")]}, "ml.z9.huge"),
        (
            {"ProductionVariants": [{"VariantName": "A", "InstanceType": "ml.m5.large"}]},
            "must have ModelName",
        ),
        (
            {
                "ProductionVariants": [
                    a_variant(ServerlessConfig={"MemorySizeInMB": 1024, "MaxConcurrency": 1})
                ]
            },
            "ProductionVariants.ServerlessConfig",
        ),
        (
            {"ProductionVariants": [a_variant()], "ShadowProductionVariants": [a_variant("B")]},
            "ShadowProductionVariants",
        ),
    ],
)
def test_configurations_that_cannot_be_served_are_refused(client, request_, words):
    client.create_model(ModelName="m", PrimaryContainer=CONTAINER)
    assert words in refused(client.create_endpoint_config, EndpointConfigName="c", **request_)
    assert client.list_endpoint_configs()["EndpointConfigs"] == []


def test_an_endpoint_that_is_being_created(client, world):
    declare(client)
    client.create_endpoint(
        EndpointName="e", EndpointConfigName="c", Tags=[{"Key": "windfall:runtime", "Value": "process"}]
    )
    endpoint = client.describe_endpoint(EndpointName="e")
    assert (endpoint["EndpointStatus"], endpoint["EndpointArn"]) == ("Creating", f"{ARN}:endpoint/e")
    assert "ProductionVariants" not in endpoint
    (variant,) = world.gate.state.endpoints["e"].serving.variants
    assert variant.container.command == ("serve",)
    assert variant.container.log_group == "/aws/sagemaker/Endpoints/e"
    assert variant.container.environment["A"] == "b"
    assert [it.uri for it in variant.staging.archives] == ["s3://bucket/model.tar.gz"]
    assert variant.container.on_host is not None
    assert variant.container.on_host.command[-1] == "inference.py"
    assert "in-progress" in refused(client.update_endpoint, EndpointName="e", EndpointConfigName="c")
    assert [it["EndpointStatus"] for it in client.list_endpoints(StatusEquals="Creating")["Endpoints"]] == [
        "Creating"
    ]
    assert client.list_endpoints(StatusEquals="InService")["Endpoints"] == []


def test_storage_that_nobody_registered_is_refused_with_nothing_made(client, world):
    client.create_model(
        ModelName="m", PrimaryContainer={**CONTAINER, "ModelDataUrl": "s3://payroll/m.tar.gz"}
    )
    client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[a_variant()])
    message = refused(client.create_endpoint, EndpointName="e", EndpointConfigName="c")
    assert "windfall storage add s3://payroll/" in message
    assert world.gate.state.endpoints == {}


def test_a_key_with_other_rights_cannot_update_an_endpoint(client, world):
    declare(client)
    world.role = Role.ADMIN
    client.create_endpoint(EndpointName="e", EndpointConfigName="c")
    world.role = Role.SUBMIT
    for call, request in (
        (client.update_endpoint, {"EndpointName": "e", "EndpointConfigName": "c"}),
        (
            client.add_tags,
            {"ResourceArn": f"{ARN}:endpoint/e", "Tags": [{"Key": "windfall:runtime", "Value": "process"}]},
        ),
    ):
        with pytest.raises(ClientError) as error:
            call(**request)
        assert error.value.response["Error"]["Code"] == "AccessDeniedException"


def test_lists_come_in_pages_in_any_order(client):
    for number in range(5):
        client.create_model(ModelName=f"m{number}", PrimaryContainer=CONTAINER)
    for order, sort in (("Ascending", "Name"), ("Descending", "Name"), ("Ascending", "CreationTime")):
        names, token = [], {}
        while True:
            page = client.list_models(SortBy=sort, SortOrder=order, MaxResults=2, **token)
            names += [it["ModelName"] for it in page["Models"]]
            if "NextToken" not in page:
                break
            token = {"NextToken": page["NextToken"]}
        assert names == sorted(names, reverse=order == "Descending")
        assert len(names) == 5
    assert [it["ModelName"] for it in client.list_models(NameContains="M3")["Models"]] == ["m3"]
    assert "NextToken is not valid" in refused(client.list_models, NextToken="x")


def the_rollout(client: Any, world: World, policy: dict[str, Any], count: int = 4) -> Any:
    declare(client, InitialInstanceCount=count)
    from windfall.aws_api.sagemaker.endpoints import rollout_of

    client.create_endpoint(EndpointName="e", EndpointConfigName="c", DeploymentConfig=policy)
    return rollout_of(policy, world.gate.state.endpoints["e"].serving)


def test_a_canary_is_a_part_of_all_instances(client, world):
    routing = {
        "Type": "CANARY",
        "WaitIntervalInSeconds": 60,
        "CanarySize": {"Type": "INSTANCE_COUNT", "Value": 1},
    }
    rollout = the_rollout(client, world, {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}})
    assert (rollout.kind, rollout.part, rollout.wait_s) == (RolloutKind.CANARY, 0.25, 60)
    last = client.describe_endpoint(EndpointName="e")["LastDeploymentConfig"]
    assert last["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"] == routing


def test_a_rolling_update_is_a_part_of_all_instances(client, world):
    size = {"Type": "CAPACITY_PERCENT", "Value": 50}
    policy = {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": 5}}
    rollout = the_rollout(client, world, policy)
    assert (rollout.kind, rollout.part, rollout.chosen) == (RolloutKind.ROLLING, 0.5, True)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            {
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {"Type": "LINEAR", "WaitIntervalInSeconds": 1}
                }
            },
            "must have LinearStepSize",
        ),
        (
            {
                "RollingUpdatePolicy": {
                    "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 80},
                    "WaitIntervalInSeconds": 1,
                }
            },
            "at most half",
        ),
        ({"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]}}, "AutoRollbackConfiguration.Alarms"),
    ],
)
def test_deployments_that_make_no_sense_are_refused(client, policy, words):
    declare(client, InitialInstanceCount=4)
    assert words in refused(
        client.create_endpoint, EndpointName="e", EndpointConfigName="c", DeploymentConfig=policy
    )
