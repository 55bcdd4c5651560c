"""Pages of jobs and children: filters, order, and positions that hold while jobs come and go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.conformance.store_builders import NOW, a_child, a_job, a_round, an_array
from windfall.control.changes import Purge
from windfall.control.ports import JobFilter
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import node_id
from windfall.jobs.nodes import NodeGroup, Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, RUNNING, SUCCEEDED
from windfall.jobs.submitters import Submitter
from windfall.store.errors import BadPosition
from windfall.store.pages import SLOT_MS


def ids_of_all_pages(store, wanted, limit, between=lambda: None):
    """Ids over all pages; `between` is called after each page but the last."""
    ids, after = [], None
    while True:
        page = store.list_jobs(wanted, limit, after)
        ids += [job.id for job in page.jobs]
        after = page.next_after
        if after is None:
            return ids
        assert len(page.jobs) == limit
        between()


def names(store, **wanted):
    return {job.submission.name for job in store.list_jobs(JobFilter(**wanted), 100, None).jobs}


def test_newest_first_and_within_a_millisecond_the_last_that_came(store):
    jobs = [a_job(at=at) for at in (NOW, NOW + 5, NOW + 5, NOW + 5, NOW - 3)]
    store.commit(a_round(*jobs))
    expected = [jobs[n].id for n in (3, 2, 1, 0, 4)]
    for limit in (1, 2, 3, 5, 100):
        assert ids_of_all_pages(store, JobFilter(queue="q"), limit) == expected
    whole = store.list_jobs(JobFilter(queue="q"), 5, None)
    assert whole.next_after is None
    assert whole.jobs[0] == jobs[3]


def test_a_later_change_of_a_job_does_not_move_it(store):
    jobs = [a_job(at=NOW) for _ in range(3)]
    store.commit(a_round(*jobs))
    store.commit(a_round(jobs[0]))
    assert ids_of_all_pages(store, JobFilter(), 2) == [job.id for job in reversed(jobs)]


def test_jobs_that_arrive_between_pages_shift_nothing(store):
    jobs = [a_job(at=NOW + n // 3) for n in range(20)]
    store.commit(a_round(*jobs))

    # Younger ones, and one in the same millisecond as the youngest that has been shown.
    def arrive():
        store.commit(a_round(a_job(at=NOW + 100), a_job(at=NOW + 6)))

    assert ids_of_all_pages(store, JobFilter(queue="q"), 3, arrive) == [job.id for job in reversed(jobs)]


def test_jobs_that_are_purged_between_pages_shift_nothing(store):
    old = [a_job(FAILED, at=NOW + n, stopped_at=5) for n in range(4)]
    kept = [a_job(FAILED, at=NOW + 10 + n, stopped_at=50) for n in range(6)]
    store.commit(a_round(*old, *kept))

    def purge():
        store.commit(a_round(purge=Purge(before=10, limit=100)))

    assert ids_of_all_pages(store, JobFilter(queue="q"), 2, purge) == [job.id for job in reversed(kept)]


def test_states_and_queues_are_merged_in_one_order(store):
    states = (RUNNABLE, RUNNING, FAILED, SUCCEEDED)
    jobs = [a_job(states[n % 4], queue=f"q{n % 3}") for n in range(24)]
    store.commit(a_round(*jobs))
    newest = jobs[::-1]
    assert ids_of_all_pages(store, JobFilter(), 5) == [job.id for job in newest]
    some = (FAILED, RUNNING, FAILED)
    expected = [job.id for job in newest if job.state in some and job.submission.queue == "q1"]
    assert ids_of_all_pages(store, JobFilter(queue="q1", states=some), 2) == expected
    expected = [job.id for job in newest if job.state is RUNNABLE]
    assert ids_of_all_pages(store, JobFilter(states=(RUNNABLE,)), 4) == expected
    assert ids_of_all_pages(store, JobFilter(states=()), 4) == []
    assert ids_of_all_pages(store, JobFilter(queue="unknown"), 4) == []
    assert ids_of_all_pages(store, JobFilter(queue="Q1"), 4) == []


def test_children_are_not_among_top_level_jobs(store):
    array = an_array(5)
    store.commit(a_round(array, *[a_child(array, n) for n in range(3)]))
    assert [job.id for job in store.list_jobs(JobFilter(queue="q"), 10, None).jobs] == [array.id]
    assert [job.id for job in store.list_jobs(JobFilter(), 10, None).jobs] == [array.id]


@pytest.mark.parametrize(
    "odd", ["100%", "a_b", "it's", 'say "hi"', "größe", "名前", "back\\slash", "😀", "{among}", "?%s"]
)
def test_odd_names_are_found_exactly_and_by_prefix(store, odd):
    others = ["100x", "axb", "its", "say hi", "gr", "名", "back", "x", odd + "more"]
    store.commit(a_round(*[a_job(name=name) for name in (odd, *others)]))
    assert names(store, queue="q", name=odd) == {odd}
    assert names(store, queue="q", name=odd.upper()) == {odd}
    assert names(store, name=odd, name_is_prefix=True) == {odd, odd + "more"}
    assert names(store, name="%") == set()
    assert names(store, name="_", name_is_prefix=True) == set()


def test_names_are_compared_without_case_and_definitions_with_it(store):
    for name in ("Train-A", "train-b", "TRAIN-A", "eval"):
        store.commit(a_round(a_job(name=name, definition=f"{name}:3")))
    assert names(store, queue="q", name="train-a") == {"Train-A", "TRAIN-A"}
    assert names(store, queue="q", name="tRAIN-", name_is_prefix=True) == {"Train-A", "train-b", "TRAIN-A"}
    assert names(store, queue="q", name="", name_is_prefix=True) == {"Train-A", "train-b", "TRAIN-A", "eval"}
    assert names(store, queue="q", definition="Train-A:3") == {"Train-A"}
    assert names(store, queue="q", definition="train-", definition_is_prefix=True) == {"train-b"}
    assert names(store, queue="q", definition="TRAIN-A:3", definition_is_prefix=True) == {"TRAIN-A"}


def test_case_is_folded_as_unicode_folds_it(store):
    store.commit(a_round(a_job(name="ΟΔΥΣΣΕΥΣ"), a_job(name="straße")))
    assert names(store, name="οδυσ", name_is_prefix=True) == {"ΟΔΥΣΣΕΥΣ"}
    assert names(store, name="οδυσσευς") == {"ΟΔΥΣΣΕΥΣ"}
    assert names(store, name="STRASSE") == {"straße"}


def test_a_definition_without_revision_means_all_its_revisions(store):
    for definition in ("d:1", "d:2", "dd:1", "d", "d;1"):
        store.commit(a_round(a_job(name=definition, definition=definition)))
    assert names(store, definition="d") == {"d:1", "d:2"}
    assert names(store, definition="d:1") == {"d:1"}
    assert names(store, definition="d:", definition_is_prefix=True) == {"d:1", "d:2"}


def test_filters_combine_and_page(store):
    jobs = [
        a_job((RUNNABLE, FAILED)[n % 2], name=f"n{n % 3}", at=NOW + n, queue=f"q{n % 2}") for n in range(36)
    ]
    store.commit(a_round(*jobs))
    wanted = JobFilter(
        name="N", name_is_prefix=True, states=(FAILED,), created_after=NOW + 4, created_before=NOW + 30
    )
    expected = [
        job.id for job in reversed(jobs) if job.state is FAILED and NOW + 4 < job.created_at < NOW + 30
    ]
    assert ids_of_all_pages(store, wanted, 5) == expected
    wanted = JobFilter(queue="q0", name="n1", definition="def:1")
    expected = [j.id for j in reversed(jobs) if j.submission.name == "n1" and j.submission.queue == "q0"]
    assert ids_of_all_pages(store, wanted, 2) == expected


def test_jobs_are_found_by_their_share_alone_and_with_a_state(store):
    jobs = [a_job(share=share) for share in ("a", "b", None, "a", "A")]
    done = a_job(SUCCEEDED, share="a")
    store.commit(a_round(*jobs, done))
    store.commit(a_round(jobs[0]))
    assert ids_of_all_pages(store, JobFilter(queue="q", share="a"), 2) == [done.id, jobs[3].id, jobs[0].id]
    found = store.list_jobs(JobFilter(queue="q", share="a", states=(RUNNABLE,)), 9, None)
    assert [job.id for job in found.jobs] == [jobs[3].id, jobs[0].id]
    assert found.jobs[0].submission.share == "a"
    assert store.list_jobs(JobFilter(queue="q", share="none"), 9, None).jobs == []
    assert store.list_jobs(JobFilter(queue="q", share="a\0"), 9, None).jobs == []


def test_times_are_bounds_that_are_not_met_themselves(store):
    jobs = [a_job(at=NOW + n, name=str(n)) for n in range(5)]
    store.commit(a_round(*jobs))
    assert names(store, created_after=NOW + 1) == {"2", "3", "4"}
    assert names(store, created_before=NOW + 1) == {"0"}
    assert len(names(store, created_before=10**40, created_after=-(10**40))) == 5
    assert names(store, created_after=10**40) == set()
    assert names(store, queue="q", created_after=NOW, created_before=NOW + 3) == {"1", "2"}


def test_children_come_by_index_as_numbers_and_by_state(store):
    array, other = an_array(10_000), an_array(5)
    states = {0: SUCCEEDED, 2: FAILED, 10: RUNNING, 100: FAILED, 9_999: RUNNING}
    children = {index: a_child(array, index, state) for index, state in states.items()}
    store.commit(a_round(*reversed(children.values()), array, other, a_child(other, 1)))
    assert store.list_jobs(JobFilter(parent=array.id), 100, None).jobs == list(children.values())
    every = [f"{array.id}:{index}" for index in states]
    for limit in (1, 2, 5):
        assert ids_of_all_pages(store, JobFilter(parent=array.id), limit) == every
    failed = JobFilter(parent=array.id, states=(FAILED, PENDING))
    assert ids_of_all_pages(store, failed, 1) == [f"{array.id}:2", f"{array.id}:100"]
    assert ids_of_all_pages(store, JobFilter(parent="unknown"), 1) == []

    def later():
        store.commit(a_round(a_child(array, 1, FAILED)))

    assert ids_of_all_pages(store, JobFilter(parent=array.id), 2, later) == every


@pytest.mark.parametrize(
    "after", ["", "x", "1", "1-", "1-2-3", "-1-2", "1-2; DROP TABLE jobs", "f" * 40 + "-1", "\0"]
)
def test_a_position_that_is_not_ours_is_refused(store, after):
    store.commit(a_round(a_job()))
    with pytest.raises(BadPosition, match="Begin again"):
        store.list_jobs(JobFilter(queue="q"), 10, after)
    with pytest.raises(BadPosition):
        store.list_jobs(JobFilter(parent="p"), 10, f"{after}-")


def test_a_job_is_found_by_the_beginning_of_its_id_or_by_its_name(store):
    jobs = [a_job(id=f"aa{n:02}-x", name="same" if n % 2 else "Same") for n in range(24)]
    store.commit(a_round(*jobs))
    assert store.find_job("aa03") == ["aa03-x"]
    assert store.find_job("aa03-x") == ["aa03-x"]
    assert store.find_job("aa") == [f"aa{n:02}-x" for n in range(23, 13, -1)]
    assert store.find_job("same") == [f"aa{n:02}-x" for n in range(23, 3, -2)]
    for unknown in ("", "AA03", "SAME", "sam", "%", "_", "a%", "a_03", "'"):
        assert store.find_job(unknown) == []


def test_a_name_that_begins_an_id_finds_both_newest_first(store):
    named, numbered = a_job(name="abc", id="zzz"), a_job(id="abc-1")
    other_queue = a_job(name="abc", id="yyy", queue="other")
    store.commit(a_round(named, numbered, other_queue))
    assert store.find_job("abc") == ["yyy", "abc-1", "zzz"]


def test_children_are_found_by_id_when_the_text_has_a_colon(store):
    array = an_array(100, id="dd-1", name="arr")
    store.commit(a_round(array, *[a_child(array, n) for n in (1, 10, 11, 2)]))
    assert store.find_job("dd") == ["dd-1"]
    assert store.find_job("arr") == ["dd-1"]
    assert store.find_job("dd-1:1") == ["dd-1:1"]
    assert store.find_job("dd-1:7") == []
    assert set(store.find_job("dd-1:")) == {"dd-1:1", "dd-1:10", "dd-1:11", "dd-1:2"}


def test_nodes_of_a_gang_are_kept_found_listed_and_purged_with_it(store):
    group = NodeGroup(0, 11, ContainerSpec("image", Resources(1, 64)), "m5.large", (("licence", 2),))
    gang = a_job(RUNNING, id="ee-1", nodes=Nodes(12, 0, (group,)), replaces_lost_nodes=True, gang_number=3)
    nodes = [replace(a_child(gang, number), id=node_id(gang.id, number)) for number in (1, 10, 2)]
    store.commit(a_round(gang, *nodes))
    assert store.jobs(["ee-1", "ee-1#10"]) == [gang, nodes[1]]
    assert ids_of_all_pages(store, JobFilter(parent=gang.id), 2) == ["ee-1#1", "ee-1#2", "ee-1#10"]
    assert store.find_job("ee") == ["ee-1"]
    assert store.find_job("ee-1#1") == ["ee-1#1"]
    assert set(store.find_job("ee-1#")) == {"ee-1#1", "ee-1#2", "ee-1#10"}
    assert {job.id for job in store.load().jobs} == {"ee-1", "ee-1#1", "ee-1#2", "ee-1#10"}
    ended = [replace(job, state=SUCCEEDED, stopped_at=NOW) for job in (gang, *nodes)]
    store.commit(a_round(*ended))
    changes = a_round()
    changes.purge = Purge(NOW + 1, 10)
    store.commit(changes)
    assert store.jobs(["ee-1", "ee-1#1", "ee-1#2", "ee-1#10"]) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_oldest_first_is_the_same_order_from_its_other_end(store, limit):
    jobs = [a_job(at=at, queue=queue) for at in (NOW, NOW + 5, NOW + 5, NOW - 3) for queue in "qr"]
    jobs += [a_job(SUCCEEDED, at=NOW + 5), a_job(FAILED, at=NOW - 9)]
    store.commit(a_round(*jobs))
    forwards = ids_of_all_pages(store, JobFilter(oldest_first=True), limit)
    assert forwards == list(reversed(ids_of_all_pages(store, JobFilter(), limit)))
    assert forwards[0] == jobs[-1].id
    assert len(forwards) == len(jobs)


def test_jobs_that_arrive_between_pages_come_at_the_end_when_the_oldest_are_first(store):
    jobs = [a_job(at=NOW + n) for n in range(5)]
    store.commit(a_round(*jobs))
    late = a_job(at=NOW + 100)
    found = ids_of_all_pages(store, JobFilter(oldest_first=True), 2, lambda: store.commit(a_round(late)))
    assert found == [job.id for job in (*jobs, late)]


def test_several_queues_are_one_list(store):
    jobs = [a_job(at=NOW + n, queue=queue) for n, queue in enumerate("abcab")]
    store.commit(a_round(*jobs))
    wanted = JobFilter(queues=("a", "c", "a", "none"))
    assert ids_of_all_pages(store, wanted, 2) == [jobs[n].id for n in (3, 2, 0)]
    assert ids_of_all_pages(store, JobFilter(queues=()), 2) == []
    assert ids_of_all_pages(store, JobFilter(queue="b", queues=("a",)), 2) == [jobs[4].id, jobs[1].id]
    assert ids_of_all_pages(store, JobFilter(queues=("a", "no\0queue")), 2) == []


def test_submissions_are_counted_by_time_and_state(store):
    span = (NOW, NOW + 300)
    jobs = [
        a_job(state, at=NOW + at)
        for state, at in ((RUNNABLE, 0), (SUCCEEDED, 99), (SUCCEEDED, 100), (FAILED, 299))
    ]
    other = a_job(SUCCEEDED, at=NOW + 100, queue="r", submitter=Submitter("vision"))
    store.commit(a_round(*jobs, other, a_job(SUCCEEDED, at=NOW + 300), a_job(SUCCEEDED, at=NOW - 1)))
    own = {(0, RUNNABLE): 1, (0, SUCCEEDED): 1, (1, SUCCEEDED): 1, (2, FAILED): 1}
    assert store.submitted(span, 100, None, "default") == own
    assert store.submitted(span, 100) == {**own, (1, SUCCEEDED): 2}
    assert store.submitted(span, 100, "r", "vision") == {(1, SUCCEEDED): 1}
    assert store.submitted(span, 100, "r", "default") == {}
    assert store.submitted(span, 100, "no\0queue") == {}


def test_whole_steps_count_the_same_as_jobs_finish_and_are_purged(store):
    step = 2 * SLOT_MS
    begin = NOW // step * step
    span = (begin, begin + 5 * step)
    jobs = [a_job(RUNNABLE, at=begin + n * 77_777) for n in range(40)]
    store.commit(a_round(*jobs))

    def counted():
        expected = Counter(((job.created_at - begin) // step, job.state) for job in jobs)
        return {key: number for key, number in expected.items() if key[0] < 5}

    assert store.submitted(span, step) == counted()
    for number, job in enumerate(jobs[:30]):
        job.state = FAILED if number % 3 else SUCCEEDED
        job.stopped_at = NOW + number
    store.commit(a_round(*jobs[:30]))
    assert store.submitted(span, step) == counted()
    store.commit(a_round(purge=Purge(before=NOW + 10, limit=100)))
    del jobs[:10]
    assert store.submitted(span, step) == counted()
    assert store.submitted((span[0] + 1, span[1]), step)  # Off the grid, rows are counted.
