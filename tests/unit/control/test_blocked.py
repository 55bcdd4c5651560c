"""The head of a queue that cannot start carries AWS's own reason, as long as it is so."""

from __future__ import annotations

import pytest

from tests.builders import a_busy_world, a_job
from windfall.control import events
from windfall.jobs.ids import EnvironmentName

TOO_LARGE = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT"


@pytest.fixture
def world():
    return a_busy_world()


def test_a_job_that_never_fits_says_so_in_aws_words(world):
    world.submits(a_job("large").gpus(99), a_job("behind").gpus(99))
    world.later(6_000)
    assert world.store.jobs["large"].status_reason.startswith(TOO_LARGE)
    assert world.store.jobs["behind"].status_reason is None, "only the head is told"


def test_the_next_head_is_told_when_the_first_is_gone(world):
    world.submits(a_job("large").gpus(99), a_job("behind").gpus(99))
    world.later(6_000)
    world.happens(events.CancelJob("large", "no"))
    world.later(6_000)
    assert world.store.jobs["large"].status_reason == "no"
    assert world.store.jobs["behind"].status_reason.startswith(TOO_LARGE)


def test_the_reason_goes_when_it_is_no_longer_true(world):
    [environment] = world.state.environments.values()
    world.happens(events.UpdateComputeEnvironment(EnvironmentName(environment.name), max_vcpus=0))
    world.submits(a_job("small"))
    world.later(6_000)
    assert world.store.jobs["small"].status_reason.startswith("MISCONFIGURATION:")
    world.happens(events.UpdateComputeEnvironment(EnvironmentName(environment.name), max_vcpus=64))
    world.later(6_000)
    assert world.store.jobs["small"].status_reason is None
    assert not world.state.blocked


def test_a_restarted_daemon_still_takes_the_reason_away(world):
    world.submits(a_job("large").gpus(99))
    world.later(6_000)
    world.restarted()
    assert world.state.blocked == {"large": world.store.jobs["large"].status_reason}
