"""A fresh world of log files for each test."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.logs.log_world import World


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)
