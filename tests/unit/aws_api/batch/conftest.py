"""A fresh world for every test."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.batch.fakes import World


@pytest.fixture
def world() -> World:
    return World()
