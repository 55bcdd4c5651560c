"""Daemons for acceptance tests: one that a module shares, and fresh ones for tests that kill things."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.gate import Gate, a_gate
from tests.conformance.conftest import postgres_server
from tests.s3_server import s3_server

__all__ = ["fresh", "gate", "postgres_server", "s3_server", "windfall"]

OPTIONS = ("--vcpus", "64", "--memory-mib", "262144", "--gpus", "simulated:8")


@pytest.fixture(scope="module")
def windfall() -> Iterator[RunningWindfall]:
    """A daemon that the tests of one module share; they use queues of their own names."""
    running = RunningWindfall(*OPTIONS)
    try:
        yield running.up()
    finally:
        running.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """What the jobs of a test may wait for."""
    with a_gate() as closed:
        yield closed


@pytest.fixture
def fresh() -> Iterator[Callable[..., RunningWindfall]]:
    """Starts daemons that belong to one test."""
    started: list[RunningWindfall] = []

    def start(*options: str) -> RunningWindfall:
        started.append(RunningWindfall(*(options or OPTIONS)))
        return started[-1].up()

    yield start
    for running in started:
        running.close()
