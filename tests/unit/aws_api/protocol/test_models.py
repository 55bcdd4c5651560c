"""Models that describe only what is served: the same for that, routes alone for the rest."""

from __future__ import annotations

from typing import Any

import pytest

from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.routing import router_for

SERVED = {
    "batch": ("SubmitJob", "DescribeJobs"),
    "sagemaker": ("CreateTrainingJob", "DescribeTrainingJob"),
    "logs": ("GetLogEvents",),
    "cloudwatch": ("GetMetricData",),
    "scheduler": ("CreateSchedule",),
    "sts": ("GetCallerIdentity",),
}


@pytest.mark.parametrize("name", SERVED)
def test_what_is_described_is_described_in_full(name: str) -> None:
    lean, full = load_service_model(name, SERVED[name]), load_service_model(name)
    for operation in SERVED[name]:
        mine, theirs = lean.operation_model(operation), full.operation_model(operation)
        for part in ("input_shape", "output_shape"):
            seen = _told(getattr(mine, part), {})
            assert seen == _told(getattr(theirs, part), {})
            assert seen or getattr(theirs, part) is None
        assert [it.name for it in mine.error_shapes] == [it.name for it in theirs.error_shapes]


def test_the_others_have_names_and_routes() -> None:
    lean, full = load_service_model("batch", ("SubmitJob",)), load_service_model("batch")
    assert lean.operation_names == full.operation_names
    assert {name: lean.operation_model(name).http for name in lean.operation_names} == {
        name: full.operation_model(name).http for name in full.operation_names
    }
    assert router_for(lean) is not None
    assert lean.operation_model("DescribeJobs").input_shape is None
    assert len(lean.shape_names) < len(full.shape_names) / 2


def test_nothing_described_leaves_no_shapes() -> None:
    assert list(load_service_model("batch", ()).shape_names) == []


def _told(shape: Any, seen: dict[str, Any]) -> dict[str, Any]:
    """Everything that a model says of a shape and of those that it is made of."""
    if shape is None or shape.name in seen:
        return seen
    seen[shape.name] = (shape.type_name, dict(shape.metadata), list(getattr(shape, "members", ())))
    below = list(shape.members.values()) if shape.type_name == "structure" else []
    below += [getattr(shape, part) for part in ("member", "key", "value") if hasattr(shape, part)]
    for one in below:
        _told(one, seen)
    return seen
