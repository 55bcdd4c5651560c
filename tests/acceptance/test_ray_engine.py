"""Jobs run on the nodes of a real Ray cluster that is reached by ssh; raylets, heads and daemons are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray_scene import HEAD, NODE, RayScene, ray_scene
from tests.waiting import wait_until

#: Says that it runs, and ends when it is told to; `touch` below tells it.
WAITS = "echo begun; while [ ! -e /var/tmp/go-{name} ]; do sleep 0.1; done; echo done"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayScene]:
    """A daemon, a head that keeps what it knows on its disk, and a node."""
    with ray_scene(tmp_path_factory.mktemp("ray"), 2) as ray:
        ray.start_head(durable=True)
        ray.start_node()
        ray.daemon.up()
        yield ray


def begun(scene: RayScene, name: str) -> str:
    """A job that runs until `ended` is called."""
    job = scene.run(WAITS.format(name=name))
    scene.await_status(job, "RUNNING")
    return job


def ended(scene: RayScene, name: str, job: str) -> None:
    """Let it end, and check that it did once, with a whole log."""
    scene.hosts.run(NODE, "touch", f"/var/tmp/go-{name}")
    attempts = scene.await_status(job, "SUCCEEDED")["attempts"]
    assert len(attempts) == 1
    assert scene.logs(job) == ["begun", "done"]


def test_a_job_runs_on_a_node_and_outlives_raylet_bridge_and_daemon(scene: RayScene) -> None:
    first = scene.run("hostname; echo $RAY_AUTH_TOKEN$RAY_AUTH_MODE$CUDA_VISIBLE_DEVICES.")
    scene.await_status(first, "SUCCEEDED")
    assert scene.logs(first) == [scene.hosts.name(NODE), "."]

    job = begun(scene, "raylet")
    agent = scene.pid_of(NODE, "windfall.agent.serve")
    # The raylet dies with all that Ray has there, and joins again under another id.
    scene.kill_raylet()
    # And the daemon is killed meanwhile, with its bridge.
    scene.daemon.kill_daemon()
    scene.start_node()
    scene.daemon.up()
    ended(scene, "raylet", job)
    assert scene.pid_of(NODE, "windfall.agent.serve") == agent


def test_a_head_that_kept_its_memory_is_killed_and_jobs_run_on(scene: RayScene) -> None:
    job = begun(scene, "head")
    scene.kill_ray(HEAD)
    scene.restart_head()
    ended(scene, "head", job)
    # And the cluster is used again.
    scene.await_status(scene.run("true"), "SUCCEEDED")


def test_what_the_cluster_lacks_is_said_by_why(scene: RayScene) -> None:
    token = scene.hosts.home(HEAD) / ".ray" / "auth_token"
    secret = token.read_text()
    token.unlink()
    scene.daemon.kill_daemon()
    scene.daemon.up()
    job = scene.run("true")
    told = wait_until(
        lambda: text if "token" in (text := scene.daemon.windfall("why", job).stdout) else "",
        "why says that the token is missing",
    )
    assert "auth_token" in " ".join(told.split())
    assert scene.status(job) == "RUNNABLE"
    token.write_text(secret)
    scene.await_status(job, "SUCCEEDED")


def test_a_drain_of_the_cluster_is_a_notice_with_its_deadline(scene: RayScene) -> None:
    job = scene.run("trap 'echo noticed; exit 0' TERM; echo begun; while :; do sleep 0.1; done")
    scene.await_status(job, "RUNNING")
    wait_until(lambda: "begun" in scene.logs(job), "the job has begun")
    scene.drain_node()
    scene.await_status(job, "SUCCEEDED")
    assert "noticed" in scene.logs(job)
    later = scene.run("true")
    wait_until(
        lambda: "drained" in scene.daemon.windfall("why", later).stdout, "why says that the node is drained"
    )
    # A node that joins in its place takes what waits.
    scene.kill_raylet()
    scene.start_node()
    scene.await_status(later, "SUCCEEDED")


@pytest.mark.slow
def test_a_job_outlives_the_whole_of_ray_under_a_head_that_forgets(tmp_path: Path) -> None:
    with ray_scene(tmp_path, 2) as scene:
        scene.start_head()
        scene.start_node()
        scene.daemon.up()
        job = begun(scene, "all")
        agent = scene.pid_of(NODE, "windfall.agent.serve")
        # What becomes of a cluster whose head is away for more than a minute.
        scene.kill_ray(HEAD)
        scene.kill_ray(NODE)
        scene.restart_head()
        scene.start_node()
        ended(scene, "all", job)
        assert scene.pid_of(NODE, "windfall.agent.serve") == agent
        scene.await_status(scene.run("true"), "SUCCEEDED")
