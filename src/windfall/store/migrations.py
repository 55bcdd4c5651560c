"""Numbered SQL files that bring a database to the shape which the code expects.

Decides which are still to be applied and refuses a database that is ahead of the code. How one is applied in
a transaction is the dialect's business.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources

from windfall.store.errors import NewerDatabase

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")

#: Where applied migrations are recorded; the same in both dialects.
RECORD = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number BIGINT PRIMARY KEY,
    name   TEXT NOT NULL
)
"""
APPLIED = "SELECT number FROM schema_migrations ORDER BY number"
NOTE = "INSERT INTO schema_migrations (number, name) VALUES (?, ?)"


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: `0001_first.sql`."""

    number: int
    name: str
    sql: str


def migrations_in(package: str) -> tuple[Migration, ...]:
    """The migrations of a dialect, in order; a gap in their numbers is a defect."""
    migrations = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in resources.files(package).joinpath("migrations").iterdir()
        if (match := _FILE.fullmatch(file.name))
    ]
    migrations.sort(key=lambda migration: migration.number)
    assert [m.number for m in migrations] == list(range(1, len(migrations) + 1)), (
        f"migrations of {package} are not numbered 1, 2, ..."
    )
    return tuple(migrations)


def pending(migrations: Sequence[Migration], applied: Collection[int], where: str) -> list[Migration]:
    """Those to be applied, or NewerDatabase when the database has one that is not known."""
    newest = max((migration.number for migration in migrations), default=0)
    if applied and max(applied) > newest:
        raise NewerDatabase(where, max(applied), newest)
    return [migration for migration in migrations if migration.number not in applied]
