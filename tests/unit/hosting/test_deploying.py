"""Deployments, step by step: what starts, drains and leaves, which part of the requests each generation gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.hosting.deploying import (
    BACKOFF_MS,
    DRAIN_MS,
    FAILURES_MAX,
    ROOM_MS,
    ReplicaJob,
    Step,
    drained,
    given_up,
    moved,
    moved_replica,
    step,
    with_replica,
)
from windfall.hosting.endpoint import (
    Deployment,
    EndpointState,
    Generation,
    HostedEndpoint,
    Replica,
    ReplicaState,
    Rollout,
    RolloutKind,
    Variant,
)
from windfall.hosting.sizing import traffic
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.errors import IllegalMove
from windfall.jobs.ids import JobId
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Staging

START = 1_000_000
WAITING, STARTED = ReplicaJob(), ReplicaJob(placed=True, started_at=START)


def a_variant(name: str = "AllTraffic", count: int = 1, weight: float = 1.0) -> Variant:
    container = ContainerSpec("image", Resources(1, 1024))
    return Variant(name=name, count=count, weight=weight, container=container, staging=Staging())


def a_generation(number: int = 1, *variants: Variant) -> Generation:
    return Generation(number=number, config=f"config-{number}", variants=variants or (a_variant(),))


class World:
    """One endpoint, and the jobs of its replicas."""

    def __init__(self, *variants: Variant) -> None:
        self.now = START
        self.endpoint = HostedEndpoint(
            name="e", region="r", arn="arn", serving=a_generation(1, *variants), created_at=START
        )
        self.jobs: dict[JobId, ReplicaJob] = {}
        self.gone = False
        self.stopped: list[JobId] = []
        #: What a new replica's job is.
        self.fresh = STARTED

    def steps(self, after_ms: int = 0) -> Step:
        """Take steps until nothing moves, as a round does."""
        self.now += after_ms
        for _ in range(6):
            made = step(self.endpoint, self.jobs, self.now)
            if made.endpoint is None:
                self.gone = True
                return made
            changed = made.endpoint != self.endpoint or bool(made.start)
            self.endpoint = made.endpoint
            for job_id in made.stop:
                self.stopped.append(job_id)
                self.jobs[job_id] = ReplicaJob(ended=True)
            for wanted in made.start:
                job_id = JobId(f"r{self.endpoint.replicas_made + 1}")
                fresh = replace(self.fresh, started_at=self.now if self.fresh.started_at else None)
                self.jobs[job_id] = fresh
                self.endpoint = replace(
                    self.endpoint,
                    replicas=(*self.endpoint.replicas, replace(wanted, id=job_id)),
                    replicas_made=self.endpoint.replicas_made + 1,
                )
            if not changed:
                return made
        raise AssertionError("it never comes to rest")

    def ready(self) -> None:
        """Every replica that has started answers a ping."""
        for replica in self.endpoint.replicas:
            if replica.state is ReplicaState.STARTING and self.jobs[replica.id].started_at is not None:
                answered = replace(moved_replica(replica, ReplicaState.READY), ready_at=self.now)
                self.endpoint = with_replica(self.endpoint, answered)

    def serves(self) -> World:
        self.steps()
        self.ready()
        self.steps()
        assert self.endpoint.state is EndpointState.IN_SERVICE
        return self

    def updates(self, rollout: Rollout | None = None, *variants: Variant) -> None:
        target = a_generation(2, *(variants or self.endpoint.serving.variants))
        deployment = Deployment(target=target, rollout=rollout or Rollout(), begun_at=self.now)
        self.endpoint = moved(replace(self.endpoint, deployment=deployment), EndpointState.UPDATING)
        self.steps()

    def drains(self) -> None:
        """The usher has no request left of those that drain."""
        for replica in self.endpoint.replicas:
            if replica.state is ReplicaState.DRAINING:
                self.endpoint = drained(self.endpoint, replica, self.now)
        self.steps()

    def replicas(self, generation: int, *states: ReplicaState) -> list[Replica]:
        return [
            replica
            for replica in self.endpoint.replicas
            if replica.generation == generation and (not states or replica.state in states)
        ]


def test_an_endpoint_is_in_service_when_every_replica_of_every_variant_answers():
    world = World(a_variant("A", 2), a_variant("B", 1))
    world.steps()
    assert [(replica.variant, replica.state) for replica in world.endpoint.replicas] == [
        ("A", ReplicaState.STARTING),
        ("A", ReplicaState.STARTING),
        ("B", ReplicaState.STARTING),
    ]
    first = world.endpoint.replicas[0]
    world.endpoint = with_replica(world.endpoint, moved_replica(first, ReplicaState.READY))
    world.steps()
    assert world.endpoint.state is EndpointState.CREATING
    world.ready()
    world.steps()
    assert world.endpoint.state is EndpointState.IN_SERVICE


def test_a_creation_fails_when_replicas_fail_again_and_again():
    world = World()
    for failure in range(1, FAILURES_MAX + 1):
        world.steps(BACKOFF_MS * 2**failure)
        world.jobs[world.endpoint.replicas[0].id] = ReplicaJob(ended=True, fault="exit code 1")
        world.steps()
    assert world.endpoint.state is EndpointState.FAILED
    assert world.endpoint.failure_reason is not None
    assert "did not pass the ping health check" in world.endpoint.failure_reason
    assert "exit code 1" in world.endpoint.failure_reason
    assert not world.endpoint.replicas


def test_a_replica_that_does_not_answer_in_time_is_replaced():
    world = World()
    world.steps()
    (late,) = world.endpoint.replicas
    world.steps(world.endpoint.serving.variants[0].startup_s * 1000)
    assert world.stopped == [late.id]
    world.steps(BACKOFF_MS)
    (other,) = world.endpoint.replicas
    assert other.id != late.id


def test_waiting_for_a_place_is_not_held_against_a_replica():
    world = World()
    world.fresh = WAITING
    world.steps()
    world.steps(10 * 3600 * 1000)
    assert (world.endpoint.state, len(world.endpoint.replicas)) == (EndpointState.CREATING, 1)


def test_a_dead_replica_is_replaced_after_a_pause_that_grows():
    world = World().serves()
    pauses = []
    for _ in range(4):
        (replica,) = world.endpoint.replicas
        world.jobs[replica.id] = ReplicaJob(ended=True, fault="killed")
        world.steps()
        pauses.append(world.endpoint.setbacks[0].again_at - world.now)
        assert not world.endpoint.replicas
        world.steps(pauses[-1])
        world.ready()
        world.steps()
    assert pauses == [1000, 2000, 4000, 8000]
    assert world.endpoint.state is EndpointState.IN_SERVICE


def test_a_replica_whose_machine_is_lost_is_moved_at_once():
    world = World().serves()
    (replica,) = world.endpoint.replicas
    world.jobs[replica.id] = ReplicaJob(ended=True)
    world.steps()
    (other,) = world.endpoint.replicas
    assert (other.id != replica.id, world.endpoint.setbacks) == (True, ())


def test_a_replica_that_falls_silent_leaves_and_is_replaced():
    world = World().serves()
    (replica,) = world.endpoint.replicas
    world.endpoint = given_up(world.endpoint, replica, "silent", world.now)
    world.jobs[replica.id] = ReplicaJob(ended=True)
    world.steps(BACKOFF_MS)
    assert [it.id for it in world.endpoint.replicas] == ["r2"]


def test_all_at_once_starts_the_new_ones_before_the_old_ones_drain():
    world = World(a_variant(count=2)).serves()
    world.updates()
    assert (len(world.replicas(1, ReplicaState.READY)), len(world.replicas(2))) == (2, 2)
    assert traffic(world.endpoint) == {1: 1.0, 2: 0.0}
    world.ready()
    world.steps()
    assert traffic(world.endpoint) == {1: 0.0, 2: 1.0}
    assert len(world.replicas(1, ReplicaState.DRAINING)) == 2
    assert world.endpoint.state is EndpointState.UPDATING
    world.drains()
    assert not world.replicas(1)
    assert world.endpoint.state is EndpointState.IN_SERVICE
    assert world.endpoint.serving.config == "config-2"


def test_old_replicas_go_on_draining_until_their_time_is_over():
    world = World().serves()
    world.updates()
    world.ready()
    world.steps()
    (old,) = world.replicas(1, ReplicaState.DRAINING)
    world.steps(DRAIN_MS - 1)
    assert world.stopped == []
    world.steps(1)
    assert world.stopped == [old.id]
    assert world.endpoint.state is EndpointState.IN_SERVICE


@pytest.mark.parametrize(
    ("kind", "parts"), [(RolloutKind.CANARY, [0.25, 1.0]), (RolloutKind.LINEAR, [0.25, 0.5, 0.75, 1.0])]
)
def test_traffic_moves_in_steps_that_are_watched(kind, parts):
    world = World().serves()
    rollout = Rollout(kind=kind, part=0.25, wait_s=60, termination_wait_s=120, chosen=True)
    world.updates(rollout)
    world.ready()
    seen = []
    for _ in parts:
        world.steps()
        seen.append(traffic(world.endpoint)[2])
        world.steps(59_999)
        assert traffic(world.endpoint)[2] == seen[-1]
        world.now += 1
    assert seen == parts
    assert world.replicas(1, ReplicaState.READY)
    world.steps(60_000)
    world.drains()
    assert world.endpoint.state is EndpointState.IN_SERVICE


def test_new_replicas_that_fail_take_the_update_back():
    world = World().serves()
    world.updates(Rollout(kind=RolloutKind.CANARY, part=0.1, wait_s=600, chosen=True))
    world.ready()
    world.steps()
    for failure in range(1, FAILURES_MAX + 1):
        (new,) = world.replicas(2)
        world.jobs[new.id] = ReplicaJob(ended=True, fault="out of memory")
        world.steps()
        world.steps(BACKOFF_MS * 2**failure)
    assert world.endpoint.state is EndpointState.IN_SERVICE
    assert world.endpoint.serving.config == "config-1"
    assert "out of memory" in (world.endpoint.failure_reason or "")
    assert traffic(world.endpoint) == {1: 1.0}
    assert [replica.generation for replica in world.endpoint.replicas] == [1]


def test_ready_replicas_of_an_update_that_is_taken_back_drain_too():
    world = World(a_variant("A"), a_variant("B")).serves()
    world.updates(Rollout(kind=RolloutKind.CANARY, part=0.1, wait_s=600, max_s=300, chosen=True))
    world.ready()
    world.steps()
    world.steps(300_000)
    assert world.endpoint.state is EndpointState.ROLLING_BACK
    assert len(world.replicas(2, ReplicaState.DRAINING)) == 2
    world.drains()
    assert world.endpoint.state is EndpointState.IN_SERVICE


def test_without_room_for_both_an_update_goes_replica_by_replica():
    world = World(a_variant(count=3)).serves()
    world.fresh = WAITING
    world.updates()
    assert len(world.replicas(2)) == 3
    world.steps(ROOM_MS)
    assert world.endpoint.deployment is not None
    assert world.endpoint.deployment.rollout.kind is RolloutKind.ROLLING
    for turned in range(1, 4):
        assert len(world.replicas(1, ReplicaState.READY)) == 3 - turned
        world.drains()
        for replica in world.replicas(2, ReplicaState.STARTING):
            world.jobs[replica.id] = ReplicaJob(placed=True, started_at=world.now)
        world.ready()
        world.steps()
        assert len(world.replicas(2, ReplicaState.READY)) == turned
    assert world.endpoint.state is EndpointState.IN_SERVICE
    assert world.endpoint.serving.number == 2


def test_without_room_one_replica_is_not_taken_away_unasked():
    world = World().serves()
    world.fresh = WAITING
    world.updates()
    world.steps(ROOM_MS)
    assert world.endpoint.state is EndpointState.IN_SERVICE
    assert "RollingUpdatePolicy" in (world.endpoint.failure_reason or "")
    assert len(world.replicas(1, ReplicaState.READY)) == 1


def test_a_rolling_update_that_was_asked_for_makes_room_for_one_replica():
    world = World().serves()
    world.fresh = WAITING
    world.updates(Rollout(kind=RolloutKind.ROLLING, part=1.0, chosen=True))
    world.steps(ROOM_MS)
    assert world.replicas(1, ReplicaState.DRAINING)
    world.drains()
    (new,) = world.replicas(2)
    world.jobs[new.id] = ReplicaJob(placed=True, started_at=world.now)
    world.ready()
    world.steps()
    assert world.endpoint.state is EndpointState.IN_SERVICE


def test_fewer_replicas_drain_and_more_are_started():
    world = World(a_variant(count=2)).serves()
    serving = replace(world.endpoint.serving, variants=(a_variant(count=1),))
    world.endpoint = moved(replace(world.endpoint, serving=serving), EndpointState.UPDATING)
    world.steps()
    assert len(world.replicas(1, ReplicaState.DRAINING)) == 1
    assert world.endpoint.state is EndpointState.UPDATING
    world.drains()
    assert world.endpoint.state is EndpointState.IN_SERVICE


def test_a_deleted_endpoint_drains_before_it_is_gone():
    world = World().serves()
    world.endpoint = moved(world.endpoint, EndpointState.DELETING)
    world.steps()
    assert world.replicas(1, ReplicaState.DRAINING)
    world.drains()
    assert world.gone


def test_a_step_that_is_taken_twice_does_nothing_the_second_time():
    world = World(a_variant(count=2)).serves()
    again = step(world.endpoint, world.jobs, world.now)
    assert (again.endpoint, again.start, again.stop) == (world.endpoint, (), ())


def test_an_illegal_move_tells_the_story():
    world = World().serves()
    with pytest.raises(IllegalMove, match=r"InService -> Failed .*endpoint e is InService with 1 replicas"):
        moved(world.endpoint, EndpointState.FAILED)
    with pytest.raises(IllegalMove, match=r"READY -> STARTING .*r1"):
        moved_replica(world.endpoint.replicas[0], ReplicaState.STARTING)
