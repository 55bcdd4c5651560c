"""Endpoints: what serves, what is on its way, and what it waits for.

Decides the spelling, and which replica's wait stands for an endpoint that is not in service. Must not know where
endpoints are kept.
"""

from __future__ import annotations

from windfall.hosting.endpoint import EndpointState, Generation, HostedEndpoint, Replica, ReplicaState
from windfall.hosting.sizing import traffic
from windfall.views.spelling import Answer


def endpoint_row(endpoint: HostedEndpoint, waits_for: str | None) -> Answer:
    """One endpoint; `waits_for` is why its replicas have no place, where that is so."""
    deployment, parts = endpoint.deployment, traffic(endpoint)
    return {
        "name": endpoint.name,
        "status": endpoint.state.value,
        "config": endpoint.serving.config,
        "nextConfig": None if deployment is None else deployment.target.config,
        "nextPart": None if deployment is None else parts.get(deployment.target.number, 0.0),
        "variants": [
            variant_row
            for generation in endpoint.generations()
            for variant_row in _variants(endpoint, generation)
        ],
        "replicas": [_replica(replica) for replica in endpoint.replicas],
        "createdAt": endpoint.created_at,
        "modifiedAt": endpoint.modified_at,
        "why": why_not_in_service(endpoint, waits_for),
    }


def waiting_replica(endpoint: HostedEndpoint) -> Replica | None:
    """The first replica that has not answered yet, of an endpoint that is on its way."""
    starting = (replica for replica in endpoint.replicas if replica.state is ReplicaState.STARTING)
    return next(starting, None)


def why_not_in_service(endpoint: HostedEndpoint, waits_for: str | None) -> str | None:
    """What an endpoint waits for, or why its last change failed; None when all is well."""
    last = endpoint.setbacks[-1] if endpoint.setbacks else None
    if endpoint.state in (EndpointState.CREATING, EndpointState.UPDATING):
        if waits_for is not None:
            return f"a replica waits for a place: {waits_for}"
        if last is not None:
            return (
                f"{last.failures} replicas of {last.variant} have failed, the last one because {last.reason}"
            )
        return "replicas are starting, or are watched before the next step"
    if endpoint.state is EndpointState.DELETING:
        return "replicas finish their last requests"
    if endpoint.failure_reason is not None:
        return endpoint.failure_reason
    return f"a replica of {last.variant} failed: {last.reason}" if last is not None else None


def _variants(endpoint: HostedEndpoint, generation: Generation) -> list[Answer]:
    ready = [
        replica.variant
        for replica in endpoint.replicas
        if replica.generation == generation.number and replica.state is ReplicaState.READY
    ]
    return [
        {
            "name": variant.name,
            "config": generation.config,
            "model": variant.model,
            "instanceType": variant.instance_type,
            "weight": variant.weight,
            "ready": ready.count(variant.name),
            "wanted": variant.count,
            "gpus": variant.container.resources.gpus,
            "note": variant.note,
        }
        for variant in generation.variants
    ]


def _replica(replica: Replica) -> Answer:
    return {
        "jobId": replica.id,
        "variant": replica.variant,
        "state": replica.state.value,
        "port": replica.port,
        "createdAt": replica.created_at,
        "readyAt": replica.ready_at,
    }
