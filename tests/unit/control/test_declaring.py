"""Declarations: each changes all that it should, or is refused with nothing changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import START, a_busy_world, a_definition, a_job, a_world
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.control import events
from windfall.control.instructions import StopAttempt, TerminateInstance
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.resources import NOTHING, Resources
from windfall.jobs.states import FAILED, PENDING, STARTING

ENVIRONMENT, QUEUE = EnvironmentName("environment"), QueueName("queue")
FARGATE = ComputeEnvironment(EnvironmentName("fargate"), Provisioning.FARGATE, 0, 4)
MANY_TAGS = {str(n): "x" for n in range(51)}


def environment(**changes):
    return ComputeEnvironment(
        **{"name": ENVIRONMENT, "provisioning": Provisioning.EC2, "min_vcpus": 0, "max_vcpus": 4, **changes}
    )


def overriding(definition, **amounts):
    queue = "fargate" if definition == "small" else "queue"
    return replace(a_job(queue=queue, definition=definition).command, overrides=ContainerOverrides(**amounts))


@pytest.fixture
def world():
    world = a_busy_world()
    world.happens(events.CreateComputeEnvironment(FARGATE))
    world.happens(events.CreateJobQueue(JobQueue(QueueName("fargate"), 1, (FARGATE.name,))))
    world.happens(events.CreateJobQueue(JobQueue(QueueName("off"), 1, (ENVIRONMENT,), Switch.DISABLED)))
    needy = ContainerSpec("image", Resources(1, 1), ("Ref::what",))
    world.happens(events.RegisterJobDefinition(a_definition("needy", container=needy)))
    small = ContainerSpec("image", Resources(0.25, 512), fargate_beside=NOTHING)
    world.happens(events.RegisterJobDefinition(a_definition("small", container=small)))
    world.happens(events.RegisterJobDefinition(a_definition("old")))
    world.happens(events.DeregisterJobDefinition("old", 1))
    return world


REFUSED = [
    (events.CreateComputeEnvironment(environment()), Conflict, "Object already exists"),
    (events.CreateComputeEnvironment(environment(name="n", min_vcpus=5)), Invalid, "minvCpus"),
    (
        events.UpdateComputeEnvironment(ENVIRONMENT, min_vcpus=65),
        Invalid,
        "minvCpus .65. must not be greater",
    ),
    (events.UpdateComputeEnvironment(EnvironmentName("x")), NotFound, "x does not exist"),
    (events.DeleteComputeEnvironment(EnvironmentName("x")), NotFound, "x does not exist"),
    (events.DeleteComputeEnvironment(ENVIRONMENT), Conflict, "must be DISABLED"),
    (events.CreateJobQueue(JobQueue(QUEUE, 1, (ENVIRONMENT,))), Conflict, "Object already exists"),
    (events.CreateJobQueue(JobQueue(QueueName("q"), 1, (EnvironmentName("x"),))), NotFound, "x does not"),
    (events.CreateJobQueue(JobQueue(QueueName("q"), 1, (ENVIRONMENT, FARGATE.name))), Invalid, "mix Fargate"),
    (events.UpdateJobQueue(QueueName("x")), NotFound, "x does not exist"),
    (events.UpdateJobQueue(QUEUE, environments=(EnvironmentName("x"),)), NotFound, "x does not exist"),
    (events.DeleteJobQueue(QueueName("x")), NotFound, "x does not exist"),
    (events.DeleteJobQueue(QUEUE), Conflict, "must be DISABLED"),
    (events.DeregisterJobDefinition("work", 9), NotFound, "work:9 does not exist"),
    (events.RemoveImage("x"), NotFound, "windfall image list"),
    (events.TagResource("job-queue", "queue", MANY_TAGS), Invalid, "at most 50 tags"),
    (events.TagResource("job", "first", {"a": "b"}), NotFound, "has finished"),
    (events.TagResource("job-definition", "work:²", {"a": "b"}), NotFound, "does not exist"),
    (a_job(queue="x").command, NotFound, "Job queue x does not exist"),
    (a_job(queue="off").command, Invalid, "off is DISABLED"),
    (a_job(definition="x").command, NotFound, "Job definition x does not exist"),
    (a_job(definition="old").command, NotFound, "old does not exist"),
    (a_job(definition="old:1").command, Invalid, "INACTIVE"),
    (a_job(definition="needy").command, Invalid, "No parameter found for reference what"),
    (a_job(queue="fargate").gpus(1).command, Invalid, "can not run Jobs with capability EC2"),
    (overriding("small", memory_mib=777), Invalid, "0.25 vCPU, 777 MiB. not valid"),
    (overriding("small", vcpus=4), Invalid, "4.00 vCPU, 512 MiB. not valid"),
    (overriding("work", vcpus=0.5), Invalid, "Value 0.5 for type VCPU"),
]


def test_an_override_may_choose_another_size_of_fargate(world):
    world.happens(overriding("small", vcpus=0.5, memory_mib=4096))
    assert world.job("job").submission.resources == Resources(0.5, 4096)


@pytest.mark.parametrize(("command", "error", "text"), REFUSED, ids=lambda x: type(x).__name__ if x else None)
def test_a_refusal_says_why_and_changes_nothing(world, command, error, text):
    before = world.picture()
    commits = world.store.commits
    with pytest.raises(error, match=text):
        world.happens(command)
    assert world.state == before
    assert world.store.commits == commits


def test_a_job_id_is_used_once(world):
    world.places = False
    world.submits(a_job("a"))
    before = world.picture()
    with pytest.raises(Conflict):
        world.submits(a_job("a"))
    assert world.state == before


def test_there_is_a_limit_to_environments_and_queues():
    world = a_world()
    for n in range(50):
        name = EnvironmentName(f"e{n}")
        world.happens(events.CreateComputeEnvironment(environment(name=name)))
        world.happens(events.CreateJobQueue(JobQueue(QueueName(name), 1, (name,))))
    with pytest.raises(Conflict, match="50"):
        world.happens(events.CreateComputeEnvironment(environment(name="more")))
    with pytest.raises(Conflict, match="50"):
        world.happens(events.CreateJobQueue(JobQueue(QueueName("more"), 1, ())))


def test_an_update_changes_what_it_names():
    world = a_busy_world()
    world.happens(events.UpdateComputeEnvironment(ENVIRONMENT, max_vcpus=2))
    world.happens(events.UpdateJobQueue(QUEUE, priority=0, document="{1}"))
    assert (
        world.state.environments[ENVIRONMENT].max_vcpus,
        world.state.environments[ENVIRONMENT].min_vcpus,
    ) == (2, 0)
    queue = world.state.queues[QUEUE]
    assert (queue.priority, queue.document, queue.switch) == (0, "{1}", Switch.ENABLED)
    assert world.store.small["queues"][QUEUE] is queue


def test_an_environment_is_deleted_with_its_instances_when_nothing_uses_it(world):
    world.submits(a_job("a"))
    for queue in ("queue", "off"):
        world.happens(events.UpdateJobQueue(QueueName(queue), Switch.DISABLED))
    world.happens(events.UpdateComputeEnvironment(ENVIRONMENT, Switch.DISABLED))
    with pytest.raises(Conflict, match="JobQueue relationship"):
        world.happens(events.DeleteComputeEnvironment(ENVIRONMENT))
    world.happens(events.UpdateJobQueue(QUEUE, environments=()), events.DeleteJobQueue(QueueName("off")))
    with pytest.raises(Conflict, match="jobs still run in it"):
        world.happens(events.DeleteComputeEnvironment(ENVIRONMENT))
    (instance,) = world.state.instances
    world.places = False
    world.exits("a")
    world.happens(events.DeleteComputeEnvironment(ENVIRONMENT))
    assert world.instructions == [TerminateInstance(instance)]
    assert ENVIRONMENT not in world.store.small["environments"]
    assert not world.store.small["instances"]
    assert not world.state.occupancy.instances


def test_a_queue_takes_its_jobs_with_it():
    world = a_busy_world()
    world.submits(a_job("running"), a_job("waiting").vcpus(64), a_job("pending").after("running"))
    world.submits(a_job("array").array(3).vcpus(64), a_job("held").array(2).after("running"))
    world.happens(events.UpdateJobQueue(QUEUE, Switch.DISABLED))
    left = world.happens(events.DeleteJobQueue(QUEUE))
    assert sorted(left) == ["array", "held", "pending", "running", "waiting"]
    assert [type(i) for i in world.instructions] == [StopAttempt]
    assert [world.state_of(j) for j in ("running", "waiting", "array")] == [STARTING, FAILED, FAILED]
    assert [world.state_of(j) for j in ("pending", "held")] == [PENDING, PENDING]
    world.exits("running", 143)
    assert not world.state.jobs
    assert {world.job(j).status_reason for j in left} == {"Job queue deleted"}


def test_revisions_are_counted_and_the_latest_active_one_is_taken():
    world = a_busy_world()
    second = world.happens(events.RegisterJobDefinition(a_definition()))
    assert (second.key, second.registered_at) == ("work:2", START)
    world.submits(a_job("a"))
    world.happens(events.DeregisterJobDefinition("work", 2))
    world.submits(a_job("b"), a_job("c").of("work:1"))
    assert [world.job(j).submission.definition for j in "abc"] == ["work:2", "work:1", "work:1"]
    before = world.picture()
    world.happens(events.DeregisterJobDefinition("work", 2))
    assert world.state.definitions == before.definitions


def test_images_are_added_replaced_and_removed():
    world = a_world()
    for directory in ("/one", "/two"):
        world.happens(events.AddImage(ImageMapping("i*", directory)))
    assert world.state.images["i*"].directory == "/two"
    world.happens(events.RemoveImage("i*"))
    assert not world.state.images
    assert not world.store.small["images"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("compute-environment", "environment"), ("job-queue", "queue"), ("job-definition", "work:1")],
)
def test_tags_are_set_and_removed(kind, name):
    world = a_busy_world()
    world.happens(events.TagResource(kind, name, {"a": "1", "b": "2"}))
    world.happens(events.TagResource(kind, name, {"a": "3"}, ("b",)))
    rows = [
        *world.state.environments.values(),
        *world.state.queues.values(),
        world.state.definition("work:1"),
    ]
    assert [dict(row.tags) for row in rows if row.tags] == [{"a": "3"}]


def test_an_arrays_tags_are_its_childrens_even_after_a_restart():
    world = a_busy_world()
    world.submits(a_job("a").array(2))
    world.happens(events.TagResource("job", "a", {"team": "x"}))
    assert world.state.jobs[JobId("a:0")].submission.tags == {"team": "x"}
    world.restarted()
    assert world.state.jobs[JobId("a:0")].submission is world.state.jobs[JobId("a")].submission
    assert world.state.jobs[JobId("a:0")].submission.tags == {"team": "x"}
