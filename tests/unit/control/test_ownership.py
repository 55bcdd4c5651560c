"""A command on behalf of a tenant: what another tenant has is not there, and nothing of it changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_busy_world, a_definition, a_job, a_machine
from windfall.control.events import (
    CancelJob,
    InterruptInstance,
    InterruptJob,
    RegisterJobDefinition,
    TagResource,
    TerminateJob,
    UpdateTraining,
)
from windfall.control.instructions import StartAttempt
from windfall.jobs.containers import ContainerOptions, Secret
from windfall.jobs.dependencies import Dependency
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.images import HOST_IMAGE
from windfall.jobs.states import FAILED, RUNNING


@pytest.fixture
def world():
    """Tenant `lab` has a job that runs, an array with a child that runs, and a job that has just ended."""
    world = a_busy_world(a_machine(vcpus=3, gpus=1))
    world.submits(
        a_job("theirs").of_tenant("lab"),
        a_job("array").array(3).of_tenant("lab"),
        a_job("done").of_tenant("lab"),
    )
    world.starts("theirs", "array:0")
    world.happens(TerminateJob("done", "over"))
    return world


@pytest.mark.parametrize("job_id", ["theirs", "array", "array:0", "array:2", "done"])
@pytest.mark.parametrize("tenant", ["rival", "default"])
def test_another_s_job_is_as_one_that_does_not_exist(world, job_id, tenant):
    before = world.picture()
    for command in (CancelJob, TerminateJob):
        assert world.happens(command(job_id, "mine now"), tenant=tenant) is False
    for command in (
        InterruptJob(job_id, 0),
        TagResource("job", job_id, add={"a": "b"}),
        TagResource("service-job", job_id, add={"a": "b"}),
        UpdateTraining(job_id, "{}"),
    ):
        with pytest.raises(NotFound) as refused:
            world.happens(command, tenant=tenant)
        with pytest.raises(NotFound) as missing:
            world.happens(replace(command, **{_id(command): "nobody"}), tenant=tenant)
        assert str(refused.value) == str(missing.value).replace("nobody", job_id)
    waiting = a_job("new").of_tenant(tenant).command
    with pytest.raises(NotFound, match=f"Job {job_id} does not exist, so nothing can depend on it"):
        world.happens(replace(waiting, depends_on=(Dependency(job_id, None),)), tenant=tenant)
    assert world.picture() == before


def _id(command) -> str:
    return "name" if isinstance(command, TagResource) else "job_id"


def test_the_owner_and_an_administrator_reach_it(world):
    assert world.happens(InterruptJob("theirs", 60), tenant="lab") == 1
    world.happens(TagResource("job", "theirs", add={"a": "b"}), tenant="lab")
    for job_id in ("theirs", "array:2", "done"):
        after = replace(
            a_job(f"after-{job_id}").of_tenant("lab").command, depends_on=(Dependency(job_id, None),)
        )
        world.happens(after, tenant="lab")
    assert world.happens(TerminateJob("theirs", "enough"), tenant="lab")
    assert world.happens(TerminateJob("array", "enough"))
    assert world.state_of("array:2") is FAILED


def test_an_instance_is_taken_away_only_by_the_tenant_that_has_it_alone(world):
    instance = world.instance_of("theirs")
    for tenant in ("rival", "default"):
        with pytest.raises(Invalid, match=r"also runs jobs of other tenants, so only an admin key can"):
            world.happens(InterruptInstance(instance, 60), tenant=tenant)
    assert world.state_of("theirs") is RUNNING
    assert world.happens(InterruptInstance(instance, 60), tenant="lab") == 3


def test_the_tenant_of_one_command_is_not_that_of_the_next(world):
    assert world.happens(CancelJob("nobody", "x"), TerminateJob("theirs", "x"), tenant="rival") is False
    assert world.happens(TerminateJob("theirs", "x")) is True


@pytest.mark.parametrize(
    ("tenant", "definition", "revision"),
    [
        ("default", "work", 3),
        ("lab", "lab/work", 1),  # its own
        ("rival", "rival/work", 2),  # the newest that is shared
        ("rival", "default/work", 2),
        ("rival", "rival/work:2", 2),
    ],
)
def test_a_shared_definition_serves_tenants_that_have_none_of_that_name(tenant, definition, revision):
    world = a_busy_world()
    world.happens(
        RegisterJobDefinition(a_definition(shared=True)),
        RegisterJobDefinition(a_definition()),
        RegisterJobDefinition(a_definition("lab/work")),
    )
    job = replace(a_job("a").of_tenant(tenant).command, definition=definition)
    kept = world.happens(job, tenant=tenant).submission.definition
    assert kept == f"{'lab/work' if tenant == 'lab' else 'work'}:{revision}"


@pytest.mark.parametrize(
    "definition", ["rival/work:1", "rival/work:3", "default/work:1", "/lab/own", "rival/own"]
)
def test_what_is_not_shared_does_not_exist(definition):
    world = a_busy_world()
    world.happens(
        RegisterJobDefinition(a_definition(shared=True)),
        RegisterJobDefinition(a_definition()),
        RegisterJobDefinition(a_definition("lab/own")),
    )
    name = definition.partition("/")[2]
    with pytest.raises(NotFound, match=f"^Job definition {name} does not exist$"):
        world.happens(replace(a_job("a").command, definition=definition), tenant="rival")


def test_a_job_logs_into_its_tenant_s_group_and_gets_its_tenant_s_secrets():
    world = a_busy_world()
    wanted = (Secret("TOKEN", "hf-token"),)
    container = replace(a_definition().container, options=ContainerOptions(secrets=wanted), image=HOST_IMAGE)
    world.happens(RegisterJobDefinition(a_definition("shared", container=container, shared=True)))
    given = {}
    for tenant in ("default", "lab"):
        job = replace(a_job(tenant).of_tenant(tenant).command, definition="shared")
        world.happens(job)
        start = next(one for one in world.instructions if isinstance(one, StartAttempt))
        stream = next(one for one in world.streams if one.job_id == tenant)
        given[tenant] = (stream.group, [secret.secret for secret in start.secrets])
    assert given == {
        "default": ("/aws/batch/job", ["hf-token"]),
        "lab": ("lab:/aws/batch/job", ["lab/hf-token"]),
    }
