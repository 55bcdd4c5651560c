"""What a Ray cluster says, in the words of the fleet and the core."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windfall.engines.fleet.standing import Provider
from windfall.engines.ray.lines import Groups, LaunchableGroup, Launches, LaunchFailure, Node, NodesSeen
from windfall.engines.ray.translation import (
    DEADLINE_GRACE_MS,
    HEAD_GRACE_MS,
    LAUNCH_WITHIN_MS,
    RAYLET_GRACE_MS,
    HeldInstances,
    RayNodes,
    labels_of,
    provider_of,
    resources_of,
    selector_of,
)
from windfall.jobs.ids import InstanceId
from windfall.jobs.resources import Resources

NOW = 1_000_000


def a_node(key: str = "n1", ip: str = "10.0.0.2", **more: Any) -> Node:
    return msgspec.structs.replace(Node(id=key, ip=ip, cpus=4.0), **more)


def seen(*nodes: Node, **more: Any) -> NodesSeen:
    return NodesSeen(list(nodes), **more)


@pytest.mark.parametrize(
    ("node", "after_ms", "provider"),
    [
        (a_node(), 0, Provider.LISTED),
        (a_node(state="DRAINING"), 10**9, Provider.DRAINING),
        (a_node(state="DRAINING", deadline_ms=NOW), DEADLINE_GRACE_MS - 1, Provider.DRAINING),
        (a_node(state="DRAINING", deadline_ms=NOW), DEADLINE_GRACE_MS, Provider.GONE),
        (a_node(state="DEAD", death=1), 0, Provider.GONE),
        (a_node(state="DEAD", death=3), 0, Provider.GONE),
        (a_node(state="DEAD", death=4), 0, Provider.GONE),
        (a_node(state="DEAD", death=2), RAYLET_GRACE_MS - 1, Provider.SILENT),
        (a_node(state="DEAD", death=2), RAYLET_GRACE_MS, Provider.GONE),
        (a_node(state="UNKNOWN"), HEAD_GRACE_MS - 1, Provider.SILENT),
        (a_node(state="UNKNOWN"), HEAD_GRACE_MS, Provider.GONE),
    ],
)
def test_how_much_the_word_of_ray_weighs(node: Node, after_ms: int, provider: Provider):
    assert provider_of(node, NOW, NOW + after_ms) is provider


def test_a_node_that_joins_again_is_the_same_machine():
    cluster = RayNodes()
    cluster.on_nodes(seen(a_node("old"), all=True), NOW)
    cluster.on_nodes(seen(a_node("old", state="DEAD", death=2)), NOW)
    assert cluster.node_at("10.0.0.2") is None
    assert cluster.machines(NOW)["10.0.0.2"].provider is Provider.SILENT
    cluster.on_nodes(seen(a_node("new")), NOW)
    machine = cluster.machines(NOW)["10.0.0.2"]
    assert (machine.node, machine.provider, cluster.node_at("10.0.0.2")) == ("new", Provider.LISTED, "new")
    # What Ray still says about the dead one changes nothing.
    cluster.on_nodes(seen(a_node("old", state="DEAD", death=1)), NOW)
    assert cluster.machines(NOW)["10.0.0.2"].node == "new"


def test_a_drain_has_its_deadline_until_it_is_over():
    cluster = RayNodes()
    cluster.on_nodes(seen(a_node(state="DRAINING", deadline_ms=NOW + 5)), NOW)
    assert cluster.machines(NOW)["10.0.0.2"].deadline_at == NOW + 5
    assert cluster.machines(NOW + 5 + DEADLINE_GRACE_MS)["10.0.0.2"].deadline_at is None


def test_what_a_new_bridge_does_not_know_is_unknown_and_waited_for():
    cluster = RayNodes()
    cluster.on_nodes(seen(a_node("a"), a_node("b", "10.0.0.3"), all=True), NOW)
    cluster.on_nodes(seen(a_node("b", "10.0.0.3"), all=True), NOW + 1)
    assert cluster.machines(NOW + 1)["10.0.0.2"].provider is Provider.SILENT
    assert cluster.machines(NOW + 1 + HEAD_GRACE_MS)["10.0.0.2"].provider is Provider.GONE
    cluster.forget("10.0.0.2")
    assert "10.0.0.2" not in cluster.machines(NOW)


def test_the_time_of_a_death_is_that_of_the_first_word_about_it():
    cluster = RayNodes()
    dead = a_node(state="DEAD", death=2)
    cluster.on_nodes(seen(dead), NOW)
    cluster.on_nodes(seen(msgspec.structs.replace(dead, reason="missed checks")), NOW + RAYLET_GRACE_MS - 1)
    assert cluster.machines(NOW + RAYLET_GRACE_MS)["10.0.0.2"].provider is Provider.GONE


def test_a_node_without_cpus_takes_no_work():
    cluster = RayNodes()
    cluster.on_nodes(seen(a_node(cpus=0.0)), NOW)
    assert cluster.machines(NOW) == {}


def test_labels_name_the_type_and_leave_out_what_cannot_be_one():
    ray = {
        "ray.io/node-id": "ff",
        "ray.io/market-type": "spot",
        "windfall/type": "g4dn.xlarge",
        "Odd Key": "x",
    }
    assert labels_of(ray, "workers") == {
        "type": "g4dn.xlarge",
        "ray.io/market-type": "spot",
        "windfall/type": "g4dn.xlarge",
    }
    assert labels_of({}, "workers") == {"type": "workers"}
    assert labels_of({}, "") == {}
    assert len(labels_of({f"key{number}": "v" for number in range(100)}, "workers")) == 32


def test_only_nodes_of_groups_that_are_scaled_are_launched():
    cluster = RayNodes()
    cluster.on_groups(Groups([LaunchableGroup(name="gpu", cpus=4.0)]))
    cluster.on_nodes(seen(a_node("a", group="gpu"), a_node("b", "10.0.0.3", group="other")), NOW)
    machines = cluster.machines(NOW)
    assert [cluster.is_launched(machines[name]) for name in ("10.0.0.2", "10.0.0.3")] == [True, False]


def test_a_group_is_offered_only_where_its_size_is_said():
    assert resources_of(LaunchableGroup(name="gpu", cpus=4.0, gpus=1.0, memory_bytes=8 << 30)) == Resources(
        4, 8192, 1
    )
    assert resources_of(LaunchableGroup(name="gpu", cpus=4.0)) is None
    assert selector_of(LaunchableGroup(name="gpu")) == {"ray.io/node-group": "gpu"}
    assert selector_of(LaunchableGroup(name="gpu", labels={"windfall/type": "g5"})) == {"windfall/type": "g5"}


def test_each_new_failure_ends_the_wait_of_the_oldest_of_its_group():
    held = HeldInstances()
    earlier = LaunchFailure("gpu", 5, "")
    assert held.failed(Launches(failed=[earlier])) == []
    held.want(InstanceId("i-2"), "gpu", NOW + 1)
    held.want(InstanceId("i-1"), "gpu", NOW)
    held.want(InstanceId("i-3"), "cpu", NOW)
    held.want(InstanceId("i-0"), "gpu", 0)
    held.got(InstanceId("i-0"), "n1")
    assert held.failed(Launches(failed=[earlier])) == []
    ends = held.failed(Launches(failed=[earlier, LaunchFailure("gpu", 9, "no quota\nat all")]))
    assert [instance for instance, _ in ends] == ["i-1"]
    assert ends[0][1].startswith("InsufficientInstanceCapacity: ")
    assert "no quota at all" in ends[0][1]
    two = [LaunchFailure("gpu", 10, ""), LaunchFailure("gpu", 11, "")]
    assert sorted(instance for instance, _ in held.failed(Launches(failed=two))) == ["i-1", "i-2"]


def test_a_launch_that_brings_nothing_for_ten_minutes_has_failed():
    held = HeldInstances()
    held.want(InstanceId("i-1"), "gpu", NOW)
    held.want(InstanceId("i-2"), "gpu", NOW)
    held.got(InstanceId("i-2"), "n1")
    assert held.overdue(NOW + LAUNCH_WITHIN_MS - 1) == []
    assert [instance for instance, _ in held.overdue(NOW + LAUNCH_WITHIN_MS)] == ["i-1"]
