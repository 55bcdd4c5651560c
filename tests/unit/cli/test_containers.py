"""The container of a job or of an attempt, found in both forms of an answer."""

from __future__ import annotations

import pytest

from windfall.cli.containers import container_of

MAIN = {"name": "train", "exitCode": 3, "logStreamName": "d/train/1"}
HELPER = {"name": "router", "reason": "Not run"}


@pytest.mark.parametrize(
    ("described", "name"),
    [
        ({"container": MAIN, "ecsProperties": {"taskProperties": [{"containers": [HELPER]}]}}, "train"),
        ({"container": {}, "ecsProperties": {"taskProperties": [{"containers": [HELPER, MAIN]}]}}, "train"),
        ({"container": {}, "taskProperties": [{"containers": [HELPER, MAIN]}]}, "train"),
        (
            {
                "ecsProperties": {
                    "taskProperties": [{"containers": [{"name": "a", "essential": False}, {"name": "b"}]}]
                }
            },
            "b",
        ),
        ({}, None),
        ({"container": {}, "ecsProperties": {"taskProperties": []}}, None),
    ],
)
def test_the_container_that_runs_is_found(described, name):
    assert container_of(described).get("name") == name
