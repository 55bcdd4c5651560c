"""Which migrations are still to be applied, and how a script falls into statements."""

from __future__ import annotations

import pytest

from windfall.store.errors import NewerDatabase
from windfall.store.migrations import Migration, migrations_in, pending
from windfall.store.sqlite.opening import statements

KNOWN = [Migration(n, f"m{n}", "") for n in (1, 2, 3)]


def test_what_is_missing_is_applied_in_order():
    assert pending(KNOWN, [], "db") == KNOWN
    assert pending(KNOWN, [1], "db") == KNOWN[1:]
    assert pending(KNOWN, [1, 2, 3], "db") == []


def test_a_database_ahead_of_the_code_is_refused_with_both_numbers():
    with pytest.raises(NewerDatabase, match="its schema is 4, this one knows up to 3") as refused:
        pending(KNOWN, [1, 2, 3, 4], "db")
    assert (refused.value.schema, refused.value.newest) == (4, 3)


@pytest.mark.parametrize("package", ["windfall.store.sqlite", "windfall.store.postgres"])
def test_files_are_numbered_from_one_without_a_gap(package):
    found = migrations_in(package)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    assert all(migration.sql.strip() for migration in found)


def test_a_script_falls_into_statements_and_a_trigger_stays_whole():
    script = (
        "-- a comment; with a semicolon\nCREATE TABLE a (x TEXT DEFAULT ';');\n\n"
        "CREATE TRIGGER t AFTER INSERT ON a\nBEGIN\n    DELETE FROM a;\n    DELETE FROM a;\nEND;\nSELECT 1"
    )
    first, second, third = statements(script)
    assert "CREATE TABLE" in first
    assert second.strip().endswith("END;")
    assert third == "SELECT 1"
