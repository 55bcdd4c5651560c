"""Which replica a request goes to: by weights, by least outstanding requests, and never to one that is leaving."""

from __future__ import annotations

from collections import Counter
from typing import Any

from windfall.hosting.routes import EndpointRoute, ReplicaRoute, RouteTable, VariantRoute
from windfall.usher.balance import DOWN_FIRST_S, Balance, LiveEndpoint


def a_replica(name: str, **more: Any) -> ReplicaRoute:
    return ReplicaRoute(name, "127.0.0.1", 8080, **more)


def a_variant(name: str, weight: float, *replicas: ReplicaRoute, **more: Any) -> VariantRoute:
    return VariantRoute(name=name, weight=weight, replicas=replicas, **more)


def an_endpoint(*variants: VariantRoute) -> LiveEndpoint[str]:
    balance: Balance[str] = Balance()
    balance.follow(RouteTable(1, (EndpointRoute("e", "arn", "t", variants),)))
    endpoint = balance.find("t", "e")
    assert endpoint is not None
    return endpoint


def chosen(endpoint: LiveEndpoint[str], number: int, now: float = 0.0) -> Counter[str]:
    names: Counter[str] = Counter()
    for _ in range(number):
        variant = endpoint.choose(now)
        assert variant is not None
        names[variant.route.name] += 1
    return names


def test_variants_get_their_weights_exactly() -> None:
    endpoint = an_endpoint(a_variant("a", 3.0, a_replica("1")), a_variant("b", 1.0, a_replica("2")))
    assert chosen(endpoint, 400) == {"a": 300, "b": 100}


def test_a_variant_without_weight_or_in_the_shadow_gets_nothing_by_itself() -> None:
    endpoint = an_endpoint(
        a_variant("a", 1.0, a_replica("1")),
        a_variant("none", 0.0, a_replica("2")),
        a_variant("shadow", 1.0, a_replica("3"), shadow=True),
    )
    assert chosen(endpoint, 10) == {"a": 10}


def test_shadows_get_copies_of_their_part() -> None:
    endpoint = an_endpoint(a_variant("s", 0.25, a_replica("1"), shadow=True))
    assert sum(len(list(endpoint.copies())) for _ in range(100)) == 25


def test_a_variant_that_cannot_serve_loses_its_turns_and_does_not_get_them_back_at_once() -> None:
    endpoint = an_endpoint(a_variant("a", 1.0, a_replica("1")), a_variant("b", 1.0, a_replica("2")))
    endpoint.variants["b"].replicas[0].failed(0.0)
    assert chosen(endpoint, 100) == {"a": 100}
    after = chosen(endpoint, 10, now=DOWN_FIRST_S)
    assert after["a"] in (4, 5, 6)


def test_where_no_variant_can_serve_one_is_named_in_the_refusal() -> None:
    variant = an_endpoint(a_variant("a", 1.0)).choose(0.0)
    assert variant is not None
    assert not variant.can_serve(0.0)


def test_the_replica_with_the_fewest_requests_is_next_and_equals_take_turns() -> None:
    variant = an_endpoint(a_variant("a", 1.0, *(a_replica(n) for n in "123"))).variants["a"]
    order = []
    for _ in range(6):
        replica = variant.pick(0.0)
        assert replica is not None
        replica.in_flight += 1
        order.append(replica.route.id)
    assert order == ["1", "2", "3", "1", "2", "3"]
    variant.replicas[1].in_flight = 0
    replica = variant.pick(0.0)
    assert replica is not None
    assert replica.in_flight == 0


def test_draining_tried_busy_and_unreachable_replicas_get_nothing() -> None:
    replicas = (a_replica("draining", draining=True), *(a_replica(n) for n in ("tried", "busy", "down")))
    variant = an_endpoint(a_variant("a", 1.0, *replicas, concurrency_per_replica=2)).variants["a"]
    by_name = {replica.route.id: replica for replica in variant.replicas}
    by_name["busy"].in_flight = 2
    by_name["down"].failed(10.0)
    assert variant.pick(10.0, {"tried"}) is None
    again = variant.pick(10.0 + DOWN_FIRST_S, {"tried"})
    assert again is by_name["down"]


def test_a_replica_that_fails_again_and_again_is_spared_ever_longer_until_it_answers() -> None:
    replica = an_endpoint(a_variant("a", 1.0, a_replica("1"))).variants["a"].replicas[0]
    replica.failed(0.0)
    replica.failed(0.0)  # A second request that failed at the same moment says nothing new.
    assert not replica.is_down(DOWN_FIRST_S)
    replica.failed(DOWN_FIRST_S)
    assert replica.is_down(2 * DOWN_FIRST_S)
    replica.answered()
    assert not replica.is_down(DOWN_FIRST_S)


def test_a_new_table_keeps_counts_and_what_is_under_way() -> None:
    balance: Balance[str] = Balance()
    routes = a_variant("a", 1.0, a_replica("1"), a_replica("2"))
    balance.follow(RouteTable(1, (EndpointRoute("e", "arn", "t", (routes,)),)))
    endpoint = balance.find("t", "e")
    assert endpoint is not None
    one, two = endpoint.variants["a"].replicas
    one.in_flight = 1
    left, _ = balance.follow(
        RouteTable(2, (EndpointRoute("e", "arn", "t", (a_variant("a", 1.0, a_replica("3")),)),))
    )
    assert balance.find("t", "e") is endpoint
    assert set(left) == {one, two}
    assert one.gone
    assert two.gone
    assert endpoint.variants["a"].leaving == [one]
    back = a_variant("a", 1.0, a_replica("1"))
    balance.follow(RouteTable(3, (EndpointRoute("e", "arn", "t", (back,)),)))
    assert endpoint.variants["a"].replicas == [one]
    assert not one.gone


def test_an_endpoint_exists_for_its_tenant_alone() -> None:
    balance: Balance[str] = Balance()
    balance.follow(RouteTable(1, (EndpointRoute("e", "arn", "t", ()),)))
    assert balance.find("other", "e") is None
    _, variants = balance.follow(RouteTable(2))
    assert balance.find("t", "e") is None
    assert variants == []
