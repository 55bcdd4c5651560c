"""A real autoscaler of Ray launches hosts when jobs need them, and returns them when they are idle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray_scene import RayScene, ray_scene
from tests.waiting import wait_until

NODE = 1


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[RayScene]:
    """A cluster of a head alone, whose autoscaler may launch one host and promises two."""
    with ray_scene(tmp_path, 2) as ray:
        ray.daemon.extra_environment["WINDFALL_IDLE_AFTER_S"] = "2"
        ray.start_head(launchable=1, promised=2)
        ray.daemon.up()
        yield ray


@pytest.mark.slow  # It waits for a real autoscaler, whose pace no test decides.
def test_a_host_is_launched_for_jobs_and_returned_when_it_is_idle(scene: RayScene) -> None:
    assert not scene.has_ray(NODE)
    job = scene.run("hostname")
    scene.await_status(job, "SUCCEEDED")
    assert scene.logs(job) == [scene.hosts.name(NODE)]
    wait_until(lambda: not scene.has_ray(NODE), "the idle host is returned")
    # The same machine comes again, and a daemon that dies finds it with its job.
    again = scene.run("echo begun; while [ ! -e /var/tmp/go ]; do sleep 0.1; done; echo done", "--vcpus", "2")
    scene.await_status(again, "RUNNING")
    # There is no other one: the autoscaler says so, and the job that waits says why.
    other = scene.run("hostname", "--vcpus", "2")
    wait_until(
        lambda: (
            "Ray could not launch spot-box" in " ".join(scene.daemon.windfall("why", other).stdout.split())
        ),
        "why says that a launch has failed",
    )
    scene.daemon.kill_daemon()
    scene.daemon.up()
    scene.hosts.run(NODE, "touch", "/var/tmp/go")
    ended = scene.await_status(again, "SUCCEEDED")
    assert len(ended["attempts"]) == 1
    assert scene.logs(again) == ["begun", "done"]
    scene.await_status(other, "SUCCEEDED")
    wait_until(lambda: not scene.has_ray(NODE), "the idle host is returned after a restart too")
