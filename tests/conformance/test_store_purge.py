"""Log streams, and the removal of finished jobs in small steps."""

from __future__ import annotations

from dataclasses import replace

from tests.conformance.store_builders import NOW, a_child, a_job, a_round, a_stream, an_array
from windfall.control.changes import LogStream, Purge
from windfall.control.ports import JobFilter
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, SUCCEEDED

GROUP = "/aws/batch/job"


def streams_named(*names: str, group: str = GROUP) -> tuple[LogStream, ...]:
    return tuple(LogStream(group, name, f"task {group} {name}", "j", NOW) for name in names)


def purged(store, before=NOW, limit=100):
    return sorted(store.commit(a_round(purge=Purge(before, limit))))


def test_log_streams_come_by_name_within_their_group(store):
    kept = streams_named("b/1", "a/2", "a/1", "a%", "B", "ü")
    store.commit(a_round(streams=kept + streams_named("a/9", group="other") + streams_named("x", group="z%")))
    assert store.log_groups() == [GROUP, "other", "z%"]
    by_name = [it.name for it in store.log_streams(GROUP, "", 100, None)]
    assert by_name == ["B", "a%", "a/1", "a/2", "b/1", "ü"]
    assert [it.name for it in store.log_streams(GROUP, "a/", 100, None)] == ["a/1", "a/2"]
    assert [it.name for it in store.log_streams(GROUP, "a%", 100, None)] == ["a%"]
    assert [it.name for it in store.log_streams(GROUP, "", 2, None)] == ["B", "a%"]
    assert [it.name for it in store.log_streams(GROUP, "", 2, "a%")] == ["a/1", "a/2"]
    assert [it.name for it in store.log_streams(GROUP, "a/", 5, "a/1")] == ["a/2"]
    assert store.log_streams(GROUP, "a", 0, None) == []
    assert store.log_stream(GROUP, "ü") == kept[5]
    assert store.log_stream("other", "ü") is None


def test_one_round_may_name_a_stream_twice(store):
    (first,) = streams_named("s")
    second = replace(first, task_id="newer")
    store.commit(a_round(streams=(first, second)))
    assert store.log_stream(GROUP, "s") == second


def test_a_purge_takes_what_ended_before_and_answers_whose_logs_may_go(store):
    old, young = a_job(FAILED, stopped_at=NOW - 1), a_job(SUCCEEDED, stopped_at=NOW)
    live = a_job(RUNNING, at=5)
    streams = [a_stream(old, 1), a_stream(old, 2), a_stream(young), a_stream(live)]
    store.commit(a_round(old, young, live, streams=tuple(streams)))
    assert purged(store) == sorted([streams[0].task_id, streams[1].task_id])
    assert store.jobs([old.id, young.id, live.id]) == [young, live]
    assert {it.task_id for it in store.log_streams(GROUP, "", 9, None)} == {it.task_id for it in streams[2:]}
    assert store.counts() == {("q", SUCCEEDED): 1, ("q", RUNNING): 1}
    assert purged(store) == []


def test_how_children_ended_is_known_until_they_are_removed(store):
    array, other = an_array(5, FAILED, stopped_at=NOW - 1), an_array(2)
    states = {4: FAILED, 0: SUCCEEDED, 2: SUCCEEDED, 1: RUNNING}
    children = [a_child(array, index, state) for index, state in states.items()]
    store.commit(a_round(array, other, *children, a_child(other, 0, FAILED)))
    assert store.ended_children(array.id) == [(0, SUCCEEDED), (2, SUCCEEDED), (4, FAILED)]
    assert store.ended_children(other.id) == [(0, FAILED)]
    assert store.ended_children("none") == store.ended_children("\0") == []
    purged(store, limit=4)
    assert store.ended_children(array.id) == []


def test_a_finished_job_without_an_end_is_as_old_as_it_is(store):
    store.commit(a_round(a_job(FAILED, at=NOW - 1), a_job(FAILED, at=NOW)))
    purged(store)
    assert store.counts() == {("q", FAILED): 1}


