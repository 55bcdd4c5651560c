"""Whatever value the domain can hold, the store gives it back equal."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.store_builders import NAMES, NUMBERS, any_job, any_of, any_submission
from windfall.capacity.environments import ComputeEnvironment, JobQueue
from windfall.capacity.machines import Instance, Machine
from windfall.control.changes import Changes, LogStream
from windfall.control.ports import JobFilter
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import child_id
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job

# The database lives over all examples of one test: each example looks at what it has written itself.
over_one_store = settings(
    max_examples=40,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

SMALL = {
    "environments": (any_of(ComputeEnvironment, name=NAMES), "name"),
    "queues": (any_of(JobQueue, name=NAMES), "name"),
    "images": (any_of(ImageMapping, pattern=NAMES), "pattern"),
    "instances": (any_of(Instance, id=NAMES), "id"),
    "machines": (any_of(Machine, id=NAMES), "id"),
}


@pytest.mark.parametrize("kind", SMALL)
@over_one_store
@given(examples=st.data())
def test_everything_small(store, kind, examples):
    thing = examples.draw(SMALL[kind][0])
    key = getattr(thing, SMALL[kind][1])
    store.commit(Changes(**{kind: {key: thing}}))
    assert thing in getattr(store.load(), kind)
    store.commit(Changes(**{kind: {key: None}}))
    assert getattr(store.load(), kind) == []


@over_one_store
@given(definition=any_of(JobDefinition, name=NAMES, revision=NUMBERS.filter(lambda number: number < 10**15)))
def test_definitions(store, definition):
    store.commit(Changes(definitions={definition.key: definition}))
    assert store.definition(definition.key) == definition
    assert definition in store.definitions(definition.name)


@over_one_store
@given(jobs=st.lists(any_job(), min_size=1, max_size=3))
def test_jobs(store, jobs):
    store.commit(Changes(jobs={job.id: job for job in jobs}))
    assert store.jobs([job.id for job in jobs]) == jobs
    loaded = {job.id: job for job in store.load().jobs}
    for job in jobs:
        assert loaded.get(job.id) == (None if job.finished else job)
        wanted = JobFilter(queue=job.submission.queue, name=job.submission.name, states=(job.state,))
        assert job in store.list_jobs(wanted, 1000, None).jobs


@over_one_store
@given(examples=st.data(), index=st.integers(0, 9_999))
def test_children(store, examples, index):
    parent = str(uuid.uuid4())
    submission = examples.draw(any_submission(array_size=st.integers(2, 10_000)))
    shared = {"submission": st.just(submission)}
    array = examples.draw(any_of(Job, id=st.just(parent), parent=st.none(), index=st.none(), **shared))
    child = examples.draw(
        any_of(
            Job, id=st.just(child_id(parent, index)), parent=st.just(parent), index=st.just(index), **shared
        )
    )
    store.commit(Changes(jobs={child.id: child, array.id: array}))
    assert store.jobs([child.id, array.id]) == [child, array]
    assert store.list_jobs(JobFilter(parent=parent), 10, None).jobs == [child]


@over_one_store
@given(stream=any_of(LogStream, group=NAMES, name=NAMES, task_id=NAMES, job_id=NAMES))
def test_log_streams(store, stream):
    store.commit(Changes(log_streams={"key": stream}))
    assert store.log_stream(stream.group, stream.name) == stream
    assert stream in store.log_streams(stream.group, stream.name, 1, None)
    assert stream.group in store.log_groups()
