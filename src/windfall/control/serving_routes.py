"""Where the requests of endpoints go, worked out from the state: what the usher is told.

Decides which endpoints and replicas are in the table, and with which weights. Must not know how the table is written,
nor how a request travels.
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.control.replicas import address_of
from windfall.control.state import State
from windfall.hosting.endpoint import EndpointState, HostedEndpoint, Replica, ReplicaState, Variant
from windfall.hosting.routes import EndpointRoute, ReplicaRoute, VariantRoute
from windfall.hosting.sizing import traffic
from windfall.jobs.ids import AttemptToken
from windfall.jobs.states import RUNNING
from windfall.jobs.tenants import split_name

#: Stands between the name of a variant and the number of a generation that gets a part of its requests.
PART_SIGN = "+"
#: Also one that is being created, so that the usher knows it before anybody hears that it is in service.
_ROUTED = (
    EndpointState.CREATING,
    EndpointState.IN_SERVICE,
    EndpointState.UPDATING,
    EndpointState.ROLLING_BACK,
)


def routes_of(state: State) -> tuple[EndpointRoute, ...]:
    """All endpoints that take requests, by their kept names."""
    return tuple(
        _endpoint_route(state, endpoint)
        for _, endpoint in sorted(state.endpoints.items())
        if endpoint.state in _ROUTED
    )


def running_attempt(state: State, replica: Replica) -> tuple[AttemptToken, str] | None:
    """The attempt of a replica whose process runs, and the address of its machine."""
    job = state.jobs.get(replica.id)
    attempt = None if job is None or job.state is not RUNNING else job.attempt
    if attempt is None:
        return None
    instance = state.instances.get(attempt.instance)
    machine = None if instance is None or instance.machine is None else state.machines.get(instance.machine)
    return attempt.token, address_of(machine)


def _endpoint_route(state: State, endpoint: HostedEndpoint) -> EndpointRoute:
    tenant, name = split_name(endpoint.name)
    _, _, _, region, account, _ = endpoint.arn.split(":", 5)
    log_group = f"arn:aws:logs:{region}:{account}:log-group"
    routes = tuple(_variant_routes(state, endpoint, log_group))
    return EndpointRoute(name, endpoint.arn, tenant, routes)


def _variant_routes(state: State, endpoint: HostedEndpoint, log_group: str) -> Iterator[VariantRoute]:
    """A route for each variant of each generation that gets requests; the usher tells variants apart by their names."""
    parts = {number: part for number, part in traffic(endpoint).items() if part > 0}
    for generation in endpoint.generations():
        if generation.number not in parts:
            continue
        is_second = generation.number != min(parts)
        for variant in generation.variants:
            name = f"{variant.name}{PART_SIGN}{generation.number}" if is_second else variant.name
            yield VariantRoute(
                name=name,
                weight=variant.weight * parts[generation.number],
                replicas=tuple(_replica_routes(state, endpoint, generation.number, variant)),
                # Requests that come too early wait for the first replica.
                holds=endpoint.state is EndpointState.CREATING,
                log_group_arn=f"{log_group}:{variant.container.log_group}",
            )


def _replica_routes(
    state: State, endpoint: HostedEndpoint, generation: int, variant: Variant
) -> Iterator[ReplicaRoute]:
    for replica in endpoint.replicas:
        if (replica.generation, replica.variant) != (generation, variant.name):
            continue
        if replica.state not in (ReplicaState.READY, ReplicaState.DRAINING):
            continue
        if (running := running_attempt(state, replica)) is not None:
            draining = replica.state is ReplicaState.DRAINING
            stream = f"{variant.name}/{running[0]}"
            yield ReplicaRoute(running[0], running[1], replica.port, draining, stream)
