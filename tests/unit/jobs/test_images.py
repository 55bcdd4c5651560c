"""What is run for an image on this host."""

from __future__ import annotations

from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.images import ImageMapping, host_command
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
