"""Every live job can say why it is where it is, in words that fit its state."""

from __future__ import annotations

import pytest

from tests.builders import HOST, a_busy_world, a_job
from windfall.capacity.machines import Offer
from windfall.control import events
from windfall.control.why import why
from windfall.jobs.ids import JobId
from windfall.jobs.states import PENDING, RUNNABLE, STARTING
from windfall.jobs.submitters import Submitter


@pytest.fixture
def world():
    return a_busy_world()


def asked(world, job_id):
    offers = {"environment": (Offer("host", world.machine.total, 1, HOST),)}
    return why(world.state, JobId(job_id), offers, world.now)


def codes(world, job_id):
    return [code for code, _ in asked(world, job_id).reasons]


@pytest.mark.parametrize("job_id", ["unknown", "first", "first:0", "a:9", "a:x"])
def test_what_is_not_live_has_no_answer(world, job_id):
    world.submits(a_job("a").array(2))
    assert asked(world, job_id) is None


def test_a_pending_job_names_what_it_waits_for(world):
    world.submits(a_job("a"), a_job("b").after("a"))
    world.happens(events.CancelJob(JobId("b"), "x"))
    answer = asked(world, "b")
    assert (answer.state, codes(world, "b")) == (PENDING, ["dependency", "cancelled"])
    assert answer.reasons[0][1] == "waits for job a to succeed, which is STARTING (name-of-a)"


def test_a_child_that_is_waited_for_is_named_with_its_state(world):
    world.places = False
    world.submits(a_job("a").array(2), a_job("b").after("a:1"))
    assert "a:1 to succeed, which is RUNNABLE" in asked(world, "b").reasons[0][1]


def test_a_job_that_waits_for_room_has_the_schedulers_reasons(world):
    world.submits(a_job("a").vcpus(64), a_job("b").vcpus(64))
    answer = asked(world, "b")
    assert answer.state is RUNNABLE
    assert answer.reasons
    assert all(code and text for code, text in answer.reasons)


def test_a_job_that_can_never_run_says_so_with_awss_reason(world):
    world.submits(a_job("a").gpus(4))
    answer = asked(world, "a")
    assert "ASKS_TOO_MUCH" in codes(world, "a")
    assert answer.aws_reason.startswith("MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT")


def test_an_attempt_says_where_it_is_and_what_it_does(world):
    world.submits(a_job("a").retried(3))
    assert codes(world, "a") == ["starting"]
    assert "attempt 1 of 3" in asked(world, "a").reasons[0][1]
    world.starts("a")
    assert codes(world, "a") == ["running"]
    world.happens(events.TerminateJob(JobId("a"), "x"))
    assert codes(world, "a") == ["stopping"]
    world.happens(events.AttemptProgressed(world.token("a"), world.now, "storing the last checkpoint"))
    assert asked(world, "a").reasons[0][1].endswith("; storing the last checkpoint")


def test_an_array_counts_its_children_and_a_child_at_rest_answers_for_itself(world):
    world.submits(a_job("a").array(3).vcpus(64))
    assert asked(world, "a").reasons[0] == ("array", "an array of 3: 2 RUNNABLE, 1 STARTING")
    resting = asked(world, "a:2")
    assert (resting.job_id, resting.state) == ("a:2", RUNNABLE)
    assert asked(world, "a:0").state is STARTING
    world.happens(events.CancelJob(JobId("a"), "x"))
    assert asked(world, "a:2") is None


def test_a_gated_array_says_what_its_children_wait_for(world):
    world.submits(a_job("a").array(2), a_job("b").array(2).after_each_of("a").one_by_one())
    texts = " / ".join(text for _, text in asked(world, "b").reasons)
    assert "same child of a (N_TO_N)" in texts
    assert "one before it (SEQUENTIAL)" in texts
    assert asked(world, "b:1").state is PENDING


def test_a_job_that_waits_for_room_is_told_who_holds_it_and_until_when(world):
    world.submits(a_job("long").vcpus(40), a_job("short").vcpus(20).limited_to(60), a_job("b").vcpus(64))
    world.starts("long").starts("short")
    held = [text for code, text in asked(world, "b").reasons if code == "held_by"]
    assert held[0].startswith("job long (name-of-long) holds 40 vCPUs, has run for ")
    assert held[0].endswith(" and has no time limit")
    assert held[1].startswith("job short (name-of-short) holds 20 vCPUs until ")
    assert held[1].endswith(" UTC at the latest")


def test_many_holders_are_counted_and_those_of_other_tenants_are_not_named(world):
    world.submits(*(a_job(f"j{n}").vcpus(10) for n in range(5)), a_job("b").vcpus(64))
    held = [text for code, text in asked(world, "b").reasons if code == "held_by"]
    assert held[-1] == "2 more jobs hold the rest"
    other = a_job("theirs").vcpus(10).by(Submitter(tenant="lab"))
    world = a_busy_world().submits(a_job("own").vcpus(30), other, a_job("b").vcpus(64))
    held = [text for code, text in asked(world, "b").reasons if code == "held_by"]
    assert [text.partition(" holds")[0] for text in held] == [
        "job own (name-of-own)",
        "1 more job of other tenants hold the rest",
    ]
    assert not any("theirs" in text for _, text in asked(world, "b").reasons)
