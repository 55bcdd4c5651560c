"""How many replicas each variant should have at a moment of a deployment, and which part of the requests each gets.

Pure sums over an endpoint as it stands. Must not know how replicas come and go.
"""

from __future__ import annotations

from math import ceil

from windfall.hosting.endpoint import (
    Deployment,
    EndpointState,
    Generation,
    HostedEndpoint,
    ReplicaState,
    RolloutKind,
    Variant,
)

_E, _R = EndpointState, ReplicaState


def wanted(endpoint: HostedEndpoint) -> dict[tuple[int, str], int]:
    """How many replicas each variant of each generation should have, by generation and variant."""
    if endpoint.state in (_E.FAILED, _E.DELETING):
        return {}
    deployment, serving = endpoint.deployment, endpoint.serving
    counts = {(serving.number, variant.name): variant.count for variant in serving.variants}
    if deployment is None or endpoint.state is _E.ROLLING_BACK:
        return counts
    target = deployment.target
    if deployment.rollout.kind is not RolloutKind.ROLLING:
        new = {(target.number, variant.name): variant.count for variant in target.variants}
        return new if deployment.retiring else {**counts, **new}
    if deployment.retiring:
        return {(target.number, variant.name): variant.count for variant in target.variants}
    return _rolling_counts(deployment, serving, target)


def traffic(endpoint: HostedEndpoint) -> dict[int, float]:
    """The part of the requests that each generation gets, by its number."""
    deployment = endpoint.deployment
    if deployment is None or endpoint.state is _E.ROLLING_BACK:
        return {endpoint.serving.number: 1.0}
    if deployment.rollout.kind is RolloutKind.ROLLING:
        # By the replicas that each has: old and new ones stand side by side.
        ready = {
            number: sum(
                replica.state is _R.READY and replica.generation == number for replica in endpoint.replicas
            )
            for number in (endpoint.serving.number, deployment.target.number)
        }
        total = sum(ready.values()) or 1
        return {number: count / total for number, count in ready.items()}
    return {endpoint.serving.number: 1.0 - deployment.part, deployment.target.number: deployment.part}


def _rolling_counts(
    deployment: Deployment, serving: Generation, target: Generation
) -> dict[tuple[int, str], int]:
    """Old and new replicas of each variant while one batch is on its way."""
    counts = {}
    for variant in target.variants:
        coming = _turned(variant, deployment.part + deployment.rollout.part)
        counts[target.number, variant.name] = coming
    for variant in serving.variants:
        leaving = deployment.part + (deployment.rollout.part if deployment.makes_room else 0.0)
        counts[serving.number, variant.name] = max(0, variant.count - _turned(variant, leaving))
    return counts


def _turned(variant: Variant, part: float) -> int:
    # The smallest difference must not make one replica more of a third and two thirds.
    return min(variant.count, ceil(variant.count * part - 1e-9))
