"""Which variant and which replica a request goes to, and who waits.

Decides by weights among variants, by least outstanding requests among replicas, and first come, first served among
those that wait. Pure state: `now` is an argument, and nothing here opens a connection or reads a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

from windfall.hosting.routes import EndpointRoute, ReplicaRoute, RouteTable, VariantRoute
from windfall.hosting.traffic import EndpointTraffic, VariantTraffic
from windfall.usher.counters import ReplicaCounters

Waiting = TypeVar("Waiting")

#: For how long a replica that could not be reached gets no request: at first, and after many failures.
DOWN_FIRST_S = 0.25
DOWN_MOST_S = 5.0


class LiveReplica:
    """One replica and what it has at the moment."""

    __slots__ = ("route", "in_flight", "counters", "gone", "_down_until", "_down_s")

    def __init__(self, route: ReplicaRoute) -> None:
        self.route = route
        self.in_flight = 0
        self.counters = ReplicaCounters()
        #: It has left the table.
        self.gone = False
        self._down_until = 0.0
        self._down_s = DOWN_FIRST_S

    def is_down(self, now: float) -> bool:
        """Whether it is spared for a moment because it could not be reached."""
        return now < self._down_until

    def failed(self, now: float) -> None:
        """It could not be reached, or broke off: others are tried first, ever longer."""
        if now >= self._down_until:
            self._down_until = now + self._down_s
            self._down_s = min(DOWN_MOST_S, self._down_s * 2)

    def answered(self) -> None:
        """It works."""
        if self._down_until:
            self._down_until, self._down_s = 0.0, DOWN_FIRST_S


class LiveVariant(Generic[Waiting]):
    """One variant: its replicas, those that left but still answer, and the requests that wait."""

    __slots__ = (
        "route",
        "replicas",
        "leaving",
        "waiting",
        "served",
        "copies",
        "copies_dropped",
        "throttled",
        "unavailable",
    )

    def __init__(self, route: VariantRoute) -> None:
        self.route = route
        self.replicas: list[LiveReplica] = []
        self.leaving: list[LiveReplica] = []
        self.waiting: deque[Waiting] = deque()
        #: How much of its weight a variant has had; the lowest is next.
        self.served = 0.0
        #: Of a shadow variant: what is due of the next copy, and how many were dropped.
        self.copies = 0.0
        self.copies_dropped = self.throttled = self.unavailable = 0

    def pick(self, now: float, tried: Collection[str] = ()) -> LiveReplica | None:
        """The replica with the fewest requests that takes another one; None if there is none now."""
        best: LiveReplica | None = None
        limit = self.route.concurrency_per_replica
        for replica in self.replicas:
            if replica.in_flight >= limit or replica.route.draining or replica.route.id in tried:
                continue
            if (best is None or replica.in_flight < best.in_flight) and not replica.is_down(now):
                best = replica
        if best is not None and len(self.replicas) > 1:
            # The next request sees the others first, so that replicas with equally few take turns.
            self.replicas.remove(best)
            self.replicas.append(best)
        return best

    def can_serve(self, now: float) -> bool:
        """Whether a request that comes now will get a replica, at once or after a while."""
        return self.route.holds or any(
            not replica.route.draining and not replica.is_down(now) for replica in self.replicas
        )

    def is_full(self) -> bool:
        """Whether no further request may wait."""
        return len(self.waiting) >= self.route.queue_limit

    def follow(self, route: VariantRoute) -> list[LiveReplica]:
        """Take over a newer route; returns the replicas that have left."""
        self.route = route
        present = {replica.route.id: replica for replica in self.replicas}
        present |= {replica.route.id: replica for replica in self.leaving}
        self.replicas, before = [], present
        for replica_route in route.replicas:
            replica = before.pop(replica_route.id, None) or LiveReplica(replica_route)
            replica.route, replica.gone = replica_route, False
            self.replicas.append(replica)
        self.leaving = [replica for replica in before.values() if replica.in_flight]
        for replica in before.values():
            replica.gone = True
        return list(before.values())


class LiveEndpoint(Generic[Waiting]):
    """One endpoint and its variants."""

    __slots__ = ("route", "variants", "invalid", "last_request_at", "_turn")

    def __init__(self, route: EndpointRoute) -> None:
        self.route = route
        self.variants: dict[str, LiveVariant[Waiting]] = {}
        self.invalid = 0
        self.last_request_at = 0
        self._turn = 0.0

    def choose(self, now: float) -> LiveVariant[Waiting] | None:
        """The variant whose turn it is by the weights; one that cannot serve loses its turn to the others."""
        best: LiveVariant[Waiting] | None = None
        fallback: LiveVariant[Waiting] | None = None
        for variant in self.variants.values():
            if variant.route.shadow or variant.route.weight <= 0:
                continue
            if variant.can_serve(now):
                if best is None or variant.served < best.served:
                    best = variant
                continue
            # Its turns are lost: it must not get all requests when it is back.
            variant.served = max(variant.served, self._turn)
            fallback = fallback or variant
        if best is not None:
            self._turn = best.served
            best.served += 1.0 / best.route.weight
        return best or fallback

    def copies(self) -> Iterator[LiveVariant[Waiting]]:
        """The shadow variants that get a copy of this request."""
        for variant in self.variants.values():
            if variant.route.shadow:
                variant.copies += min(1.0, variant.route.weight)
                if variant.copies >= 1.0:
                    variant.copies -= 1.0
                    yield variant

    def follow(self, route: EndpointRoute) -> tuple[list[LiveReplica], list[LiveVariant[Waiting]]]:
        """Take over a newer route; returns the replicas and the variants that have left."""
        weights = {name: variant.route.weight for name, variant in self.variants.items()}
        self.route = route
        before, self.variants = self.variants, {}
        left: list[LiveReplica] = []
        for variant_route in route.variants:
            variant = before.pop(variant_route.name, None) or LiveVariant(variant_route)
            left += variant.follow(variant_route)
            self.variants[variant_route.name] = variant
        if weights != {name: variant.route.weight for name, variant in self.variants.items()}:
            # Turns are counted by weight: with other weights, or one variant more, all begin anew.
            for variant in self.variants.values():
                variant.served = self._turn = 0.0
        for variant in before.values():
            left += variant.replicas
        return left, list(before.values())


class Balance(Generic[Waiting]):
    """All endpoints of the table in use, by tenant and name."""

    def __init__(self) -> None:
        self._endpoints: dict[tuple[str, str], LiveEndpoint[Waiting]] = {}

    def find(self, tenant: str, name: str) -> LiveEndpoint[Waiting] | None:
        """The endpoint as its tenant sees it."""
        return self._endpoints.get((tenant, name))

    def __iter__(self) -> Iterator[LiveEndpoint[Waiting]]:
        return iter(self._endpoints.values())

    def follow(self, table: RouteTable) -> tuple[list[LiveReplica], list[LiveVariant[Waiting]]]:
        """Take over a newer table; returns the replicas and variants that have left."""
        before, self._endpoints = self._endpoints, {}
        replicas: list[LiveReplica] = []
        variants: list[LiveVariant[Waiting]] = []
        for route in table.endpoints:
            key = (route.tenant, route.name)
            endpoint = before.pop(key, None) or LiveEndpoint(route)
            left = endpoint.follow(route)
            replicas += left[0]
            variants += left[1]
            self._endpoints[key] = endpoint
        for endpoint in before.values():
            for variant in endpoint.variants.values():
                replicas += variant.replicas
                variants.append(variant)
        for replica in replicas:
            replica.gone = True
        return replicas, variants


def endpoint_traffic(endpoint: LiveEndpoint[Waiting]) -> EndpointTraffic:
    """What was counted for an endpoint."""
    return EndpointTraffic(
        endpoint.route.name,
        endpoint.route.tenant,
        endpoint.invalid,
        endpoint.last_request_at,
        tuple(
            VariantTraffic(
                name=variant.route.name,
                waiting=len(variant.waiting),
                throttled=variant.throttled,
                unavailable=variant.unavailable,
                copies_dropped=variant.copies_dropped,
                replicas=tuple(
                    replica.counters.traffic(replica.route.id, replica.in_flight)
                    for replica in (*variant.replicas, *variant.leaving)
                ),
            )
            for variant in endpoint.variants.values()
        ),
    )
