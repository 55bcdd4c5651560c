"""A store has a name that it keeps, and somebody who expects another one changes nothing."""

from __future__ import annotations

import sqlite3

import pytest

from tests.conformance.conftest import Place
from tests.conformance.store_builders import a_job, a_round
from windfall.store.coordination import Presence
from windfall.store.errors import OtherStore, StoreReplaced
from windfall.store.opening import open_store


def test_a_store_keeps_its_identity(place: Place):
    first = place.open().identity
    assert first
    assert place.open().identity == first
    assert place.reopened().identity == first
    store = open_store(place.url, expected=first)
    store.commit(a_round(a_job()))
    store.close()


def test_another_store_than_expected_is_refused_and_left_as_it_is(place: Place):
    job = a_job()
    store = place.open()
    store.commit(a_round(job))
    place.close()
    with pytest.raises(OtherStore) as refused:
        open_store(place.url, expected="somebody-elses")
    assert refused.value.identity == store.identity
    assert place.open().load().jobs == [job]


def test_a_database_without_a_store_is_not_begun_where_one_is_expected(place: Place, tmp_path):
    with pytest.raises(OtherStore) as refused:
        open_store(place.url, expected="somebody-elses")
    assert refused.value.identity is None
    if place.server is None:
        assert list(tmp_path.iterdir()) == []
    else:
        tables = f"SELECT count(*) FROM pg_tables WHERE schemaname = '{_schema(place)}'"
        assert place.server.execute(tables) == [(0,)]


def test_an_empty_file_is_no_store(tmp_path):
    (tmp_path / "windfall.db").touch()
    with pytest.raises(OtherStore) as refused:
        open_store(str(tmp_path / "windfall.db"), expected="mine")
    assert refused.value.identity is None
    assert (tmp_path / "windfall.db").stat().st_size == 0


def test_a_store_of_an_earlier_windfall_gets_a_name(tmp_path):
    file = tmp_path / "windfall.db"
    open_store(str(file)).close()
    connection = sqlite3.connect(file)
    connection.execute("DROP TABLE store_identity")
    connection.commit()
    connection.close()
    store = open_store(str(file))
    name = store.identity
    store.close()
    again = open_store(str(file))
    assert again.identity == name != ""
    again.close()


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_database_that_was_made_again_is_not_led(place: Place):
    store = place.open()
    assert store.coordination is not None
    assert place.server is not None
    leadership = store.coordination.leadership
    leadership.join(Presence("one", "http://one", 1), 5.0)
    leadership.look()
    place.server.execute(f"UPDATE {_schema(place)}.leadership SET identity = 'another'")
    with pytest.raises(StoreReplaced, match="another store"):
        leadership.look()
    with pytest.raises(StoreReplaced, match="another store"):
        leadership.take(0)


def _schema(place: Place) -> str:
    return place.url.rpartition("%3D")[2]
