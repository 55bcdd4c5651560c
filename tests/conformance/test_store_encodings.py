"""A PostgreSQL database of any encoding holds every text as it was, or is refused before anything is written."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.postgres_server import Server
from tests.conformance.store_builders import a_job, a_round
from windfall.jobs.images import ImageMapping
from windfall.store.errors import CannotOpen
from windfall.store.opening import open_store
from windfall.store.sql_store import SqlStore

TEXTS = ("plain", "zażółć gęślą jaźń", "日本語", "🎉", "tab\tand\x7f")


@pytest.fixture
def database(postgres_server: Server) -> Iterator[Callable[[str], str]]:
    """Makes databases of an encoding; the answer is the URL."""
    made: list[str] = []

    def make(encoding: str) -> str:
        name = f"d{uuid.uuid4().hex}"
        postgres_server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        made.append(name)
        return postgres_server.url(database=name)

    yield make
    for name in made:
        postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _kept(store: SqlStore) -> list[str]:
    return sorted(image.pattern for image in store.load().images)


@pytest.mark.parametrize("client", ["", "&client_encoding=LATIN1"])
def test_a_database_that_knows_no_encoding_holds_every_text(database, client):
    url = database("SQL_ASCII") + client
    store = open_store(url)
    job = a_job()
    images = {text: ImageMapping(pattern=text, directory=None) for text in TEXTS}
    changes = a_round(job)
    changes.images.update(images)
    store.commit(changes)
    assert _kept(store) == sorted(TEXTS)
    assert isinstance(store.identity, str)
    store.close()
    again = open_store(url, expected=store.identity)
    assert (_kept(again), again.load().jobs) == (sorted(TEXTS), [job])
    again.close()


def test_a_database_that_lacks_characters_is_refused_with_what_to_do(database):
    url = database("LATIN1")
    with pytest.raises(CannotOpen, match=r"has the encoding LATIN1.*createdb --encoding UTF8") as refused:
        open_store(url)
    assert "\n" not in str(refused.value)
