"""Waiting jobs in groups: first come first, arrays counted child by child, returned ones in their old place."""

from __future__ import annotations

import pytest

from tests.builders import a_busy_world, a_job
from windfall.control.backlog import Backlog
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import (
    DefinitionKey,
    EnvironmentName,
    InstanceId,
    JobId,
    QueueName,
    attempt_token,
    task_id,
)
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import ONCE
from windfall.jobs.states import RUNNABLE


def waiting(job_id, order, vcpus=1, attempts=0):
    submission = Submission(job_id, QueueName("q"), DefinitionKey("d:1"), Resources(vcpus, 1), ONCE)
    job = Job(JobId(job_id), submission, RUNNABLE, 0, order=order, runnable_at=order * 10)
    for number in range(1, attempts + 1):
        token = attempt_token(job.id, number)
        place = (EnvironmentName("e"), InstanceId("i"))
        job.attempts.append(Attempt(number, token, task_id(token, 0), *place, (), "s", 0, stopped_at=1))
    return job


def entries(backlog):
    return [[entry.job_id for entry in group.entries] for group in backlog.groups(QueueName("q"))]


def test_jobs_of_one_shape_share_a_group_in_their_order():
    backlog = Backlog()
    for job in (waiting("a", 1), waiting("b", 2, vcpus=2), waiting("c", 3)):
        backlog.add(job)
    assert entries(backlog) == [["a", "c"], ["b"]]
    assert backlog.count == 3


def test_returned_jobs_go_by_their_first_order():
    backlog = Backlog()
    for job in (waiting("d", 9), waiting("b", 2, attempts=1), waiting("a", 1, attempts=2)):
        backlog.add(job)
    assert entries(backlog) == [["a", "b", "d"]]


def test_a_returned_job_stays_behind_an_earlier_one_that_it_has_passed():
    backlog = Backlog()
    for job in (waiting("b", 2), waiting("d", 4), waiting("c", 3, attempts=1)):
        backlog.add(job)
    assert entries(backlog) == [["b", "c", "d"]]


def test_an_array_is_one_entry_that_shrinks():
    backlog, array = Backlog(), waiting("a", 1)
    backlog.add(array, 3)
    backlog.take(array)
    assert backlog.find(array).count == backlog.count == 2
    backlog.take(array)
    backlog.take(array)
    assert backlog.find(array) is None
    assert entries(backlog) == []


def test_removing_what_does_not_wait_is_no_error():
    backlog, job = Backlog(), waiting("a", 1)
    backlog.remove(job)
    backlog.add(job)
    backlog.remove(waiting("b", 2))
    assert backlog.count == 1
    backlog.remove(job)
    backlog.remove(job)
    assert backlog.count == 0


def test_a_group_can_be_read_again_from_its_start():
    backlog = Backlog()
    for number in range(5):
        backlog.add(waiting(f"j{number}", number + 1))
    (group,) = backlog.groups(QueueName("q"))
    assert next(iter(group.entries)).job_id == "j0"
    assert len(list(group.entries)) == len(list(group.entries)) == 5


@pytest.mark.parametrize("size", [2, 10_000])
def test_an_array_of_any_size_is_one_entry(size):
    world = a_busy_world()
    world.places = False
    world.submits(a_job("a").array(size))
    assert len(world.state.jobs) == 1
    assert world.state.backlog.count == size
