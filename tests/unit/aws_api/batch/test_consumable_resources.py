"""Consumable resources over the real reactor and a real store, spoken to by boto3."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.batch.fakes import ARN, NOW, World
from tests.unit.aws_api.batch.test_with_the_core import CONTAINER
from tests.unit.aws_api.core_gate import CoreGate
from windfall.store.opening import open_store


@pytest.fixture
def world(tmp_path):
    store = open_store(str(tmp_path / "windfall.db"))
    world = World(CoreGate(store, NOW))
    client = world.client()
    client.create_compute_environment(
        computeEnvironmentName="env", type="MANAGED", computeResources={"type": "EC2", "maxvCpus": 4}
    )
    client.create_job_queue(
        jobQueueName="queue", priority=1, computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "env"}]
    )
    yield world
    store.close()


@pytest.fixture
def client(world):
    client = world.client()
    client.create_consumable_resource(consumableResourceName="licence", totalQuantity=5, tags={"team": "a"})
    client.create_consumable_resource(consumableResourceName="Seat", resourceType="NON_REPLENISHABLE")
    client.register_job_definition(
        jobDefinitionName="echo",
        type="container",
        containerProperties={**CONTAINER, "command": ["true"]},
        consumableResourceProperties=wanting(("licence", 2)),
    )
    return client


def wanting(*pairs):
    return {"consumableResourceList": [{"consumableResource": name, "quantity": n} for name, n in pairs]}


def submit(client, name, **params):
    return client.submit_job(jobName=name, jobQueue="queue", jobDefinition="echo", **params)["jobId"]


def test_a_resource_is_described_as_it_was_made(client):
    described = client.describe_consumable_resource(consumableResource="licence")
    del described["ResponseMetadata"]
    assert described.pop("createdAt") > 0
    assert described == {
        "consumableResourceName": "licence",
        "consumableResourceArn": f"{ARN}:consumable-resource/licence",
        "totalQuantity": 5,
        "inUseQuantity": 0,
        "availableQuantity": 5,
        "resourceType": "REPLENISHABLE",
        "tags": {"team": "a"},
    }
    seat = client.describe_consumable_resource(consumableResource=f"{ARN}:consumable-resource/Seat")
    assert (seat["totalQuantity"], seat["resourceType"]) == (0, "NON_REPLENISHABLE")


def test_totals_are_set_raised_and_lowered(client):
    for operation, quantity, total in (("SET", 7, 7), ("ADD", 3, 10), ("REMOVE", 4, 6)):
        answer = client.update_consumable_resource(
            consumableResource="licence", operation=operation, quantity=quantity
        )
        assert answer["totalQuantity"] == total
    twice = {"consumableResource": "licence", "operation": "ADD", "quantity": 1, "clientToken": "t"}
    assert [client.update_consumable_resource(**twice)["totalQuantity"] for _ in range(2)] == [7, 7]


def test_a_listing_knows_names_and_beginnings_and_pages(client):
    def names(**params):
        found = client.list_consumable_resources(**params)["consumableResources"]
        return [it["consumableResourceName"] for it in found]

    def named(text):
        return [{"name": "CONSUMABLE_RESOURCE_NAME", "values": [text]}]

    assert names() == ["Seat", "licence"]
    assert (names(filters=named("SEAT")), names(filters=named("lic*")), names(filters=named("lic"))) == (
        ["Seat"],
        ["licence"],
        [],
    )
    first = client.list_consumable_resources(maxResults=1)
    assert names(maxResults=1, nextToken=first["nextToken"]) == ["licence"]


def test_jobs_say_what_they_want_and_are_found_by_it(client):
    by_definition = submit(client, "Own")
    overridden = submit(
        client, "other", consumableResourcePropertiesOverride=wanting(("Seat", 1), ("licence", 3))
    )
    job, other = client.describe_jobs(jobs=[by_definition, overridden])["jobs"]
    assert job["consumableResourceProperties"] == wanting((f"{ARN}:consumable-resource/licence", 2))
    assert other["consumableResourceProperties"]["consumableResourceList"][1]["quantity"] == 3

    def found(resource, **params):
        answer = client.list_jobs_by_consumable_resource(consumableResource=resource, **params)
        return {it["jobName"]: it["quantity"] for it in answer["jobs"]}

    assert found("licence") == {"Own": 2, "other": 3}
    assert found(f"{ARN}:consumable-resource/Seat") == {"other": 1}
    assert found("licence", filters=[{"name": "JOB_NAME", "values": ["OWN"]}]) == {"Own": 2}
    assert found("licence", filters=[{"name": "JOB_STATUS", "values": ["RUNNING", "FAILED"]}]) == {}
    assert found("licence", filters=[{"name": "JOB_STATUS", "values": ["RUNNABLE"]}]) == {
        "Own": 2,
        "other": 3,
    }
    page = client.list_jobs_by_consumable_resource(consumableResource="licence", maxResults=1)
    assert found("licence", nextToken=page["nextToken"]) == {"Own": 2}
    one = page["jobs"][0]
    assert (one["jobQueueArn"], one["jobStatus"]) == (f"{ARN}:job-queue/queue", "RUNNABLE")


def test_it_is_deleted_when_nobody_needs_it(client):
    job = submit(client, "Own")
    with pytest.raises(
        client.exceptions.ClientException, match="Cannot delete, 1 jobs that have not ended need"
    ):
        client.delete_consumable_resource(consumableResource="licence")
    client.terminate_job(jobId=job, reason="enough")
    client.delete_consumable_resource(consumableResource="licence")
    with pytest.raises(client.exceptions.ClientException, match="licence does not exist"):
        client.describe_consumable_resource(consumableResource="licence")
    with pytest.raises(client.exceptions.ClientException, match="licence does not exist"):
        submit(client, "late")


def test_it_can_be_tagged(client):
    arn = f"{ARN}:consumable-resource/licence"
    client.tag_resource(resourceArn=arn, tags={"cost": "1"})
    client.untag_resource(resourceArn=arn, tagKeys=["team"])
    assert client.list_tags_for_resource(resourceArn=arn)["tags"] == {"cost": "1"}


@pytest.mark.parametrize(
    ("operation", "params", "text"),
    [
        ("CreateConsumableResource", {"consumableResourceName": "a b"}, "must have 1 to 128 letters"),
        (
            "CreateConsumableResource",
            {"consumableResourceName": "x", "resourceType": "SOME"},
            "must be REPLENISHABLE or",
        ),
        ("CreateConsumableResource", {"consumableResourceName": "x", "totalQuantity": -1}, "between 0 and"),
        ("CreateConsumableResource", {"consumableResourceName": "licence"}, "Object already exists"),
        ("UpdateConsumableResource", {"consumableResource": "licence"}, "quantity is required"),
        (
            "UpdateConsumableResource",
            {"consumableResource": "licence", "operation": "X", "quantity": 1},
            "one of SET",
        ),
        (
            "UpdateConsumableResource",
            {"consumableResource": "nobody", "quantity": 1},
            "nobody does not exist",
        ),
        (
            "DescribeConsumableResource",
            {"consumableResource": f"{ARN}:job-queue/queue"},
            "is not the ARN of a",
        ),
        (
            "ListConsumableResources",
            {"filters": [{"name": "X", "values": ["a"]}]},
            "use CONSUMABLE_RESOURCE_NAME",
        ),
        ("ListConsumableResources", {"nextToken": "forged"}, "nextToken is not valid"),
        ("ListJobsByConsumableResource", {"consumableResource": "nobody"}, "nobody does not exist"),
        (
            "ListJobsByConsumableResource",
            {"consumableResource": "licence", "filters": [{"name": "JOB_STATUS", "values": ["ODD"]}]},
            "is none of SUBMITTED",
        ),
        (
            "ListJobsByConsumableResource",
            {"consumableResource": "licence", "filters": [{"name": "JOB_NAME", "values": ["a", "b"]}]},
            "exactly one value",
        ),
    ],
)
def test_a_bad_request_is_refused(world, client, operation, params, text):
    assert text in world.refused(operation, **params)


@pytest.mark.parametrize(
    ("listed", "text"),
    [
        ([("licence", 1), (f"{ARN}:consumable-resource/licence", 1)], "names licence twice"),
        ([(f"r{n}", 1) for n in range(6)], "at most 5"),
        ([("no such name!", 1)], "must have 1 to 128"),
    ],
)
def test_a_job_that_asks_wrongly_is_refused(client, listed, text):
    with pytest.raises(client.exceptions.ClientException, match=text):
        submit(client, "job", consumableResourcePropertiesOverride=wanting(*listed))
