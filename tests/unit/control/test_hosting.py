"""Endpoints in the reactor: replicas are jobs of a hidden queue, and survive what daemons and machines do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import ADMIN, TestWorld, a_busy_world, a_machine
from windfall.aws_api.sagemaker.placement import endpoint_environment
from windfall.capacity.environments import ENDPOINTS
from windfall.control import events
from windfall.control.commands.hosting import (
    CreateEndpoint,
    CreateEndpointConfig,
    CreateModel,
    DeleteHosted,
    ReplicaDrained,
    ReplicaReady,
    ReplicaSilent,
    ResizeVariants,
    TagHosted,
    UpdateEndpoint,
)
from windfall.control.instructions import PublishRoutes, StartAttempt, StopAttempt
from windfall.control.serving_routes import routes_of
from windfall.hosting.deploying import DRAIN_MS
from windfall.hosting.endpoint import (
    EndpointState,
    Generation,
    HostedConfig,
    HostedEndpoint,
    HostedModel,
    ReplicaState,
    Rollout,
    RolloutKind,
    Variant,
)
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.job import JobKind
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Archive, Staging
from windfall.jobs.submitters import Submitter

ENVIRONMENT = endpoint_environment(None, 1)
ARN = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/e"


def a_generation(count: int = 1, uri: str = "s3://bucket/model.tar.gz", **variant: Any) -> Generation:
    made = Variant(
        name="AllTraffic",
        count=count,
        weight=1.0,
        container=ContainerSpec(
            "image",
            Resources(1, 1024),
            ("serve",),
            log_group="/aws/sagemaker/Endpoints/e",
            log_prefix="AllTraffic",
        ),
        staging=Staging(archives=(Archive(uri, "/opt/ml/model"),)),
    )
    return Generation(number=0, config="config", variants=(replace(made, **variant),))


def create(
    generation: Generation | None = None, name: str = "e", submitter: Submitter = ADMIN
) -> CreateEndpoint:
    serving = generation or a_generation()
    endpoint = HostedEndpoint(name=name, region="us-east-1", arn=ARN, serving=serving, submitter=submitter)
    return CreateEndpoint(endpoint, ENVIRONMENT)


@pytest.fixture
def world() -> TestWorld:
    return a_busy_world(a_machine(gpus=2))


def endpoint_of(world: TestWorld) -> HostedEndpoint:
    return world.state.endpoints["e"]


def run_all(world: TestWorld) -> None:
    """Let every replica that waits be placed, start and answer a ping."""
    world.later(1)
    world.ready()
    world.later(1)
    for replica in endpoint_of(world).replicas:
        job = world.state.jobs[replica.id]
        if job.attempt is not None and job.attempt.started_at is None:
            world.happens(events.AttemptStarted(job.attempt.token, world.now))
    for replica in endpoint_of(world).replicas:
        job = world.state.jobs.get(replica.id)
        if replica.state is ReplicaState.STARTING and job is not None and job.attempt is not None:
            world.happens(ReplicaReady(job.attempt.token))


def serving(world: TestWorld, count: int = 1) -> TestWorld:
    world.happens(create(a_generation(count)))
    run_all(world)
    assert endpoint_of(world).state is EndpointState.IN_SERVICE
    return world


def tokens(world: TestWorld) -> list[Any]:
    jobs = [world.state.jobs[replica.id] for replica in endpoint_of(world).replicas]
    return [job.attempt.token for job in jobs if job.attempt is not None]


def test_a_replica_is_a_job_of_the_hidden_queue(world):
    world.happens(create())
    world.later(1)
    world.ready()
    (start,) = world.asked_for(StartAttempt)
    job = world.state.attempts[start.token]
    assert (job.submission.kind, job.submission.queue) == (JobKind.REPLICA, ENDPOINTS)
    assert job.submission.submitter == ADMIN
    assert start.argv == ("serve",)
    (replica,) = endpoint_of(world).replicas
    assert 20_000 <= replica.port < 30_000
    assert start.environment["SAGEMAKER_BIND_TO_PORT"] == str(replica.port)
    assert start.environment["WINDFALL_SERVE_ADDRESS"] == "127.0.0.1"
    assert job.attempts[0].log_stream == f"AllTraffic/{start.token}"


def test_requests_go_to_replicas_that_answer(world):
    world.happens(create(a_generation(2)))
    (early,) = routes_of(world.state)
    assert (early.variants[0].replicas, early.variants[0].holds) == ((), True)
    run_all(world)
    (route,) = routes_of(world.state)
    (variant,) = route.variants
    assert variant.holds is False
    assert (route.name, route.tenant, variant.name, variant.weight) == ("e", "default", "AllTraffic", 1.0)
    ports = [replica.port for replica in endpoint_of(world).replicas]
    assert [replica.port for replica in variant.replicas] == ports
    assert len(set(ports)) == 2
    assert {replica.id for replica in variant.replicas} == set(tokens(world))
    assert variant.log_group_arn.endswith(":log-group:/aws/sagemaker/Endpoints/e")
    assert any(isinstance(instruction, PublishRoutes) for instruction in world.asked)


def test_a_restarted_daemon_goes_on_with_the_deployment(world):
    world.happens(create(a_generation(2)))
    world.later(1)
    before = endpoint_of(world)
    world.restarted()
    assert world.state.endpoints["e"] == before
    run_all(world)
    assert endpoint_of(world).state is EndpointState.IN_SERVICE
    assert endpoint_of(world).replicas_made == 2


def test_a_dead_replica_is_replaced_and_leaves_the_table_at_once(world):
    serving(world)
    (token,) = tokens(world)
    world.happens(events.AttemptExited(token, world.now, 137, started_at=world.now))
    assert routes_of(world.state)[0].variants[0].replicas == ()
    world.later(1000)
    run_all(world)
    (route,) = routes_of(world.state)
    assert [replica.id for replica in route.variants[0].replicas] == tokens(world)
    assert tokens(world) not in ([], [token])


def test_a_replica_of_a_lost_machine_is_moved(world):
    serving(world)
    (token,) = tokens(world)
    world.happens(events.AttemptLost(token, world.now))
    assert endpoint_of(world).setbacks == ()
    run_all(world)
    assert len(tokens(world)) == 1
    assert tokens(world) != [token]


def test_a_silent_replica_is_stopped_and_replaced(world):
    serving(world)
    (token,) = tokens(world)
    world.happens(ReplicaSilent(token, "silent"))
    assert token in {it.token for it in world.asked_for(StopAttempt)}
    assert routes_of(world.state)[0].variants[0].replicas == ()


def test_late_words_about_a_replica_change_nothing(world):
    serving(world)
    (token,) = tokens(world)
    before = endpoint_of(world)
    for report in (
        ReplicaReady(token),
        ReplicaDrained(token),
        ReplicaReady("gone#1"),
        ReplicaSilent("gone#1", ""),
    ):
        world.happens(report)
    assert endpoint_of(world) == before


def test_an_update_drains_the_old_replica_before_its_place_is_given_up(world):
    serving(world)
    (old,) = tokens(world)
    world.happens(UpdateEndpoint("e", a_generation(), Rollout(), ENVIRONMENT))
    run_all(world)
    assert old not in {it.token for it in world.asked_for(StopAttempt)}
    assert endpoint_of(world).state is EndpointState.UPDATING
    world.happens(ReplicaDrained(old))
    assert old in {it.token for it in world.asked_for(StopAttempt)}
    world.happens(events.AttemptExited(old, world.now, 0, started_at=world.now))
    assert endpoint_of(world).state is EndpointState.IN_SERVICE
    assert endpoint_of(world).serving.number == 2


def test_a_canary_has_two_routes_of_one_variant(world):
    serving(world)
    rollout = Rollout(kind=RolloutKind.CANARY, part=0.25, wait_s=60, chosen=True)
    world.happens(UpdateEndpoint("e", a_generation(), rollout, ENVIRONMENT))
    run_all(world)
    (route,) = routes_of(world.state)
    assert [(variant.name, variant.weight) for variant in route.variants] == [
        ("AllTraffic", 0.75),
        ("AllTraffic+2", 0.25),
    ]


def test_counts_and_weights_change_in_place(world):
    serving(world)
    world.happens(ResizeVariants("e", {"AllTraffic": (3.0, 2)}))
    assert endpoint_of(world).state is EndpointState.UPDATING
    run_all(world)
    assert endpoint_of(world).state is EndpointState.IN_SERVICE
    (variant,) = routes_of(world.state)[0].variants
    assert (variant.weight, len(variant.replicas)) == (3.0, 2)


def test_what_cannot_be_resized_is_refused(world):
    serving(world)
    with pytest.raises(Invalid, match="'B'"):
        world.happens(ResizeVariants("e", {"B": (1.0, None)}))
    with pytest.raises(Invalid, match="weight above 0"):
        world.happens(ResizeVariants("e", {"AllTraffic": (0.0, None)}))


def test_a_deleted_endpoint_is_gone_when_its_last_replica_has_left(world):
    serving(world)
    (token,) = tokens(world)
    world.happens(DeleteHosted("endpoint", "e"))
    assert routes_of(world.state) == ()
    world.later(DRAIN_MS)
    world.happens(events.AttemptExited(token, world.now, 0, started_at=world.now))
    assert world.state.endpoints == {}
    world.restarted()
    assert world.state.endpoints == {}


def test_an_endpoint_that_is_busy_cannot_be_updated(world):
    world.happens(create())
    with pytest.raises(Invalid, match="in-progress"):
        world.happens(UpdateEndpoint("e", a_generation(), Rollout(), ENVIRONMENT))
    with pytest.raises(NotFound, match="Could not find endpoint"):
        world.happens(UpdateEndpoint("other", a_generation(), Rollout(), ENVIRONMENT))


def test_a_submitters_replicas_may_read_only_what_its_jobs_may(world):
    stranger = Submitter("lab", "AKIALAB")
    with pytest.raises(Invalid, match="s3://elsewhere"):
        world.happens(create(a_generation(uri="s3://elsewhere/m.tar.gz"), "lab/e", stranger))
    assert (world.state.endpoints, ENDPOINTS in world.state.environments) == ({}, False)


def test_names_are_taken_once_and_free_again(world):
    model = HostedModel(name="m", region="r", document="{}")
    config = HostedConfig(name="c", region="r", document="{}")
    for command, kind, name in (
        (CreateModel(model), "model", "m"),
        (CreateEndpointConfig(config), "endpoint-config", "c"),
        (create(), "endpoint", "e"),
    ):
        world.happens(command)
        with pytest.raises(Conflict, match="already existing"):
            world.happens(command)
        assert world.happens(TagHosted(kind, name, add={"a": "b", "c": "d"})) == {"a": "b", "c": "d"}
        assert world.happens(TagHosted(kind, name, remove=("a",))) == {"c": "d"}
        world.restarted()
        world.happens(DeleteHosted(kind, name))
    assert (world.state.models, world.state.endpoint_configs) == ({}, {})
    with pytest.raises(NotFound, match="Could not find model"):
        world.happens(DeleteHosted("model", "m"))
