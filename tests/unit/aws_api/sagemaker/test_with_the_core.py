"""The service over the real reactor and a real SQLite store, spoken to by boto3: the sides fit together."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.core_gate import CoreGate
from tests.unit.aws_api.sagemaker.world import ARN, NOW, SCRIPT, SPOT, World, a_channel, a_request
from windfall.jobs.storage import StoragePlace


@pytest.fixture
def client(tmp_path):
    world = World(tmp_path, CoreGate(None, NOW))
    world.gate.store = world.store
    place = StoragePlace("s3://bucket", write=True)
    world.gate.state.storage_places[place.key] = place
    yield world.client()
    world.close()


def test_storage_that_nobody_registered_is_refused_with_nothing_made(client):
    for change in (
        {"OutputDataConfig": {"S3OutputPath": "s3://payroll/models"}},
        {"CheckpointConfig": {"S3Uri": "s3://payroll/checkpoints"}},
        {"InputDataConfig": [a_channel("train", source={"S3Uri": "s3://payroll/all"})]},
        {
            "HyperParameters": SCRIPT["HyperParameters"]
            | {"sagemaker_submit_directory": '"s3://payroll/c.tar.gz"'}
        },
    ):
        with pytest.raises(ClientError, match="windfall storage add s3://payroll/") as refused:
            client.create_training_job(**a_request(**change))
        assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert client.list_training_jobs()["TrainingJobSummaries"] == []


def test_a_life_without_capacity(client):
    created = client.create_training_job(**a_request(**SPOT, Tags=[{"Key": "a", "Value": "b"}]))
    assert created["TrainingJobArn"] == f"{ARN}/first"
    with pytest.raises(client.exceptions.ResourceInUse):
        client.create_training_job(**a_request())
    client.add_tags(ResourceArn=f"{ARN}/first", Tags=[{"Key": "c", "Value": "d"}])
    assert len(client.list_tags(ResourceArn=f"{ARN}/first")["Tags"]) == 2
    client.update_training_job(TrainingJobName="first", ProfilerConfig={"DisableProfiler": True})
    described = client.describe_training_job(TrainingJobName="first")
    assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Starting")
    assert described["ProfilerConfig"] == {"DisableProfiler": True}
    with pytest.raises(client.exceptions.ResourceInUse):
        client.delete_training_job(TrainingJobName="first")
    client.stop_training_job(TrainingJobName="first")
    described = client.describe_training_job(TrainingJobName="first")
    assert [it["Status"] for it in described["SecondaryStatusTransitions"]] == [
        "Starting",
        "Stopping",
        "Stopped",
    ]
    client.delete_training_job(TrainingJobName="first")
    assert client.list_training_jobs()["TrainingJobSummaries"] == []
    client.create_training_job(**a_request())
    (found,) = client.list_training_jobs()["TrainingJobSummaries"]
    assert (found["TrainingJobName"], found["TrainingJobStatus"]) == ("first", "InProgress")