def test_a_purge_takes_the_oldest_first_and_no_more_than_asked(store):
    jobs = [a_job(SUCCEEDED, stopped_at=at) for at in (30, 10, 20, 40)]
    store.commit(a_round(*jobs))
    purged(store, limit=2)
    assert store.jobs([job.id for job in jobs]) == [jobs[0], jobs[3]]
    purged(store, limit=2)
    assert store.counts() == {}


def test_a_large_array_goes_in_steps_children_first_and_the_array_last(store):
    array = an_array(25, SUCCEEDED, stopped_at=1)
    children = [a_child(array, n, SUCCEEDED, stopped_at=1) for n in range(25)]
    other = a_job(FAILED, stopped_at=2)
    store.commit(a_round(array, *children, other, streams=tuple(a_stream(child) for child in children)))
    everything = [array.id, other.id, *(child.id for child in children)]
    left, logs = len(everything), []
    while left:
        logs += purged(store, limit=4)
        found = store.jobs(everything)
        assert left - len(found) == min(4, left)
        left = len(found)
        if any(job.parent for job in found):
            assert array.id in {job.id for job in found}
    assert sorted(logs) == sorted(a_stream(child).task_id for child in children)
    assert store.list_jobs(JobFilter(parent=array.id), 10, None).jobs == []
    assert store.counts() == {}
    assert store.log_groups() == []


def test_finished_children_of_a_live_array_stay(store):
    array = an_array(5, at=1)
    child = a_child(array, 0, SUCCEEDED, stopped_at=2)
    store.commit(a_round(array, child, streams=(a_stream(child),)))
    assert purged(store) == []
    assert store.jobs([child.id]) == [child]
    assert store.load().finished_children == [(array.id, 0, SUCCEEDED)]


def test_the_highest_order_outlives_the_job_that_had_it(place):
    store = place.open()
    store.commit(a_round(a_job(SUCCEEDED, order=77, stopped_at=1)))
    purged(store)
    assert place.reopened().load().last_order == 77


def test_a_round_may_both_write_and_purge(store):
    old, new = a_job(FAILED, stopped_at=1), a_job(RUNNABLE)
    store.commit(a_round(old, streams=(a_stream(old),)))
    changes = a_round(new, purge=Purge(NOW, 10))
    assert list(store.commit(changes)) == [a_stream(old).task_id]
    assert store.jobs([old.id, new.id]) == [new]


def test_a_round_removes_the_jobs_that_it_names_and_answers_whose_logs_may_go(store):
    gone, kept = a_job(SUCCEEDED, stopped_at=NOW), a_job(FAILED, stopped_at=NOW)
    array = an_array(2, SUCCEEDED, stopped_at=NOW)
    children = [a_child(array, index, SUCCEEDED) for index in range(2)]
    streams = [a_stream(job) for job in (gone, kept, *children)]
    store.commit(a_round(gone, kept, array, *children, streams=tuple(streams)))
    removed = store.commit(a_round(removed_jobs={gone.id, array.id, "unknown", "no\0id"}))
    assert sorted(removed) == sorted(stream.task_id for stream in (streams[0], *streams[2:]))
    assert store.jobs([gone.id, kept.id, array.id, children[0].id]) == [kept]
    assert store.log_streams(GROUP, "", 9, None) == [streams[1]]
    assert store.counts() == {("q", FAILED): 1}
    assert list(store.commit(a_round(removed_jobs={gone.id}))) == []


def test_a_job_may_be_removed_and_its_id_taken_again_in_one_round(store):
    old = a_job(FAILED, stopped_at=NOW, id="training-x")
    store.commit(a_round(old, streams=(a_stream(old, 1),)))
    new = a_job(RUNNABLE, id="training-x", name="another")
    again = a_round(new, streams=(a_stream(new, 2),), removed_jobs={old.id})
    assert list(store.commit(again)) == [a_stream(old, 1).task_id]
    # The same round once more, as after a commit whose answer was lost.
    assert list(store.commit(again)) == []
    assert store.jobs(["training-x"]) == [new]
    assert store.counts() == {("q", RUNNABLE): 1}
    assert [it.task_id for it in store.log_streams(GROUP, "", 9, None)] == [a_stream(new, 2).task_id]
