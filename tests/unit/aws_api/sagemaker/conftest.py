"""A fresh world for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.aws_api.sagemaker.world import World


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()
