"""Whether an attempt is a process or a container, and what its agent is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_busy_world, a_definition, a_job, a_machine
from windfall.control import events
from windfall.control.instructions import StartAttempt
from windfall.jobs.containers import ContainerOptions, ContainerRun, Pull, Runtime, Secret
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.errors import Invalid
from windfall.jobs.images import ImageMapping
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, STARTING
from windfall.jobs.workers import Worker, WorkerKind

OPTIONS = ContainerOptions(user="app", secrets=(Secret("TOKEN", "token"),))
ENGINE = {"containers": "docker 20.10.24"}


def a_container_world(facts=ENGINE, image="team/train:1", **rules):
    world = a_busy_world(replace(a_machine(), facts=facts), **rules)
    spec = ContainerSpec(image, Resources(1, 1024), ("train",), {"A": "1"}, 64, options=OPTIONS)
    world.happens(events.RegisterJobDefinition(a_definition("boxed", container=spec)))
    return world


def start(world, job=None) -> StartAttempt:
    world.submits(job or a_job("one", definition="boxed"))
    (asked,) = world.asked_for(StartAttempt)
    return asked


def tagged(**tags):
    return a_job("one", definition="boxed").tagged(**tags)


def test_an_image_is_a_container_where_an_engine_answers():
    asked = start(a_container_world())
    assert asked.container == ContainerRun("team/train:1", None, ("train",), OPTIONS)
    assert (asked.argv, asked.directory, asked.shared_memory_mib) == ((), None, 64)
    assert asked.environment["A"] == "1"
    assert asked.environment["AWS_BATCH_JOB_ID"] == "one"
    # They are among the container's options, and not twice.
    assert asked.secrets == ()


@pytest.mark.parametrize("facts", [{}, {"containers": ""}])
def test_without_an_engine_it_is_a_process_as_before_with_its_secrets(facts):
    asked = start(a_container_world(facts))
    assert (asked.container, asked.argv) == (None, ("train",))
    assert asked.secrets == OPTIONS.secrets


def test_a_mapped_image_is_a_process_although_an_engine_answers():
    world = a_container_world()
    world.happens(events.AddImage(ImageMapping("team/*", "/srv/train", ("python3", "run.py"))))
    asked = start(world)
    assert (asked.container, asked.argv, asked.directory) == (
        None,
        ("python3", "run.py", "train"),
        "/srv/train",
    )


def test_a_job_chooses_for_itself_and_when_its_image_is_pulled():
    asked = start(a_container_world(), tagged(runtime="process"))
    assert asked.container is None
    wanted = tagged(runtime="container", pull="always")
    asked = start(a_container_world(runtime=Runtime.PROCESS), wanted)
    assert asked.container is not None
    assert asked.container.options.pull is Pull.ALWAYS
    with pytest.raises(Invalid, match="windfall:runtime must be one of auto, process, container"):
        start(a_container_world(), tagged(runtime="vm"))


@pytest.mark.parametrize(
    ("image", "tags", "rules", "words"),
    [
        ("team/train:1", {"runtime": "container"}, {}, "no container engine answers here"),
        ("team/train:1", {}, {"runtime": Runtime.CONTAINER}, "no container engine answers here"),
        ("windfall/host", {"runtime": "container"}, {}, "windfall run --image"),
    ],
)
def test_a_container_that_cannot_be_one_fails_with_what_to_do(image, tags, rules, words):
    world = a_container_world({}, image, **rules)
    world.submits(tagged(**tags))
    job = world.job("one")
    assert job.state is FAILED
    assert job.attempts[-1].reason.startswith("CannotCreateContainerError: ")
    assert words in job.attempts[-1].reason
    assert world.asked_for(StartAttempt) == []


def test_retry_rules_hold_for_a_container_that_cannot_be_one():
    world = a_container_world({}, runtime=Runtime.CONTAINER)
    world.submits(a_job("one", definition="boxed").retried(3))
    world.happens()
    world.happens()
    assert (world.job("one").state, len(world.job("one").attempts)) == (FAILED, 3)


def test_what_a_container_was_asked_for_is_asked_again_of_an_agent_that_never_heard_of_it():
    world = a_container_world()
    asked = start(world)
    world.restarted().connected()
    assert world.asked_for(StartAttempt) == [asked]
    assert world.state_of("one") is STARTING


def test_children_of_an_array_are_containers_each_with_its_index():
    world = a_container_world()
    world.submits(a_job("many", definition="boxed").array(2))
    asked = world.asked_for(StartAttempt)
    assert [one.environment["AWS_BATCH_JOB_ARRAY_INDEX"] for one in asked] == ["0", "1"]
    assert all(one.container is not None for one in asked)


@pytest.mark.parametrize(
    ("runtime", "image", "is_container"),
    [("auto", "team/train:1", True), ("container", "mapped", True), ("auto", "mapped", False)],
)
def test_a_warm_worker_is_what_its_children_would_be(runtime, image, is_container):
    world = a_container_world(image=image)
    world.happens(events.AddImage(ImageMapping("mapped", "/srv/train", ("python3",))))
    world.submits(a_job("many", definition="boxed").array(2).tagged(worker="lines", runtime=runtime))
    assert world.job("many").submission.worker == Worker(WorkerKind.LINES)
    asked = world.asked_for(StartAttempt)
    assert {one.worker_key for one in asked} == {"many"}
    assert [one.container is not None for one in asked] == [is_container] * 2


# ------------------------------------------------------------------------------------------ where a process starts


def test_a_process_starts_in_the_directory_that_its_submitter_names_with_the_rights_of_its_user():
    world = a_container_world({})
    world.happens(events.AddImage(ImageMapping("team/*", "/srv/train", ())))
    asked = start(world, tagged(dir="/home/me/project"))
    assert (asked.directory, asked.enters_as_user) == ("/home/me/project", True)


def test_a_directory_of_an_administrators_mapping_is_entered_as_before():
    world = a_container_world({})
    world.happens(events.AddImage(ImageMapping("team/*", "/srv/train", ())))
    asked = start(world)
    assert (asked.directory, asked.enters_as_user) == ("/srv/train", False)


def test_a_container_does_not_see_the_directory():
    asked = start(a_container_world(), tagged(dir="/home/me/project"))
    assert (asked.directory, asked.enters_as_user) == (None, False)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({"dir": "relative"}, "must be an absolute path"),
        ({"dir": ""}, "must be an absolute path"),
        ({"dir": "/a\0b"}, "must be an absolute path"),
        ({"dir": "/half \ud800"}, "must be an absolute path"),
        ({"dir": "/a", "git": "https://host/code@main"}, "omit one"),
    ],
)
def test_a_directory_that_cannot_be_meant_is_refused(tags, words):
    world = a_container_world({})
    with pytest.raises(Invalid, match=words):
        world.submits(a_job("one", definition="boxed").tagged(**tags))
