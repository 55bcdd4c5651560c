"""A round's rows, before they meet a database."""

from __future__ import annotations

import pytest

from tests.conformance.store_builders import a_child, a_job, a_round, a_stream, an_array
from windfall.capacity.environments import JobQueue
from windfall.control.changes import Changes
from windfall.store import tables
from windfall.store.errors import Unstorable
from windfall.store.rounds import folded, rows_of_round, searchable


def test_only_tables_with_a_change_are_written():
    job = a_job(order=4)
    found = rows_of_round(a_round(job, streams=(a_stream(job),)))
    assert [table.name for table, _ in found.writes] == ["jobs", "log_streams"]
    assert found.removals == []
    assert found.highest_order == 4
    assert rows_of_round(Changes()).writes == []


def test_removed_things_are_keys_of_their_table():
    changes = Changes(
        queues={"a": None, "b": JobQueue("b", 1, ())}, definitions={"name:with:colons:12": None}
    )
    found = rows_of_round(changes)
    assert [(table.name, keys) for table, keys in found.removals] == [
        ("queues", [("a",)]),
        ("definitions", [("name:with:colons", 12)]),
    ]
    assert [table.name for table, _ in found.writes] == ["queues"]


def test_every_row_fits_its_table():
    array = an_array(5)
    found = rows_of_round(a_round(array, a_child(array, 1), streams=(a_stream(array),)))
    for table, rows in found.writes:
        assert {len(row) for row in rows} == {len(table.columns)}


def test_what_changes_of_a_job_is_no_part_of_its_identity():
    assert set(tables.JOBS.changing).isdisjoint(
        {"id", "parent", "child_index", "queue", "name", "created_at"}
    )
    assert "ON CONFLICT (id) DO UPDATE SET state = excluded.state" in tables.JOBS.on_conflict


@pytest.mark.parametrize("text", ["", "plain", "naïve", "名前", "😀", "\x01", "%'\""])
def test_ordinary_texts_are_searchable(text):
    assert searchable(text)


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "é\udfff"])
def test_texts_that_sql_cannot_hold_are_not(text):
    assert not searchable(text)
    with pytest.raises(Unstorable):
        rows_of_round(a_round(a_job(name=text)))


@pytest.mark.parametrize("name", ["ΟΔΟΣ", "İstanbul", "STRASSE", "ﬁne"])
def test_folding_keeps_prefixes(name):
    for length in range(len(name) + 1):
        assert folded(name).startswith(folded(name[:length]))
