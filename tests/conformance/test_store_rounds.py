"""A round is written as a whole and is found again as it was, by this store and by the next one."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from tests.conformance.store_builders import (
    NOW,
    a_child,
    a_job,
    a_round,
    a_stream,
    a_submission,
    an_array,
    an_attempt,
)
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import Instance, Machine
from windfall.control.changes import Changes
from windfall.control.ports import JobFilter, Loaded
from windfall.jobs.definitions import ContainerSpec, JobDefinition
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, RUNNING, STARTING, SUBMITTED, SUCCEEDED
from windfall.store.errors import CommitFailed, ReadFailed, Unstorable

SOME = Resources(2, 1024)


def a_definition(name: str, revision: int, **more) -> JobDefinition:
    return JobDefinition(name, revision, ContainerSpec("image", SOME), **more)


def test_an_empty_store_answers_everything_with_nothing(store):
    assert store.load() == Loaded()
    assert store.jobs(["none"]) == []
    assert store.list_jobs(JobFilter(), 10, None).jobs == []
    assert store.find_job("x") == []
    assert store.counts() == {}
    assert (store.environments(), store.queues(), store.definitions(), store.images()) == ([], [], [], [])
    assert store.definition("x:1") is None
    assert store.log_groups() == []
    assert store.log_streams("g", "", 10, None) == []
    assert store.log_stream("g", "n") is None


def test_an_empty_round_is_no_transaction(store):
    assert list(store.commit(Changes())) == []


def test_everything_small_is_kept_by_name_and_survives_a_restart(place):
    store = place.open()
    environments = [
        ComputeEnvironment(name, Provisioning.SPOT, 0, 8, tags={"k": "v"}) for name in ("b", "a", "B")
    ]
    queues = [JobQueue(name, 1, ("a", "b")) for name in ("q2", "q1")]
    images = [ImageMapping(pattern, "/srv", ("python3",), {"A": "1"}) for pattern in ("repo/*", "repo/%")]
    instances = [Instance("i-2", "a", "local", SOME), Instance("i-1", "a", "local", SOME, machine="m")]
    machines = [Machine("m", SOME, facts={"isolation": "none"})]
    store.commit(
        Changes(
            environments={it.name: it for it in environments},
            queues={it.name: it for it in queues},
            images={it.pattern: it for it in images},
            instances={it.id: it for it in instances},
            machines={it.id: it for it in machines},
        )
    )
    store = place.reopened()
    assert [it.name for it in store.environments()] == ["B", "a", "b"]
    assert store.environments()[1] == environments[1]
    assert store.queues() == queues[::-1]
    assert store.images() == images[::-1]
    loaded = store.load()
    assert loaded.instances == instances[::-1]
    assert loaded.machines == machines
    assert (loaded.environments, loaded.queues, loaded.images) == (
        store.environments(),
        store.queues(),
        store.images(),
    )


def test_none_removes_and_a_second_removal_is_no_error(store):
    queue, environment = JobQueue("q", 1, ("e",)), ComputeEnvironment("e", Provisioning.EC2, 0, 1)
    everything = Changes(
        environments={"e": environment},
        queues={"q": queue},
        images={"i": ImageMapping("i", None)},
        instances={"i-1": Instance("i-1", "e", "t", SOME)},
        machines={"m": Machine("m", SOME)},
        definitions={"d:1": a_definition("d", 1), "d:x:2": a_definition("d:x", 2)},
    )
    store.commit(everything)
    assert len(store.definitions()) == 2
    nothing = Changes(
        environments={"e": None},
        queues={"q": None},
        images={"i": None},
        instances={"i-1": None},
        machines={"m": None},
        definitions={"d:1": None, "d:x:2": None},
    )
    for _ in range(2):
        store.commit(nothing)
        assert store.load() == Loaded()


def test_one_round_may_remove_one_thing_and_write_another(store):
    store.commit(Changes(queues={"old": JobQueue("old", 1, ("e",))}))
    store.commit(Changes(queues={"old": None, "new": JobQueue("new", 2, ("e",))}))
    assert [it.name for it in store.queues()] == ["new"]


def test_definitions_come_by_name_and_revision_as_numbers(store):
    kept = [
        a_definition("b", 1),
        a_definition("a", 10),
        a_definition("a", 9, active=False),
        a_definition("a%", 1),
    ]
    store.commit(Changes(definitions={it.key: it for it in kept}))
    assert [it.key for it in store.definitions()] == ["a:9", "a:10", "a%:1", "b:1"]
    assert [it.key for it in store.definitions("a")] == ["a:9", "a:10"]
    assert [it.key for it in store.definitions("a", active_only=True)] == ["a:10"]
    assert [it.key for it in store.definitions(active_only=True)] == ["a:10", "a%:1", "b:1"]
    assert store.definition("a:10") == kept[1]
    for unknown in ("a:11", "a", "a:", ":1", "a:-9", "A:9", "a:9 ", "a\0:9", "a:" + "9" * 40, "a:\u0663"):
        assert store.definition(unknown) is None
    store.commit(Changes(definitions={"a:10": replace(kept[1], active=False, deregistered_at=NOW)}))
    assert store.definitions("a", active_only=True) == []
    assert store.definition("a:10").deregistered_at == NOW


def test_jobs_come_in_the_order_asked_and_unknown_ones_are_left_out(store):
    one, two, three = a_job(), a_job(), a_job()
    store.commit(a_round(one, two, three))
    asked = [three.id, "unknown", one.id, "bad\0id", two.id, "bad\ud800id", three.id]
    assert store.jobs(asked) == [three, one, two, three]
    assert store.jobs([]) == []


def test_a_job_is_found_as_it_was_at_each_of_its_moves(store):
    job = a_job(SUBMITTED, at=NOW)
    for state in (RUNNABLE, STARTING, RUNNING, SUCCEEDED):
        job.state = state
        job.order = 7
        if state is STARTING:
            job.attempts.append(an_attempt(job))
        if state is SUCCEEDED:
            job.stopped_at, job.attempts[0].exit_code, job.attempts[0].stopped_at = NOW + 9, 0, NOW + 9
        store.commit(a_round(job))
        assert store.jobs([job.id]) == [job]
        assert store.counts() == {("q", state): 1}


def test_tags_of_a_submission_may_change(store):
    job = a_job()
    store.commit(a_round(job))
    job.submission = replace(job.submission, tags={"team": "vision"})
    store.commit(a_round(job))
    assert store.jobs([job.id])[0].submission.tags == {"team": "vision"}


def test_committing_a_round_again_changes_nothing(store):
    array = an_array(3, order=4)
    done = a_job(SUCCEEDED, stopped_at=NOW)
    changes = a_round(array, a_child(array, 1), done, streams=(a_stream(done),))
    changes.queues["q"] = JobQueue("q", 1, ("e",))
    store.commit(changes)
    before = (store.load(), store.counts(), store.log_streams("/aws/batch/job", "", 9, None))
    store.commit(changes)
    assert (store.load(), store.counts(), store.log_streams("/aws/batch/job", "", 9, None)) == before
    assert store.counts() == {("q", PENDING): 1, ("q", SUCCEEDED): 1}


def test_a_daemon_loads_live_jobs_in_fifo_order_and_what_children_have_finished(place):
    store = place.open()
    late, early = a_job(order=9), a_job(order=2)
    waiting = [a_job(PENDING), a_job(SUBMITTED)]
    array, finished_array = an_array(10_000, order=5), an_array(2, SUCCEEDED, order=3, stopped_at=NOW)
    children = [
        a_child(array, 11, RUNNING, order=5),
        a_child(array, 2, SUCCEEDED, order=5),
        a_child(array, 10, FAILED, order=5),
        a_child(finished_array, 0, SUCCEEDED, order=3),
    ]
    store.commit(a_round(late, array, *children, finished_array, *waiting, early, a_job(FAILED, order=50)))
    loaded = place.reopened().load()
    assert loaded.jobs == [*waiting, early, array, children[0], late]
    assert loaded.finished_children == [(array.id, 2, SUCCEEDED), (array.id, 10, FAILED)]
    assert loaded.last_order == 50
    assert gc.isenabled()


def test_children_share_the_submission_object_of_their_array(place):
    array = an_array(100)
    place.open().commit(a_round(*[a_child(array, n) for n in range(3)], array, a_child(array, 3, SUCCEEDED)))
    store = place.reopened()
    for jobs in (store.load().jobs, store.jobs([f"{array.id}:1", array.id, f"{array.id}:3"])):
        assert len({id(job.submission) for job in jobs}) == 1
        assert jobs[0].submission == array.submission
    (child,) = store.jobs([f"{array.id}:2"])
    assert child == a_child(array, 2)


def test_a_change_of_an_arrays_tags_reaches_children_that_are_not_in_the_round(store):
    array = an_array(5)
    store.commit(a_round(array, a_child(array, 0)))
    array.submission = replace(array.submission, tags={"a": "b"})
    store.commit(a_round(array))
    assert store.jobs([f"{array.id}:0"])[0].submission.tags == {"a": "b"}


def test_the_highest_order_never_falls(place):
    store = place.open()
    store.commit(a_round(a_job(order=12)))
    store.commit(a_round(a_job(order=3)))
    store = place.reopened()
    store.commit(a_round(a_job(order=5)))
    assert store.load().last_order == 12


def test_counts_are_of_top_level_jobs_by_queue_and_state(store):
    array = an_array(9, queue="other")
    jobs = [a_job(), a_job(), a_job(FAILED), a_job(SUCCEEDED, queue="other"), array]
    store.commit(a_round(*jobs, a_child(array, 0, FAILED), a_child(array, 1)))
    assert store.counts() == {
        ("q", RUNNABLE): 2,
        ("q", FAILED): 1,
        ("other", SUCCEEDED): 1,
        ("other", PENDING): 1,
    }
    jobs[0].state, jobs[1].state = FAILED, SUCCEEDED
    store.commit(a_round(*jobs[:2]))
    assert store.counts()["q", FAILED] == 2
    assert store.counts()["q", SUCCEEDED] == 1
    assert ("q", RUNNABLE) not in store.counts()


@pytest.mark.parametrize("bad", ["nul\0", "half \ud800"])
def test_a_text_that_sql_cannot_hold_is_refused_and_the_whole_round_with_it(store, bad):
    for job in (a_job(name=bad), a_job(queue=bad), a_job(definition=bad), a_job(id=bad)):
        with pytest.raises(Unstorable, match="valid Unicode text"):
            store.commit(a_round(a_job(), job))
    with pytest.raises(Unstorable):
        store.commit(Changes(queues={bad: JobQueue(bad, 1, ())}))
    with pytest.raises(Unstorable):
        store.commit(a_round(a_job(), streams=(replace(a_stream(a_job()), name=bad),)))
    assert store.load() == Loaded()
    assert store.jobs([bad]) == []
    assert store.find_job(bad) == []
    for wanted in (
        JobFilter(queue=bad),
        JobFilter(name=bad),
        JobFilter(definition=bad),
        JobFilter(parent=bad),
    ):
        assert store.list_jobs(wanted, 10, None).jobs == []
    assert store.log_streams(bad, bad, 1, bad) == []
    assert store.log_stream(bad, bad) is None
    assert store.definitions(bad) == []


def test_a_number_beyond_64_bits_is_refused_and_the_store_stays_usable(store):
    with pytest.raises((Unstorable, CommitFailed)):
        store.commit(a_round(a_job(), a_job(at=2**80)))
    assert store.load().jobs == []
    job = a_job()
    store.commit(a_round(job))
    assert store.load().jobs == [job]


def test_nul_inside_a_record_is_kept(store):
    job = Job("id", a_submission(parameters={"a\0": "\0b"}, document='{"x": "\\u0000"}'), RUNNABLE, NOW)
    job.status_reason = "ends in \0"
    store.commit(a_round(job))
    assert store.jobs(["id"]) == [job]


def test_a_closed_store_says_so(store):
    store.close()
    store.close()
    with pytest.raises(ReadFailed, match="closed"):
        store.load()
    with pytest.raises(CommitFailed, match="closed"):
        store.commit(a_round(a_job()))
