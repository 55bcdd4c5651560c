"""A job is placed only where the storage that it names is reached, and is told what to do where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.scheduling.builders import Cluster, a_snapshot, an_offer, started
from windfall.jobs.staging import Archive, Checkpoints, GitSource, Output, Staging
from windfall.jobs.storage import BUCKETS, FILES, storage_needs
from windfall.scheduling.explain import explain
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Gang, SchedulingClass

AFAR = frozenset({FILES})
CUT_OFF = frozenset({FILES, BUCKETS})


def afar(cluster: Cluster, instance: str, lacks: frozenset[str] = AFAR) -> Cluster:
    """The cluster with one instance on a machine that does not reach everything."""
    instances = (replace(each, lacks=lacks) if each.id == instance else each for each in cluster.instances)
    return replace(cluster, instances=tuple(instances))


def waiting(cluster: Cluster, *needs: str, nodes: int = 0) -> Cluster:
    cluster = cluster.with_waiting("a")
    job = cluster.jobs[-1]
    shape = replace(job.shape, needs=needs)
    gang = SchedulingClass(gang=Gang(((shape, nodes),))) if nodes else job.scheduling_class
    return replace(cluster, jobs=(*cluster.jobs[:-1], replace(job, shape=shape, scheduling_class=gang)))


def told(cluster: Cluster) -> dict[str, str]:
    job = cluster.job("a")
    said = explain(cluster.snapshot(), job.queue, job.shape, job.waiting, 0, job.scheduling_class)
    return {reason.code: reason.text() for reason in said.reasons}


@pytest.mark.parametrize(
    ("needs", "where"), [((), "far"), ((BUCKETS,), "far"), ((FILES,), "near"), ((FILES, BUCKETS), "near")]
)
def test_a_job_goes_where_its_storage_is_reached(needs: tuple[str, ...], where: str):
    cluster = a_snapshot().with_environment().with_instance("far", vcpus=2).with_instance("near")
    assert started(plan(waiting(afar(cluster, "far"), *needs).snapshot())) == [("a", where)]


def test_all_nodes_of_a_gang_go_where_their_storage_is_reached():
    cluster = a_snapshot().with_environment().with_instance("far", vcpus=2).with_instance("near")
    placed = started(plan(waiting(afar(cluster, "far"), FILES, nodes=2).snapshot()))
    assert {instance for _, instance in placed} == {"near"}


def test_only_machines_that_reach_it_are_launched_for_it():
    offers = (replace(an_offer("far"), lacks=AFAR), an_offer("near"))
    cluster = a_snapshot().with_environment(offers=offers)
    assert [launch.offer.type for launch in plan(waiting(cluster, FILES).snapshot()).launches] == ["near"]
    assert plan(waiting(a_snapshot().with_environment(offers=offers[:1]), FILES).snapshot()).launches == ()


def test_a_job_that_no_machine_can_serve_is_told_what_to_do():
    cluster = afar(a_snapshot().with_environment().with_instance("far"), "far")
    said = told(waiting(cluster, FILES))["STORAGE_OUT_OF_REACH"]
    assert said.startswith("needs files of the daemon's host, which the machines of env do not reach;")
    assert "windfall up --s3 --s3-listen ADDRESS" in said
    assert "STORAGE_OUT_OF_REACH" in told(waiting(cluster, FILES, nodes=2))
    cluster = afar(a_snapshot().with_environment().with_instance("far"), "far", CUT_OFF)
    said = told(waiting(cluster, BUCKETS))["STORAGE_OUT_OF_REACH"]
    assert "start the daemon with --s3-listen ADDRESS" in said


def asking_for(cluster: Cluster, *, vcpus: float) -> Cluster:
    job = cluster.jobs[-1]
    shape = replace(job.shape, resources=replace(job.shape.resources, vcpus=vcpus))
    return replace(cluster, jobs=(*cluster.jobs[:-1], replace(job, shape=shape)))


def test_a_job_too_large_for_the_machines_it_reaches_is_told_of_those_that_it_does_not_reach():
    cluster = a_snapshot().with_environment().with_instance("far", vcpus=16).with_instance("near", vcpus=2)
    job = asking_for(waiting(afar(cluster, "far"), FILES), vcpus=8)
    said = told(job)["STORAGE_OUT_OF_REACH"]
    assert said.startswith(
        "needs files of the daemon's host, which the machines of env that are large enough"
    )
    assert "windfall run --clean" in said
    assert "ASKS_TOO_MUCH" in told(asking_for(job, vcpus=32))
    offer = replace(an_offer("far", vcpus=16), lacks=AFAR)
    cluster = a_snapshot().with_environment(offers=(offer,)).with_instance("near", vcpus=2)
    assert "STORAGE_OUT_OF_REACH" in told(asking_for(waiting(cluster, FILES), vcpus=8))


def test_a_job_that_waits_for_the_machines_it_reaches_is_told_of_the_others():
    cluster = a_snapshot().with_environment().with_instance("far").with_instance("near", vcpus=8)
    cluster = afar(cluster, "far").with_running("near", vcpus=8)
    said = told(waiting(cluster, FILES))
    assert set(said) >= {"ROOM_TAKEN", "OTHERS_OUT_OF_REACH"}
    assert "windfall run --clean" in said["OTHERS_OUT_OF_REACH"]


@pytest.mark.parametrize(
    ("staging", "directory", "needs"),
    [
        (None, None, ()),
        (Staging(), None, ()),
        (None, "/home/me", (FILES,)),
        (None, "/", ()),
        (Staging(checkpoints=Checkpoints("file:///data/c")), None, (FILES,)),
        (Staging(archives=(Archive("s3://code/a.tar", "."),)), None, (BUCKETS,)),
        (
            Staging(archives=(Archive("s3://code/a.tar", "."),), outputs=(Output("out", "file:///o"),)),
            None,
            (FILES, BUCKETS),
        ),
        (Staging(git=GitSource("/srv/repository", "main")), None, (FILES,)),
        (Staging(git=GitSource("https://example.com/x.git", "main")), None, ()),
    ],
)
def test_what_a_job_needs_follows_from_what_it_names(
    staging: Staging | None, directory: str | None, needs: tuple[str, ...]
):
    assert storage_needs(staging, directory) == needs
