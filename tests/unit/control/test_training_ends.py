"""Why training jobs are over, as causes; the words for them are the wire's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TestWorld, a_machine, a_world
from tests.unit.control.trainings import a_training
from windfall.accounting.prices import Rates
from windfall.control import events
from windfall.control.aws_texts import PlainTexts
from windfall.control.training_ends import TrainingEnd, end_of, lacked_capacity
from windfall.jobs.attempts import StopCause
from windfall.jobs.ids import JobId
from windfall.jobs.states import FAILED

ID = "training-t"


@pytest.fixture
def world() -> TestWorld:
    return a_world(a_machine(4), rates=Rates(usd_vcpu_hour=36.0, spot_factor=1.0))


def running(world: TestWorld, **wanted) -> TestWorld:
    world.happens(a_training("t", **wanted))
    return world.ready().starts(ID)


@pytest.mark.parametrize(
    ("wanted", "end"),
    [
        ({"run_s": 10}, TrainingEnd.RUN_TIME),
        ({"wait_s": 10}, TrainingEnd.WAIT_TIME),
        ({"tags": {"windfall:budget-usd": "0.1"}}, TrainingEnd.BUDGET),
    ],
)
def test_a_limit_that_stops_a_running_job_is_the_cause(world, wanted, end):
    running(world, **wanted).later(10_000).exits(ID, 143)
    assert end_of(world.job(ID)) is end
    assert not lacked_capacity(world.job(ID))


@pytest.mark.parametrize(
    ("wanted", "end"),
    [({"wait_s": 10}, TrainingEnd.WAIT_TIME), ({"pending_s": 10}, TrainingEnd.PENDING_TIME)],
)
def test_a_limit_that_ends_a_waiting_job_is_the_cause_and_it_lacked_capacity(world, wanted, end):
    world.happens(a_training("t", gpus=9, **wanted))
    world.later(10_000)
    assert end_of(world.job(ID)) is end
    assert lacked_capacity(world.job(ID))


def test_a_limit_that_was_reached_between_two_tries_is_the_cause(world):
    running(world, run_s=10)
    world.now += 11_000
    world.happens(events.AttemptLost(world.token(ID), world.now))
    assert (world.job(ID).attempts[-1].stop_cause, end_of(world.job(ID))) == (None, TrainingEnd.RUN_TIME)


@pytest.mark.parametrize(("code", "end"), [(0, TrainingEnd.COMPLETED), (3, TrainingEnd.FAULT)])
def test_what_ends_by_itself_has_done_its_work_or_failed(world, code, end):
    running(world).exits(ID, code)
    assert end_of(world.job(ID)) is end


def test_one_that_is_stopped_while_it_waits_lacked_capacity(world):
    world.happens(a_training("t", gpus=9))
    world.happens(events.TerminateJob(JobId(ID), "enough"))
    assert (end_of(world.job(ID)), lacked_capacity(world.job(ID))) == (TrainingEnd.STOPPED, True)


def test_one_that_fails_without_a_machine_for_its_own_fault_did_not_lack_capacity(world):
    world.happens(a_training("t", gpus=9))
    job = replace(world.job(ID), state=FAILED, status_reason="no such engine")
    assert (end_of(job), lacked_capacity(job)) == (TrainingEnd.FAULT, False)


def test_the_core_has_plain_words_of_its_own(world):
    world.state.rules = replace(world.state.rules, aws_texts=PlainTexts())
    world.happens(a_training("t", gpus=9, pending_s=10))
    world.later(10_000)
    job = world.job(ID)
    assert job.status_reason == StopCause.PENDING_TIME.value
    assert PlainTexts().training_ended(job) == "FAILED: pending time exceeded"
    assert PlainTexts().training_refused("no") == PlainTexts().comparable("no") == "no"
