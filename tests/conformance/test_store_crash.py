"""What was acknowledged survives; what was not is there whole or not at all; after a failure work goes on."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.store_builders import NOW, a_job, a_round, an_array
from tests.conformance.store_committer import ADDED, CHANGED
from tests.small_disk import mounted_at
from tests.waiting import wait_until
from windfall.control.changes import Changes
from windfall.control.ports import JobFilter
from windfall.jobs.states import RUNNABLE, RUNNING
from windfall.store.errors import CommitFailed
from windfall.store.sqlite.opening import open_sqlite

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rounds", [1, 7, 40])
def test_a_committer_that_is_killed_loses_no_acknowledged_round_and_leaves_no_half_one(place, rounds):
    place.open()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "tests.conformance.store_committer", place.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as child:
        assert child.stdout is not None
        acknowledged = [int(child.stdout.readline()) for _ in range(rounds)]
        child.send_signal(signal.SIGKILL)
        # What it had written to the pipe before it died was acknowledged too; a torn last line cannot be.
        acknowledged += [int(line) for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL
    store = place.reopened()
    # One page is one snapshot: a server may still be busy with the last round of the killed client.
    jobs = store.list_jobs(JobFilter(queue="q"), 100_000, None).jobs
    (last,) = {job.status_reason for job in jobs if job.state is RUNNING}
    assert acknowledged[-1] <= int(last) <= acknowledged[-1] + 1
    added = Counter(job.submission.name for job in jobs if job.state is RUNNABLE)
    assert added == {f"round-{number}": ADDED for number in range(1, int(last) + 1)}
    assert len(jobs) == CHANGED + ADDED * int(last)
    assert len(store.log_streams("/aws/batch/job", "", 100_000, None)) >= int(last)
    store.commit(a_round(a_job(id="after")))
    assert store.jobs(["after"]) != []


def test_readers_see_whole_rounds_only_and_do_not_wait_for_the_writer(place):
    store = place.open()
    ids = [f"j{n}" for n in range(10)]
    jobs = [a_job(id=job_id, at=NOW) for job_id in ids]
    store.commit(a_round(*jobs))
    done, torn, seen = threading.Event(), [], Counter()

    def read() -> None:
        while not done.is_set():
            reasons = {job.status_reason for job in store.jobs(ids)}
            seen[threading.get_ident()] += 1
            if len(reasons) != 1:
                torn.append(reasons)

    readers = [threading.Thread(target=read) for _ in range(6)]
    for thread in readers:
        thread.start()
    for number in range(60):
        for job in jobs:
            job.status_reason = str(number)
        store.commit(a_round(*jobs))

    def read_while_writing(session) -> int:
        """Inside a write transaction: every reader still gets answers."""
        before = sum(seen.values())
        wait_until(lambda: sum(seen.values()) > before + 6, "readers to go on during a commit")
        return before

    assert store._database.write(read_while_writing) > 0
    done.set()
    for thread in readers:
        thread.join(60)
    assert len(seen) == 6
    assert torn == []


def test_commits_from_several_threads_are_one_after_the_other(store):
    failures: list[BaseException] = []

    def commit(first: int) -> None:
        try:
            for n in range(first, 100, 4):
                store.commit(a_round(a_job(id=str(n), order=n)))
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    loaded = store.load()
    assert [job.id for job in loaded.jobs] == [str(n) for n in range(100)]
    assert loaded.last_order == 99


def test_an_error_in_the_middle_of_a_round_leaves_nothing_of_it(store):
    kept = a_job(order=1)
    store.commit(a_round(kept))

    def write_and_fail(session) -> None:
        session.rows("DELETE FROM jobs")
        session.rows("SELECT * FROM nowhere")

    with pytest.raises(CommitFailed, match="nowhere"):
        store._database.write(write_and_fail)
    assert store.load().jobs == [kept]
    store.commit(a_round(a_job(order=2)))
    assert len(store.load().jobs) == 2


def test_a_full_disk_is_an_error_and_afterwards_work_goes_on(tmp_path):
    with closing(open_sqlite(tmp_path / "windfall.db")) as store:
        kept = a_job(order=1)
        store.commit(a_round(kept))
        writer = store._database._writer
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        big = [a_job(document="x" * 1000, order=100) for _ in range(200)]
        with pytest.raises(CommitFailed, match="Free some space"):
            store.commit(a_round(kept, *big))
        assert store.load().jobs == [kept]
        assert store.load().last_order == 1
        assert store.counts() == {("q", RUNNABLE): 1}
        writer.execute(f"PRAGMA max_page_count = {pages + 10_000}")
        store.commit(a_round(*big))
        assert len(store.load().jobs) == 201
        assert store.load().last_order == 100


def test_a_real_full_file_system_is_an_error_and_afterwards_work_goes_on(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    with mounted_at(small, "size=2m"), closing(open_sqlite(small / "windfall.db")) as store:
        kept = a_job(order=1)
        store.commit(a_round(kept))
        with pytest.raises(CommitFailed):
            store.commit(a_round(*[a_job(document="x" * 1000) for _ in range(4000)]))
        assert store.load().jobs == [kept]
        another = a_job(order=2)
        store.commit(a_round(another))
        assert store.load().jobs == [kept, another]


def test_a_file_locked_by_another_program_is_an_error_and_afterwards_work_goes_on(tmp_path):
    path = tmp_path / "windfall.db"
    with closing(open_sqlite(path, busy_timeout_s=0.05)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CommitFailed, match="End the other program"):
                store.commit(a_round(a_job()))
            assert store.load().jobs == []
            other.execute("ROLLBACK")
        store.commit(a_round(a_job()))
        assert len(store.load().jobs) == 1


def test_the_embedded_store_survives_a_power_cut_by_its_settings(tmp_path):
    with closing(open_sqlite(tmp_path / "windfall.db")) as store:
        writer = store._database._writer
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)


# The server drops connections -----------------------------------------------------------------------------


#: A file has no connections to lose.
on_a_server = pytest.mark.parametrize("place", ["postgres"], indirect=True)


def drop(place, pid: int) -> None:
    place.server.execute(f"SELECT pg_terminate_backend({pid})")
    wait_until(
        lambda: place.server.execute(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}") == [],
        "the connection's end",
    )


def pid_of(session) -> int:
    return session.rows("SELECT pg_backend_pid()")[0][0]


@on_a_server
def test_a_commit_in_flight_raises_when_the_server_drops_it_and_the_next_one_works(place):
    store = place.open()

    def cut_off(session) -> None:
        session.rows("INSERT INTO highest (name, number) VALUES ('order', 5)")
        drop(place, pid_of(session))
        session.rows("SELECT 1")

    with pytest.raises(CommitFailed, match="not acknowledged"):
        store._database.write(cut_off)
    job = a_job()
    store.commit(a_round(job))
    assert store.load().jobs == [job]
    assert store.load().last_order == 0


@on_a_server
def test_idle_connections_that_the_server_dropped_are_replaced_unseen(place):
    store = place.open()
    store.commit(a_round(a_job(id="1", order=1)))
    for pid in {store._database.write(pid_of), store._database.read(pid_of)}:
        drop(place, pid)
    store.commit(a_round(a_job(id="2", order=2)))
    assert [job.id for job in store.load().jobs] == ["1", "2"]


@on_a_server
def test_a_server_that_is_set_to_lose_commits_is_overruled(place):
    url = place.url
    lax = f"{url}%20-csynchronous_commit%3Doff"
    from windfall.store.postgres.opening import open_postgres

    with closing(open_postgres(lax)) as store:
        assert store._database.write(lambda session: session.rows("SHOW synchronous_commit")) == [("on",)]


def test_an_empty_change_after_a_failure_is_no_transaction(store):
    array = an_array(3)
    store.commit(a_round(array))
    assert list(store.commit(Changes())) == []
    assert store.load().jobs == [array]
