"""The nodes of a multi-node job: which ranges a definition may have, and what a submission makes of them."""

from __future__ import annotations

import pytest

from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, NodePlan, NodeRange
from windfall.jobs.errors import Invalid, MissingParameter
from windfall.jobs.nodes import GroupOverrides, NodeOverrides, check_plan, resolved
from windfall.jobs.resources import Resources


def a_range(first: int, last: int | None, image: str = "image", **more) -> NodeRange:
    return NodeRange(first, last, ContainerSpec(image, Resources(1, 512), ("run",)), **more)


def images(nodes) -> list[str]:
    return [nodes.group(number).container.image for number in range(nodes.count)]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (NodePlan(0, 0, (a_range(0, None),)), "numNodes must be between 1 and 1000, got 0"),
        (NodePlan(1001, 0, (a_range(0, None),)), "numNodes must be between 1 and 1000, got 1001"),
        (NodePlan(2, 2, (a_range(0, None),)), "mainNode must be between 0 and 1, got 2"),
        (NodePlan(2, 0, ()), "1 to 5 node ranges, got 0"),
        (NodePlan(6, 0, tuple(a_range(n, n) for n in range(6))), "1 to 5 node ranges, got 6"),
        (NodePlan(3, 0, (a_range(0, 1),)), r"all nodes \(0:2\); node 2 is in none"),
        (NodePlan(3, 0, (a_range(0, 3),)), "0:3 is not within 0:2"),
        (NodePlan(3, 0, (a_range(2, 1), a_range(0, None))), "2:1 is not within 0:2"),
        (NodePlan(4, 0, (a_range(0, 2), a_range(1, 3))), "0:2 and 1:3 overlap"),
        (NodePlan(4, 0, (a_range(0, None), a_range(0, 3))), "0:3 and 0:3 overlap"),
    ],
)
def test_ranges_that_leave_it_open_what_a_node_runs_are_refused(plan, said):
    with pytest.raises(Invalid, match=said):
        check_plan(plan)


def test_the_smaller_range_speaks_for_a_node_in_whatever_order_they_come():
    for ranges in (
        (a_range(0, None, "all"), a_range(1, 2, "some")),
        (a_range(1, 2, "some"), a_range(0, None, "all")),
    ):
        plan = NodePlan(4, 0, ranges)
        check_plan(plan)
        assert images(resolved(plan, None, {})) == ["all", "some", "some", "all"]


def test_an_open_range_grows_and_shrinks_with_the_number_of_nodes():
    plan = NodePlan(4, 0, (a_range(0, 0, "main"), a_range(1, None, "rest")))
    assert images(resolved(plan, NodeOverrides(2), {})) == ["main", "rest"]
    assert len(images(resolved(plan, NodeOverrides(1000), {}))) == 1000


@pytest.mark.parametrize(
    ("plan", "count", "said"),
    [
        (NodePlan(3, 0, (a_range(0, 2),)), 4, "open end"),
        (NodePlan(3, 2, (a_range(0, None),)), 2, "above the main node's index 2, got 2"),
        (NodePlan(3, 0, (a_range(0, 1), a_range(2, None))), 2, "begins below 2"),
        (NodePlan(5, 0, (a_range(0, None), a_range(1, 3))), 3, "1:3 of the job definition is not within 0:2"),
        (NodePlan(3, 0, (a_range(0, None),)), 1001, "between 1 and 1000"),
    ],
)
def test_numbers_of_nodes_that_the_ranges_do_not_allow_are_refused(plan, count, said):
    with pytest.raises(Invalid, match=said):
        resolved(plan, NodeOverrides(count), {})


def test_overrides_must_name_a_range_of_the_definition():
    plan = NodePlan(4, 0, (a_range(0, 0), a_range(1, None)))
    with pytest.raises(Invalid) as refused:
        resolved(plan, NodeOverrides(groups=(GroupOverrides(0, 1),)), {})
    assert (
        str(refused.value) == "NodeOverride targets should match job definition. Non matching targets - 0:1"
    )
    with pytest.raises(Invalid, match="once"):
        resolved(plan, NodeOverrides(groups=(GroupOverrides(1, None), GroupOverrides(1, 3))), {})


def test_overrides_change_their_range_alone_and_references_are_replaced():
    plan = NodePlan(
        2, 0, (a_range(0, 0), a_range(1, None, instance_type="m5.large", consumables=(("t", 1),)))
    )
    change = ContainerOverrides(("say", "Ref::word"), {"A": "1"}, vcpus=3)
    groups = (GroupOverrides(1, None, change, "m5.xlarge", (("t", 2),)),)
    nodes = resolved(plan, NodeOverrides(groups=groups), {"word": "hello"})
    assert nodes.group(0).container == plan.ranges[0].container
    other = nodes.group(1)
    assert (other.container.command, other.container.environment) == (("say", "hello"), {"A": "1"})
    assert (other.container.resources, other.instance_type) == (Resources(3, 512), "m5.xlarge")
    assert nodes.consumables == (("t", 2),)
    with pytest.raises(MissingParameter):
        resolved(plan, NodeOverrides(groups=groups), {})


def test_the_tokens_of_all_nodes_are_added_up():
    ranges = (a_range(0, None, consumables=(("a", 1), ("b", 2))), a_range(2, 3, consumables=(("a", 5),)))
    assert resolved(NodePlan(4, 0, ranges), None, {}).consumables == (("a", 12), ("b", 4))
