"""What follows from an end: whole jobs, SEQUENTIAL, N_TO_N, a child, and mixtures of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import START, a_busy_world, a_job
from windfall.control import events
from windfall.control.events import FinishedJob
from windfall.jobs.arrays import ChildTable
from windfall.jobs.aws_texts import CHILD_FAILED, DEPENDENCY_FAILED
from windfall.jobs.dependencies import Dependency, DependencyType
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import JobId
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, RUNNING, STARTING, SUCCEEDED


@pytest.fixture
def world():
    return a_busy_world()


def test_a_job_waits_until_all_its_dependencies_have_succeeded(world):
    world.submits(a_job("a"), a_job("b"), a_job("c").after("a", "b"))
    assert world.state_of("c") is PENDING
    world.exits("a")
    assert world.state_of("c") is PENDING
    world.exits("b")
    assert world.state_of("c") is STARTING


def test_a_failed_dependency_fails_what_waits_for_it(world):
    world.submits(a_job("a"), a_job("b").after("a"), a_job("c").after("b"))
    world.exits("a", 1)
    assert [world.job(j).status_reason for j in "bc"] == [DEPENDENCY_FAILED] * 2
    assert [world.state_of(j) for j in "abc"] == [FAILED] * 3
    assert not world.state.jobs
    assert not world.state.waits
    assert not world.state.dependents


@pytest.mark.parametrize(("code", "expected"), [(0, STARTING), (1, FAILED)])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_plain_job_that_calls_its_dependency_sequential_waits_for_it(world, code, expected, restarted):
    world.submits(a_job("a"))
    named = Dependency(JobId("a"), DependencyType.SEQUENTIAL)
    world.happens(replace(a_job("b").command, depends_on=(named,)))
    if restarted:
        world.restarted().connected()
    assert world.state_of("b") is PENDING
    world.exits("a", code)
    assert world.state_of("b") is expected


@pytest.mark.parametrize(("code", "expected"), [(0, STARTING), (1, FAILED)])
def test_a_dependency_that_has_just_finished_counts(world, code, expected):
    world.submits(a_job("a"))
    world.exits("a", code)
    world.submits(a_job("b").after("a"))
    assert world.state_of("b") is expected


@pytest.mark.parametrize(("state", "expected"), [(SUCCEEDED, STARTING), (FAILED, FAILED)])
def test_a_dependency_that_only_the_store_knows_counts(world, state, expected):
    world.submits(a_job("b").after("old").knowing(FinishedJob(JobId("old"), state)))
    assert world.state_of("b") is expected


def test_an_array_after_a_failed_dependency_fails_with_all_its_children(world):
    world.submits(a_job("a"))
    world.exits("a", 1)
    world.submits(a_job("b").array(3).after("a"))
    assert world.states_of("b") == [FAILED] * 3
    assert world.job("b").status_reason == world.job("b").rest_reason == DEPENDENCY_FAILED
    assert world.job("b").summary["FAILED"] == 3


def test_a_whole_array_is_waited_for(world):
    world.submits(a_job("a").array(2), a_job("b").after("a"))
    world.exits("a:0")
    assert world.state_of("b") is PENDING
    world.exits("a:1")
    assert world.state_of("a") is SUCCEEDED
    assert world.state_of("b") is STARTING


def test_an_array_fails_after_all_its_children_have_ended(world):
    world.submits(a_job("a").array(2))
    world.exits("a:0", 1)
    assert world.state_of("a") is PENDING
    world.exits("a:1")
    assert world.state_of("a") is FAILED
    assert world.job("a").status_reason == CHILD_FAILED


def test_one_child_can_be_waited_for_at_rest_and_recorded(world):
    world.places = False
    world.submits(a_job("a").array(3), a_job("b").after("a:1"))
    world.places = True
    world.later(1000)
    world.submits(a_job("c").after("a:1"))
    assert [world.state_of(j) for j in ("b", "c")] == [PENDING] * 2
    world.exits("a:1")
    assert [world.state_of(j) for j in ("b", "c")] == [STARTING] * 2
    assert world.state_of("a") is PENDING


def test_sequential_children_run_one_after_the_other(world):
    world.submits(a_job("a").array(3).one_by_one())
    assert world.states_of("a") == [STARTING, PENDING, PENDING]
    world.exits("a:0")
    assert world.states_of("a") == [SUCCEEDED, STARTING, PENDING]
    world.exits("a:1")
    world.exits("a:2")
    assert world.state_of("a") is SUCCEEDED


def test_a_failed_child_fails_its_sequential_successors(world):
    world.submits(a_job("a").array(4).one_by_one())
    world.exits("a:0")
    world.exits("a:1", 1)
    assert world.states_of("a") == [SUCCEEDED, FAILED, FAILED, FAILED]
    assert world.job("a").rest_reason == DEPENDENCY_FAILED
    assert world.state_of("a") is FAILED


def test_a_sequential_child_cancelled_out_of_turn_takes_only_its_successors(world):
    world.submits(a_job("a").array(4).one_by_one())
    world.happens(events.CancelJob(JobId("a:2"), "not this one"))
    assert world.states_of("a") == [STARTING, PENDING, FAILED, FAILED]
    world.exits("a:0")
    assert world.states_of("a") == [SUCCEEDED, STARTING, FAILED, FAILED]
    world.exits("a:1")
    assert world.state_of("a") is FAILED


def test_children_follow_their_namesakes(world):
    world.submits(a_job("a").array(3), a_job("b").array(3).after_each_of("a"))
    world.exits("a:1")
    assert world.states_of("b") == [PENDING, STARTING, PENDING]
    world.exits("a:0", 1)
    assert world.states_of("b") == [FAILED, STARTING, PENDING]
    assert world.job("b:0").status_reason == DEPENDENCY_FAILED
    world.exits("b:1")
    world.exits("a:2")
    world.exits("b:2")
    assert [world.state_of(j) for j in "ab"] == [FAILED] * 2


@pytest.mark.parametrize("command", [events.CancelJob, events.TerminateJob])
def test_namesakes_of_children_that_ended_at_rest_fail(world, command):
    world.places = False
    world.submits(a_job("a").array(3), a_job("b").array(3).after_each_of("a"))
    world.happens(command(JobId("a"), "no need"))
    assert world.states_of("b") == [FAILED] * 3
    assert world.job("b:0").status_reason == DEPENDENCY_FAILED
    assert not world.state.jobs


def test_a_gated_and_sequential_array_waits_for_both(world):
    world.submits(a_job("a").array(2), a_job("b").array(2).after_each_of("a").one_by_one())
    world.exits("a:1")
    assert world.states_of("b") == [PENDING, PENDING]
    world.exits("a:0")
    assert world.states_of("b") == [STARTING, PENDING]
    world.exits("b:0")
    assert world.states_of("b") == [SUCCEEDED, STARTING]


def test_a_gate_that_failed_before_is_not_forgotten_while_the_children_take_turns(world):
    world.submits(a_job("a").array(3))
    world.exits("a:2", 1)
    world.submits(a_job("b").array(3).after_each_of("a").one_by_one())
    assert world.states_of("b") == [PENDING, PENDING, FAILED]
    for child in ("a:0", "a:1", "b:0", "b:1"):
        world.exits(child)
    assert world.states_of("b") == [SUCCEEDED, SUCCEEDED, FAILED]
    assert world.state_of("b") is FAILED


def test_a_gate_and_a_whole_job_are_both_waited_for(world):
    world.submits(a_job("a").array(2), a_job("c"), a_job("b").array(2).after_each_of("a").after("c"))
    world.exits("a:0")
    world.exits("a:1", 1)
    assert world.states_of("b") == [PENDING, FAILED]
    world.exits("c")
    assert world.states_of("b") == [STARTING, FAILED]


def ended(job_id, *states):
    """An array that ended like this, as only the store knows it."""
    table = ChildTable.of(len(states), FAILED)
    for index, state in enumerate(states):
        table.load(index, state)
    return FinishedJob(JobId(job_id), FAILED, len(states), bytes(table.states))


def test_children_follow_their_namesakes_of_an_array_that_has_just_ended(world):
    world.submits(a_job("a").array(3))
    for child, code in (("a:0", 0), ("a:1", 1), ("a:2", 0)):
        world.exits(child, code)
    assert world.state_of("a") is FAILED
    world.submits(a_job("b").array(3).after_each_of("a"))
    assert world.states_of("b") == [STARTING, FAILED, STARTING]
    assert world.job("b:1").status_reason == DEPENDENCY_FAILED
    world.exits("b:0")
    world.exits("b:2")
    assert world.state_of("b") is FAILED
    assert world.job("b").status_reason == CHILD_FAILED


def test_children_follow_their_namesakes_of_an_array_that_only_the_store_knows(world):
    old = ended("old", FAILED, SUCCEEDED, FAILED)
    world.submits(a_job("b").array(3).after_each_of("old").knowing(old))
    assert world.states_of("b") == [FAILED, STARTING, FAILED]


def test_what_failed_in_an_ended_array_is_decided_before_all_else_is_known(world):
    world.submits(a_job("c"))
    old = ended("old", SUCCEEDED, FAILED)
    world.submits(a_job("b").array(2).after_each_of("old").after("c").knowing(old))
    assert world.states_of("b") == [PENDING, FAILED]
    world.restarted().connected(running=("c",))
    world.exits("c")
    assert world.states_of("b") == [STARTING, FAILED]


def test_children_that_take_turns_follow_an_ended_array_up_to_the_first_that_failed(world):
    old = ended("old", SUCCEEDED, SUCCEEDED, FAILED, SUCCEEDED)
    world.submits(a_job("b").array(4).after_each_of("old").one_by_one().knowing(old))
    assert world.states_of("b") == [STARTING, PENDING, FAILED, FAILED]
    world.exits("b:0")
    world.exits("b:1")
    assert world.state_of("b") is FAILED


def test_an_array_none_of_whose_namesakes_succeeded_fails_at_once_and_without_records(world):
    both = ended("one", FAILED, SUCCEEDED), ended("two", SUCCEEDED, FAILED)
    world.submits(a_job("b").array(2).after_each_of("one").after_each_of("two").knowing(*both))
    assert world.states_of("b") == [FAILED] * 2
    assert world.job("b").status_reason == DEPENDENCY_FAILED
    assert "b:0" not in world.store.jobs
    assert not world.state.waits


def test_a_job_may_be_named_twice(world):
    world.submits(a_job("a").array(2), a_job("b").array(2).after_each_of("a").after("a", "a"))
    world.exits("a:0")
    world.exits("a:1")
    assert world.states_of("b") == [STARTING, STARTING]


def test_a_chain_of_five_thousand_jobs_fails_without_recursion(world):
    world.submits(a_job("j0"))
    world.places = False
    world.happens(*(a_job(f"j{n}").after(f"j{n - 1}") for n in range(1, 5000)))
    world.exits("j0", 1)
    assert {job.state for job in world.store.jobs.values() if job.id != "first"} == {FAILED}
    assert not world.state.jobs


def test_a_chain_of_arrays_child_by_child_ends_without_recursion(world):
    world.submits(a_job("a0").array(2))
    world.places = False
    world.happens(*(a_job(f"a{n}").array(2).after_each_of(f"a{n - 1}") for n in range(1, 1000)))
    world.exits("a0:1", 1)
    world.exits("a0:0", 1)
    assert not world.state.jobs
    assert world.state_of("a999:1") is FAILED


@pytest.mark.parametrize(
    ("job", "error", "text"),
    [
        (a_job("b").after("unknown"), NotFound, "unknown does not exist"),
        (a_job("b").after("a:2"), NotFound, "does not exist"),
        (a_job("b").after("a:01"), NotFound, "does not exist"),
        (a_job("b").one_by_one(), Invalid, "needs an array job"),
        (a_job("b").after_each_of("a"), Invalid, "needs two array jobs"),
        (a_job("b").array(3).after_each_of("a"), Invalid, "one size: this one has 3, job a has 2"),
        (a_job("b").array(2).after_each_of("first"), Invalid, "needs two array jobs"),
    ],
)
def test_a_dependency_that_makes_no_sense_is_refused(world, job, error, text):
    world.submits(a_job("a").array(2))
    before = world.picture()
    with pytest.raises(error, match=text):
        world.happens(job)
    assert world.state == before


def test_an_end_is_remembered_for_a_while_only(world):
    world.submits(a_job("a"))
    world.exits("a")
    world.later(9_000)
    assert "a" in world.state.finished
    world.later(2_000)
    assert "a" not in world.state.finished
    with pytest.raises(NotFound):
        world.submits(a_job("b").after("a"))


def test_a_running_array_can_be_depended_on_while_it_runs(world):
    world.submits(a_job("a").array(2)).starts("a:0")
    world.submits(a_job("b").after("a"))
    assert world.state_of("a:0") is RUNNING
    assert world.job("b").created_at >= START
    assert world.state.backlog.count == 0
    assert RUNNABLE not in {world.state_of("a"), world.state_of("b")}
