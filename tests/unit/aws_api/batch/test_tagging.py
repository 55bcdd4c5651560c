"""Tags by ARN, through a real client because the ARN travels in the path."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.batch.fakes import (
    ARN,
    JOB_ID,
    a_definition,
    a_job,
    a_queue,
    an_attempt,
    an_environment,
)
from windfall.aws_api.protocol.keys import Role
from windfall.control.events import TagResource
from windfall.jobs.errors import NotFound
from windfall.jobs.submitters import Submitter

RESOURCES = [
    ("compute-environment", "env"),
    ("job-queue", "queue"),
    ("job-definition", "train:1"),
    ("job", JOB_ID),
]


@pytest.mark.parametrize(("kind", "name"), RESOURCES)
def test_tags_are_set_and_removed(world, kind, name):
    client = world.client()
    client.tag_resource(resourceArn=f"{ARN}:{kind}/{name}", tags={"a": "b", "windfall:isolation": "x"})
    assert world.last == TagResource(kind, name, add={"a": "b"})
    client.untag_resource(resourceArn=f"{ARN}:{kind}/{name}", tagKeys=["a", "c d"])
    assert world.last == TagResource(kind, name, remove=("a", "c d"))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("windfall:chekpoint", "There is no tag windfall:chekpoint; did you mean windfall:checkpoint?"),
        ("windfall:owner-of-this", "tags of your own begin with something else"),
    ],
)
def test_a_tag_of_ours_that_means_nothing_is_refused(world, key, words):
    client = world.client()
    with pytest.raises(client.exceptions.ClientException, match=words.replace("?", r"\?")):
        client.tag_resource(resourceArn=f"{ARN}:job-queue/queue", tags={key: "true"})


@pytest.mark.parametrize(("kind", "name"), RESOURCES)
def test_tags_are_listed(world, kind, name):
    tags = {"a": "b"}
    world.store.all_environments["env"] = an_environment(tags=tags)
    world.store.all_queues["queue"] = a_queue(tags=tags)
    world.store.all_definitions["train:1"] = a_definition(tags=tags)
    world.store.all_jobs[JOB_ID] = a_job(submission={"tags": tags})
    assert world.client().list_tags_for_resource(resourceArn=f"{ARN}:{kind}/{name}")["tags"] == tags


def test_the_isolation_of_a_job_is_among_its_tags(world):
    world.store.all_jobs[JOB_ID] = a_job(attempts=[an_attempt(isolation="none")])
    tags = world.client().list_tags_for_resource(resourceArn=f"{ARN}:job/{JOB_ID}")["tags"]
    assert tags == {"windfall:isolation": "none"}


@pytest.mark.parametrize(("kind", "name"), [*RESOURCES, ("job", "a b")])
def test_tags_of_nothing_are_refused(world, kind, name):
    client = world.client()
    with pytest.raises(client.exceptions.ClientException, match="does not exist"):
        client.list_tags_for_resource(resourceArn=f"{ARN}:{kind}/{name}")


@pytest.mark.parametrize(
    ("arn", "text"),
    [
        (f"{ARN}:job-flow/p", "Windfall does not support tags of a job-flow"),
        ("arn:aws:s3:::bucket", "Invalid ARN"),
        ("queue", "Invalid ARN"),
        (f"{ARN}:job/{JOB_ID}:3", f"share its tags; tag job {JOB_ID}"),
    ],
)
def test_other_arns_are_refused(world, arn, text):
    client = world.client()
    with pytest.raises(client.exceptions.ClientException, match=text):
        client.tag_resource(resourceArn=arn, tags={"a": "b"})
    assert world.gate.commands == []


def test_the_core_s_refusal_reaches_the_caller(world):
    world.gate.refusal = NotFound("job x does not exist, or has finished")
    client = world.client()
    with pytest.raises(client.exceptions.ClientException, match="or has finished"):
        client.tag_resource(resourceArn=f"{ARN}:job/{JOB_ID}", tags={"a": "b"})


@pytest.mark.parametrize(("kind", "name"), RESOURCES[:2])
def test_tags_of_shared_capacity_need_the_role_that_changing_it_needs(world, kind, name):
    world.role = Role.SUBMIT
    client, arn = world.client(), f"{ARN}:{kind}/{name}"
    for call in (
        lambda: client.tag_resource(resourceArn=arn, tags={"windfall:mtbi-s": "1"}),
        lambda: client.untag_resource(resourceArn=arn, tagKeys=["windfall:mtbi-s"]),
        lambda: client.tag_resource(resourceArn=arn, tags={"a": "b"}),
        lambda: client.untag_resource(resourceArn=arn, tagKeys=["a"]),
    ):
        with pytest.raises(ClientError, match="needs an admin key") as caught:
            call()
        assert caught.value.response["Error"]["Code"] == "AccessDeniedException"
    assert world.gate.commands == []
    client.tag_resource(resourceArn=f"{ARN}:job/{JOB_ID}", tags={"windfall:budget-usd": "1"})
    assert world.last == TagResource("job", JOB_ID, add={"windfall:budget-usd": "1"})


@pytest.mark.parametrize("submitter", [Submitter(is_admin=True), Submitter(user="alice")])
def test_another_keys_job_is_not_steered_by_tags(world, submitter):
    world.store.all_jobs[JOB_ID] = a_job(submission={"submitter": submitter})
    arn, steering = f"{ARN}:job/{JOB_ID}", "windfall:git"
    world.role = Role.SUBMIT
    client = world.client()
    for ask in (
        lambda: client.tag_resource(resourceArn=arn, tags={steering: "https://example.com/evil.git@main"}),
        lambda: client.untag_resource(resourceArn=arn, tagKeys=[steering]),
    ):
        with pytest.raises(ClientError, match="decide how job"):
            ask()
    client.tag_resource(resourceArn=arn, tags={"project": "x"})
    world.role = Role.ADMIN
    client.untag_resource(resourceArn=arn, tagKeys=[steering])
    assert world.last == TagResource("job", JOB_ID, remove=(steering,))


def test_a_key_steers_jobs_with_its_own_rights(world):
    world.store.all_jobs[JOB_ID] = a_job(submission={"submitter": Submitter(key_id="AKIAOTHER")})
    world.role = Role.SUBMIT
    world.client().tag_resource(resourceArn=f"{ARN}:job/{JOB_ID}", tags={"windfall:checkpoint": "true"})
    assert world.last == TagResource("job", JOB_ID, add={"windfall:checkpoint": "true"})


def test_tags_of_what_windfall_run_uses_are_changed_by_administrators_alone(world):
    world.store.all_definitions["windfall-run:1"] = a_definition("windfall-run", 1)
    world.role = Role.SUBMIT
    with pytest.raises(ClientError, match="needs an admin key"):
        world.client().tag_resource(
            resourceArn=f"{ARN}:job-definition/windfall-run:1", tags={"windfall:dir": "/tmp"}
        )
