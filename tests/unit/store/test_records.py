"""Domain values become text and come back; of a job, only what is not a column stands in the record."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from tests.conformance.store_builders import NOW, a_child, a_job, an_array, an_attempt, any_job
from windfall.jobs.states import RUNNABLE
from windfall.store import tables
from windfall.store.errors import DamagedRecord, Unstorable
from windfall.store.records import JobReader, encoded, job_record, queues
from windfall.store.rounds import rows_of_round
from windfall.store.tables import Row


def as_read(row: Row, parents_submission: str | None = None) -> Row:
    """A row in the order in which JobReader wants it."""
    by_name = dict(zip(tables.JOBS.columns, row, strict=True))
    columns = ("id", "parent", "child_index", "state", "created_at", "stopped_at", "ord", "record")
    return (*(by_name[column] for column in columns), by_name["submission"] or parents_submission)


def rows_of(*jobs) -> list[Row]:
    from windfall.control.changes import Changes

    (written,) = rows_of_round(Changes(jobs={job.id: job for job in jobs})).writes
    return written[1]


@given(job=any_job())
def test_any_job_comes_back_equal(job):
    (row,) = rows_of(job)
    assert JobReader().job(as_read(row)) == job


def test_a_record_leaves_out_columns_and_defaults():
    job = a_job(RUNNABLE, order=5)
    assert json.loads(job_record(job)) == {}
    job.attempts.append(an_attempt(job))
    job.status_reason = "because"
    assert set(json.loads(job_record(job))) == {"attempts", "status_reason"}


def test_a_child_takes_no_room_for_its_submission_and_shares_its_arrays():
    array = an_array(3, document="x" * 5000)
    child = a_child(array, 2)
    rows = rows_of(child, array)
    assert rows[0][-1] is None
    assert sum(len(value) for value in rows[0] if isinstance(value, str)) < 200
    reader = JobReader()
    first = reader.job(as_read(rows[0], rows[1][-1]))
    second = reader.job(as_read(rows[1]))
    assert (first, second) == (child, array)
    assert first.submission is second.submission


def test_a_child_without_its_array_is_a_damage_that_is_named():
    child = a_child(an_array(3), 2)
    with pytest.raises(DamagedRecord, match=f"{child.id} but not its array {child.parent}"):
        JobReader().job(as_read(rows_of(child)[0]))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 1}'])
def test_a_record_that_is_none_is_a_damage(text):
    with pytest.raises(DamagedRecord, match="cannot be read"):
        queues.decoded(text)


@pytest.mark.parametrize("value", ["\ud800", object()])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(Unstorable, match="cannot be stored"):
        encoded({"a": value})


def test_a_field_with_a_default_that_an_old_record_lacks_has_its_default():
    row = as_read(rows_of(a_job(at=NOW, id="old"))[0])
    job = JobReader().job((*row[:7], "{}", row[8]))
    assert (job.attempts, job.cancelled, job.status_reason) == ([], False, None)
