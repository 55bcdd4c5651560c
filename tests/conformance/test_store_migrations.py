"""A database is brought up to date step by step, each whole or not at all; one from the future is refused."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.conformance.store_builders import a_job, a_round
from windfall.control.ports import JobFilter
from windfall.jobs.submitters import Submitter
from windfall.store.errors import CannotOpen, NewerDatabase
from windfall.store.migrations import Migration, migrations_in
from windfall.store.records import encoded


def known(place) -> tuple[Migration, ...]:
    return migrations_in("windfall.store.sqlite" if place.is_sqlite else "windfall.store.postgres")


def with_more(place, *sql: str) -> list[Migration]:
    own = known(place)
    return [*own, *(Migration(len(own) + n, f"more_{n}", text) for n, text in enumerate(sql, start=1))]


def asked(store, sql: str) -> list[tuple]:
    return store._database.read(lambda session: session.rows(sql))


def test_opening_again_changes_nothing(place):
    job = a_job()
    place.open().commit(a_round(job))
    before = asked(place.open(), "SELECT number, name FROM schema_migrations ORDER BY number")
    assert before == [(it.number, it.name) for it in known(place)]
    store = place.reopened()
    assert asked(store, "SELECT number, name FROM schema_migrations ORDER BY number") == before
    assert store.load().jobs == [job]


def test_a_later_migration_is_applied_to_an_existing_database(place):
    job = a_job()
    place.open().commit(a_round(job))
    place.close()
    store = place.open(
        with_more(place, "ALTER TABLE jobs ADD COLUMN extra BIGINT DEFAULT 7;\nCREATE TABLE t (x INT);")
    )
    assert asked(store, "SELECT extra FROM jobs") == [(7,)]
    assert store.load().jobs == [job]


def test_a_database_of_a_newer_windfall_is_refused(place):
    newer = with_more(place, "CREATE TABLE from_the_future (x INT);")
    place.open(newer)
    place.close()
    with pytest.raises(
        NewerDatabase, match=f"its schema is {len(newer)}, this one knows up to {len(newer) - 1}"
    ):
        place.open()
    place.open(newer)


def test_a_migration_that_fails_leaves_nothing_of_itself_and_can_be_repeated(place):
    place.open().commit(a_round(a_job()))
    place.close()
    good, bad = "CREATE TABLE good (x INT);", "CREATE TABLE half (x INT);\nINSERT INTO nowhere VALUES (1);"
    with pytest.raises(CannotOpen, match="nowhere"):
        place.open(with_more(place, good, bad))
    place.close()
    store = place.open(with_more(place, good, "CREATE TABLE half (x INT);"))
    assert asked(store, "SELECT COUNT(*) FROM half") == [(0,)]
    assert len(asked(store, "SELECT number FROM schema_migrations")) == len(known(place)) + 2


def test_records_of_earlier_versions_keep_their_tenant(place):
    jobs = [a_job(), a_job()]
    store = place.open(known(place)[:6])
    store.commit(a_round(*jobs))
    for job, tenant in zip(jobs, ("default", "vision"), strict=True):
        old = (
            encoded(job.submission)
            .replace(encoded(job.submission.submitter), "null")
            .replace("submitter", "was")
        )
        text = old.removesuffix("}") + f', "tenant": "{tenant}"}}'
        store._database.write(
            lambda session, text=text, job=job: session.rows(
                "UPDATE jobs SET submission = ? WHERE id = ? RETURNING id", (text, job.id)
            )
        )
    place.close()
    found = place.open().load().jobs
    assert [job.submission.submitter for job in found] == [Submitter("default"), Submitter("vision")]


def test_daemons_that_start_at_once_migrate_once(place):
    failures: list[BaseException] = []
    gate = threading.Barrier(4)

    def start() -> None:
        try:
            gate.wait(30)
            place.open()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len(asked(place.open(), "SELECT number FROM schema_migrations")) == len(known(place))


def test_both_dialects_have_the_same_migrations():
    sqlite, postgres = migrations_in("windfall.store.sqlite"), migrations_in("windfall.store.postgres")
    assert [(it.number, it.name) for it in sqlite] == [(it.number, it.name) for it in postgres]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_no_question_that_must_stay_quick_reads_the_whole_table_of_jobs(store):
    plans: list[str] = []
    connection = store._database._readers._connect()
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    store._database._readers._idle.append(connection)
    store.commit(a_round(a_job(), a_job(name="x")))
    store.jobs(["a"])
    store.find_job("abc")
    store.counts()
    store.list_jobs(JobFilter(), 10, "1-1")
    store.list_jobs(JobFilter(queue="q", name="x"), 10, None)
    store.list_jobs(JobFilter(queue="q", name="x", name_is_prefix=True), 10, None)
    store.list_jobs(JobFilter(parent="p"), 10, None)
    store.log_groups()
    store.load()
    connection.set_trace_callback(None)
    for statement in statements:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            plans += [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert any("jobs_by_state" in plan for plan in plans)
    scans = [
        p for p in plans if p.startswith("SCAN") and ("jobs" in p or p.split()[1] in "j p child array_job")
    ]
    assert [plan for plan in scans if "jobs_live" not in plan] == []


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    from windfall.store.sqlite.opening import open_sqlite

    other = tmp_path / "notes.txt"
    other.write_text("not a database, but long enough to be read as the header of one. " * 40)
    with pytest.raises(CannotOpen, match="none of another program"):
        open_sqlite(other)
    with pytest.raises(CannotOpen, match="folder must exist"):
        open_sqlite(tmp_path / "missing" / "windfall.db")


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path):
    import sqlite3
    from contextlib import closing

    from windfall.store.sqlite.opening import open_sqlite

    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(CannotOpen, match="another program"):
        open_sqlite(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_the_file_is_closed_to_other_users_and_no_name_is_special(tmp_path: Path, monkeypatch):
    from windfall.store.sqlite.opening import open_sqlite

    monkeypatch.chdir(tmp_path)
    store = open_sqlite(Path(":memory:"))
    store.commit(a_round(a_job()))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    store.close()
    assert modes[":memory:"] == 0o600
    assert set(modes.values()) == {0o600}
