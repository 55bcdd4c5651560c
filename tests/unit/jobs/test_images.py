"""What is run for an image: a container, or something of this host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.jobs.containers import ContainerOptions, ContainerRun, Device, Mount, Pull, Runtime
from windfall.jobs.definitions import ContainerSpec, HostProgram
from windfall.jobs.images import (
    HOST_IMAGE,
    HostCommand,
    ImageMapping,
    container_run,
    host_command,
    is_container,
    no_engine_reason,
)
from windfall.jobs.resources import Resources

MAPPED = ImageMapping("mine:*", "/srv/mine", ("python3", "run.py"))


def argv(image: str, command: tuple[str, ...] = (), entrypoint: tuple[str, ...] | None = None):
    container = ContainerSpec(image, Resources(1, 1), command, entrypoint=entrypoint)
    found = host_command(container, [MAPPED])
    return None if found is None else found.argv


def test_a_mapped_image_brings_its_own_entrypoint():
    assert argv("mine:1", ("train",)) == ("python3", "run.py", "train")


def test_an_entrypoint_of_the_job_replaces_the_images_own():
    assert argv("mine:1", ("train",), ("bash", "-x")) == ("bash", "-x", "train")
    assert argv("mine:1", ("train",), ()) == ("train",)
    assert argv("other", ("train",), ("bash",)) == ("bash", "train")


def test_without_anything_to_run_there_is_nothing():
    assert argv("other") is None
    assert argv("mine:1", (), ()) is None


@pytest.mark.parametrize(
    ("image", "wish", "rule", "has_engine", "expected"),
    [
        ("other:1", None, Runtime.AUTO, True, True),
        ("other:1", None, Runtime.AUTO, False, False),
        # What is mapped to this host was put there on purpose.
        ("mine:1", None, Runtime.AUTO, True, False),
        ("mine:1", Runtime.AUTO, Runtime.PROCESS, True, False),
        ("mine:1", Runtime.CONTAINER, Runtime.AUTO, True, True),
        ("mine:1", None, Runtime.CONTAINER, True, True),
        ("other:1", None, Runtime.PROCESS, True, False),
        ("other:1", Runtime.PROCESS, Runtime.CONTAINER, True, False),
        ("other:1", Runtime.AUTO, Runtime.PROCESS, True, True),
        # Asked for, it is tried even where it must fail.
        ("other:1", Runtime.CONTAINER, Runtime.AUTO, False, True),
        ("other:1", None, Runtime.CONTAINER, False, True),
        # The host is no image, whatever the daemon's rule is.
        (HOST_IMAGE, None, Runtime.AUTO, True, False),
        (HOST_IMAGE, None, Runtime.CONTAINER, True, False),
        (HOST_IMAGE, Runtime.AUTO, Runtime.AUTO, True, False),
        (HOST_IMAGE, Runtime.CONTAINER, Runtime.AUTO, True, True),
    ],
)
def test_which_jobs_are_containers(image, wish, rule, has_engine, expected):
    assert is_container(image, wish, rule, [MAPPED], has_engine=has_engine) is expected


def test_a_container_is_asked_for_with_all_that_its_definition_says():
    options = ContainerOptions(user="app", privileged=True)
    spec = ContainerSpec("other:1", Resources(1, 1), ("a", "b"), entrypoint=("e",), options=options)
    assert container_run(spec, None) == ContainerRun("other:1", ("e",), ("a", "b"), options)
    assert container_run(spec, Pull.ALWAYS).options == replace(options, pull=Pull.ALWAYS)


def test_a_program_of_this_host_stands_in_for_an_image_that_is_not_mapped():
    program = HostProgram(("python3", "train.py"), {"SM_X": "1", "A": "program"}, "/opt/ml/code")
    spec = ContainerSpec("other:1", Resources(1, 1), ("train",), {"A": "job", "B": "2"}, on_host=program)
    found = host_command(spec, [MAPPED])
    assert found == HostCommand(
        ("python3", "train.py"), "/opt/ml/code", {"A": "program", "B": "2", "SM_X": "1"}
    )
    assert host_command(replace(spec, image="mine:1"), [MAPPED]).argv == ("python3", "run.py", "train")


def test_the_reasons_say_what_to_do_and_fit_into_what_aws_shows():
    assert "--container-socket" in no_engine_reason("other:1")
    assert "--image" in no_engine_reason(HOST_IMAGE)
    assert max(len(no_engine_reason(image)) for image in ("other:1", HOST_IMAGE)) <= 255


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ContainerOptions(), False),
        (ContainerOptions(user="root", mounts=(Mount(None, "/scratch"),)), False),
        (ContainerOptions(mounts=(Mount(None, "/scratch"), Mount("/etc", "/host"))), True),
        (ContainerOptions(privileged=True), True),
        (ContainerOptions(devices=(Device("/dev/fuse", "/dev/fuse"),)), True),
    ],
)
def test_what_opens_the_host_is_known(options, expected):
    assert options.reaches_host is expected
