"""Models, endpoint configurations and endpoints: made, changed and deleted; and `tend`, which lets deployments go on.

hosting/deploying.py decides what happens next to an endpoint; here its steps become jobs. Must not know SageMaker's
words, nor how requests reach a replica.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windfall.control.commands.hosting import (
    CreateEndpoint,
    CreateEndpointConfig,
    CreateModel,
    DeleteHosted,
    HostedKind,
    ReplicaDrained,
    ReplicaReady,
    ReplicaSilent,
    ResizeVariants,
    TagHosted,
    UpdateEndpoint,
)
from windfall.control.instructions import PublishRoutes
from windfall.control.lifecycle import settle
from windfall.control.own_queues import own_queue
from windfall.control.replicas import QUEUE, check_generation, job_of, start_replica, stop_replica
from windfall.control.round import Round
from windfall.control.state import State
from windfall.hosting.deploying import drained, given_up, moved, moved_replica, step, with_replica
from windfall.hosting.endpoint import (
    Deployment,
    EndpointState,
    Generation,
    HostedConfig,
    HostedEndpoint,
    HostedModel,
    Replica,
    ReplicaState,
)
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import AttemptToken
from windfall.jobs.job import JobKind
from windfall.jobs.tenants import given_name

#: How many steps one round takes for an endpoint: what one of them starts or stops may decide the next.
_STEPS_MAX = 4
_USERS = "replicas of endpoints"


def on_create_model(state: State, command: CreateModel, round_: Round) -> HostedModel:
    """Keep a model."""
    model = replace(command.model, created_at=round_.now)
    if model.name in state.models:
        raise Conflict(f"Cannot create already existing model {given_name(model.name)!r}.")
    state.models[model.name] = round_.changes.declared[HostedModel, model.name] = model
    return model


def on_create_endpoint_config(state: State, command: CreateEndpointConfig, round_: Round) -> HostedConfig:
    """Keep a configuration."""
    config = replace(command.config, created_at=round_.now)
    if config.name in state.endpoint_configs:
        raise Conflict(f"Cannot create already existing endpoint configuration {given_name(config.name)!r}.")
    state.endpoint_configs[config.name] = round_.changes.declared[HostedConfig, config.name] = config
    return config


def on_create_endpoint(state: State, command: CreateEndpoint, round_: Round) -> HostedEndpoint:
    """Begin an endpoint, or refuse it with nothing changed."""
    endpoint = command.endpoint
    if endpoint.name in state.endpoints:
        raise Conflict(f"Cannot create already existing endpoint {given_name(endpoint.name)!r}.")
    check_generation(state, endpoint.submitter, endpoint.serving)
    own_queue(state, command.environment, _USERS, round_)
    serving = replace(endpoint.serving, number=1)
    return _keep(
        state,
        replace(endpoint, serving=serving, created_at=round_.now, modified_at=round_.now),
        round_,
    )


def on_update_endpoint(state: State, command: UpdateEndpoint, round_: Round) -> HostedEndpoint:
    """Begin the deployment of another generation."""
    endpoint = _settled(state, command.name)
    target = replace(command.target, number=endpoint.serving.number + 1)
    if command.keeps_sizes:
        target = _with_sizes_of(endpoint.serving, target)
    check_generation(state, endpoint.submitter, target)
    own_queue(state, command.environment, _USERS, round_)
    deployment = Deployment(target=target, rollout=command.rollout, begun_at=round_.now)
    endpoint = replace(
        endpoint, deployment=deployment, deployment_document=command.document, failure_reason=None
    )
    return _keep(state, replace(moved(endpoint, EndpointState.UPDATING), modified_at=round_.now), round_)


def on_resize_variants(state: State, command: ResizeVariants, round_: Round) -> HostedEndpoint:
    """Change weights and numbers of replicas of the generation that serves."""
    endpoint = _settled(state, command.name)
    present = {variant.name for variant in endpoint.serving.variants}
    if unknown := sorted(command.sizes.keys() - present):
        raise Invalid(
            f"The variant name(s) {unknown!r} is/are not present within endpoint configuration"
            f" {given_name(endpoint.serving.config)!r}."
        )
    variants = []
    for variant in endpoint.serving.variants:
        weight, count = command.sizes.get(variant.name, (None, None))
        variants.append(
            replace(
                variant,
                weight=variant.weight if weight is None else weight,
                count=variant.count if count is None else count,
            )
        )
    if not any(variant.weight > 0 for variant in variants):
        raise Invalid("At least one variant must have a weight above 0")
    serving = replace(endpoint.serving, variants=tuple(variants))
    endpoint = replace(moved(endpoint, EndpointState.UPDATING), serving=serving, modified_at=round_.now)
    return _keep(state, endpoint, round_)


def on_delete_hosted(state: State, command: DeleteHosted, round_: Round) -> None:
    """Forget a model or a configuration, which endpoints do not need any more; let an endpoint drain and end."""
    _require(state, command.kind, command.name)
    if command.kind == "model":
        del state.models[command.name]
        round_.changes.declared[HostedModel, command.name] = None
    elif command.kind == "endpoint-config":
        del state.endpoint_configs[command.name]
        round_.changes.declared[HostedConfig, command.name] = None
    else:
        endpoint = state.endpoints[command.name]
        if endpoint.state is not EndpointState.DELETING:
            endpoint = replace(moved(endpoint, EndpointState.DELETING), modified_at=round_.now)
            _keep(state, endpoint, round_)


def on_tag_hosted(state: State, command: TagHosted, round_: Round) -> dict[str, str]:
    """Change the tags of something declared; those of running replicas stay as they were submitted."""
    declared = _require(state, command.kind, command.name)
    tags = {**declared.tags, **command.add}
    tags = {key: value for key, value in tags.items() if key not in command.remove}
    tagged: Any = replace(declared, tags=tags)
    _table(state, command.kind)[command.name] = tagged
    round_.changes.declared[type(tagged), command.name] = tagged
    return tags


def on_replica_ready(state: State, report: ReplicaReady, round_: Round) -> None:
    """Let a replica have requests."""
    pair = _replica(state, report.token)
    if pair is not None and pair[1].state is ReplicaState.STARTING:
        endpoint, replica = pair
        ready = replace(moved_replica(replica, ReplicaState.READY), ready_at=round_.now)
        _keep(state, with_replica(endpoint, ready), round_)


def on_replica_silent(state: State, report: ReplicaSilent, round_: Round) -> None:
    """Replace a replica that does not answer any more."""
    pair = _replica(state, report.token)
    if pair is not None and pair[1].state is ReplicaState.READY:
        endpoint, replica = pair
        _keep(state, given_up(endpoint, replica, report.reason, round_.now), round_)
        stop_replica(state, replica.id, round_)


def on_replica_drained(state: State, report: ReplicaDrained, round_: Round) -> None:
    """Let a replica leave that has no request left."""
    pair = _replica(state, report.token)
    if pair is not None and pair[1].state is ReplicaState.DRAINING:
        _keep(state, drained(*pair, round_.now), round_)


def tend(state: State, round_: Round) -> None:
    """Let every deployment go on that may have reason to."""
    if not state.endpoints:
        return
    changed = [job for job in round_.changes.jobs.values() if job.submission.kind is JobKind.REPLICA]
    if not changed and not state.endpoints_unsettled:
        return
    state.endpoints_unsettled = False
    if changed:
        round_.instructions.append(PublishRoutes())
    for name in list(state.endpoints):
        for _ in range(_STEPS_MAX):
            if not _take_step(state, name, round_):
                break


def _take_step(state: State, name: str, round_: Round) -> bool:
    """Take one step of an endpoint; the answer is whether another may follow."""
    endpoint = state.endpoints.get(name)
    if endpoint is None:
        return False
    ended = {job.id: job for job in round_.changes.jobs.values() if job.finished}
    made = step(endpoint, {it.id: job_of(state, it, ended) for it in endpoint.replicas}, round_.now)
    if made.endpoint is None:
        del state.endpoints[name]
        round_.changes.declared[HostedEndpoint, name] = None
        round_.instructions.append(PublishRoutes())
        return False
    after = made.endpoint
    for job_id in made.stop:
        stop_replica(state, job_id, round_)
    if QUEUE in state.queues:
        for wanted in made.start:
            after, _ = start_replica(state, after, wanted, round_)
            state.endpoints[name] = after
    if round_.ended:
        settle(state, round_)
    if after == endpoint:
        return False
    _keep(state, after, round_)
    state.endpoints_unsettled = False
    return True


def _keep(state: State, endpoint: HostedEndpoint, round_: Round) -> HostedEndpoint:
    state.endpoints[endpoint.name] = endpoint
    round_.changes.declared[HostedEndpoint, endpoint.name] = endpoint
    round_.instructions.append(PublishRoutes())
    state.endpoints_unsettled = True
    return endpoint


def _settled(state: State, name: str) -> HostedEndpoint:
    endpoint = state.endpoints.get(name)
    if endpoint is None:
        raise NotFound(f"Could not find endpoint {given_name(name)!r}.")
    if endpoint.state is EndpointState.FAILED:
        raise Invalid(
            f"Cannot update the failed endpoint {given_name(name)!r}; delete it and create it again."
        )
    if endpoint.state is not EndpointState.IN_SERVICE:
        raise Invalid(f"Cannot update in-progress endpoint {given_name(name)!r}.")
    return endpoint


def _with_sizes_of(old: Generation, new: Generation) -> Generation:
    variants = [
        variant
        if (before := old.variant(variant.name)) is None
        else replace(variant, count=before.count, weight=before.weight)
        for variant in new.variants
    ]
    return replace(new, variants=tuple(variants))


def _table(state: State, kind: HostedKind) -> dict[str, Any]:
    tables: dict[str, dict[str, Any]] = {
        "model": state.models,
        "endpoint-config": state.endpoint_configs,
        "endpoint": state.endpoints,
    }
    return tables[kind]


def _require(state: State, kind: HostedKind, name: str) -> Any:
    declared = _table(state, kind).get(name)
    if declared is None:
        words = {"model": "model", "endpoint-config": "endpoint configuration", "endpoint": "endpoint"}
        raise NotFound(f"Could not find {words[kind]} {given_name(name)!r}.")
    return declared


def _replica(state: State, token: AttemptToken) -> tuple[HostedEndpoint, Replica] | None:
    job = state.attempts.get(token)
    if job is None:
        return None
    return next(
        (
            (endpoint, replica)
            for endpoint in state.endpoints.values()
            for replica in endpoint.replicas
            if replica.id == job.id
        ),
        None,
    )
