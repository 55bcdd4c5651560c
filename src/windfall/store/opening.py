"""From a URL to an open store. Decides which database it is, and imports no other one."""

from __future__ import annotations

from pathlib import Path

from windfall.store.errors import BadStoreUrl, MissingDriver
from windfall.store.sql_store import SqlStore

_POSTGRES = ("postgresql://", "postgres://")
_SQLITE = "sqlite://"


def open_store(url: str, expected: str | None = None) -> SqlStore:
    """The store at `sqlite:///absolute/path`, a plain path, or `postgresql://...`, brought up to date.

    `expected` is the identity that the store must have: OtherStore is raised, before anything is made or changed, where
    another one is there, or none.
    """
    if url.startswith(_POSTGRES):
        try:
            from windfall.store.postgres.opening import open_postgres
        except ImportError as error:
            raise MissingDriver(str(error)) from error
        return open_postgres(url, expected=expected)
    path = url.removeprefix(_SQLITE)
    if not path.strip("/ ") or "\0" in path or "://" in path or (path != url and not path.startswith("/")):
        raise BadStoreUrl(url)
    from windfall.store.sqlite.opening import open_sqlite

    # A URL may have any number of slashes before the path; messages name it with one.
    return open_sqlite(Path(f"/{path.lstrip('/')}" if path.startswith("/") else path), expected=expected)
