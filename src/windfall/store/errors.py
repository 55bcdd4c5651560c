"""What the store tells its callers when it cannot do as asked.

StoreError
├── BadStoreUrl      the URL is of neither form
├── MissingDriver    psycopg is not installed
├── CannotOpen       the database cannot be reached, made or used
│   ├── NewerDatabase    a newer Windfall has written it
│   └── OtherStore       the database is not the store that was expected; nothing was changed
├── StoreReplaced    the database that was opened was removed, emptied or replaced; nothing may be written any more
├── Unstorable       a text or number that SQL cannot hold; nothing was written
├── CommitFailed     the round was not acknowledged; it is never there by half, and may be committed again
├── Superseded       another daemon leads; nothing was written
├── ReadFailed       a question could not be answered
├── BadPosition      `after` is none that a page has given
└── DamagedRecord          rows contradict each other
"""

from __future__ import annotations

import re


class StoreError(Exception):
    """Anything that goes wrong between Windfall and its database."""


class BadStoreUrl(StoreError):
    """The URL names no kind of store that exists."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{_without_password(url)!r} is not a store. Give a file, as sqlite:///absolute/path/windfall.db "
            "or a plain path, or a server, as postgresql://user@host/database"
        )


class MissingDriver(StoreError):
    """The PostgreSQL driver is an extra, and it is not installed."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"PostgreSQL needs the driver psycopg ({cause}). Install it: pip install 'windfall-batch[postgres]'"
            " (in a checkout: pip install '.[postgres]')"
        )


class CannotOpen(StoreError):
    """The database cannot be reached, made or used."""


class NewerDatabase(CannotOpen):
    """The database has migrations that this Windfall does not know."""

    def __init__(self, where: str, schema: int, newest: int) -> None:
        super().__init__(
            f"{where} was written by a newer Windfall (its schema is {schema}, this one knows up to {newest}). "
            "Start the newer Windfall, or give another store"
        )
        self.schema, self.newest = schema, newest


class OtherStore(CannotOpen):
    """The database is not the store that was expected. It was left as it is, or was not made."""

    def __init__(self, where: str, identity: str | None) -> None:
        what = "another store" if identity is not None else "no store of Windfall yet"
        super().__init__(f"{where} holds {what}")
        self.where = where
        #: The identity of the store that is there; None for an empty or missing database.
        self.identity = identity


class StoreReplaced(StoreError):
    """The database that was opened is no longer the one at its place; what is written now would be lost."""


class Unstorable(StoreError):
    """A text or number that SQL cannot hold; nothing was written."""


class CommitFailed(StoreError):
    """The round was not acknowledged. All of it is there or none; committing it again is safe."""


class Superseded(StoreError):
    """Another daemon leads now, so this one may not write.

    `committed` is about the round before, whose acknowledgement was lost: whether it had been written all the same.
    """

    def __init__(self, *, committed: bool) -> None:
        super().__init__("another Windfall daemon leads now; this one writes nothing until it leads again")
        self.committed = committed


class ReadFailed(StoreError):
    """A question could not be answered; nothing was changed."""


class BadPosition(StoreError, ValueError):
    """The position of a page is none that this store has given; a ValueError to who knows no store."""

    def __init__(self, after: str) -> None:
        super().__init__(f"{after!r} is not the position of a page. Begin again without one")


class DamagedRecord(StoreError):
    """Rows contradict each other: something else has written to the database."""


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url)
