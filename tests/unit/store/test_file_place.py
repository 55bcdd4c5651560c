"""A SQLite file that is removed, emptied or replaced while it is open: the next commit is refused and says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.store_builders import a_job, a_round
from windfall.store.errors import StoreReplaced
from windfall.store.opening import open_store
from windfall.store.sqlite.database import SqliteDatabase


def _remove(file: Path) -> None:
    file.unlink()


def _remove_with_folder(file: Path) -> None:
    shutil.rmtree(file.parent)


def _empty(file: Path) -> None:
    os.truncate(file, 0)


def _move_another_there(file: Path) -> None:
    another(file).rename(file)


def _copy_another_over(file: Path) -> None:
    shutil.copyfile(another(file), file)


def _cut(file: Path) -> None:
    os.truncate(file, 4096 * 2)


def _write_nonsense(file: Path) -> None:
    file.write_bytes(b"nonsense" * 10_000)


def _remove_the_log(file: Path) -> None:
    Path(f"{file}-wal").unlink()


def another(file: Path) -> Path:
    other = file.with_name("other.db")
    store = open_store(str(other))
    store.commit(a_round(a_job()))
    store.close()
    return other


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_remove, "was removed"),
        (_remove_with_folder, "was removed"),
        (_empty, "was emptied"),
        (_move_another_there, "replaced by another file"),
        (_copy_another_over, "written over"),
        (_cut, "written over"),
        (_write_nonsense, "written over"),
        (_remove_the_log, "write-ahead log"),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_a_file_that_is_gone_is_noticed(
    tmp_path: Path, harm: Callable[[Path], None], words: str, committed: bool
):
    (tmp_path / "store").mkdir()
    file = tmp_path / "store" / "windfall.db"
    store = open_store(str(file))
    if committed:
        store.commit(a_round(a_job()))
    store.verify()
    harm(file)
    with pytest.raises(StoreReplaced, match=f"{file} .*{words}"):
        store.verify()
    with pytest.raises(StoreReplaced):
        store.commit(a_round(a_job()))
    store.close()
    assert not file.exists() or file.stat().st_size != 4096, "no new file is begun there"


def test_what_others_may_do_with_the_file_is_no_harm(tmp_path: Path):
    file = tmp_path / "windfall.db"
    store = open_store(str(file))
    store.commit(a_round(a_job()))
    other = sqlite3.connect(file)
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    store.commit(a_round(a_job()))
    other.execute("VACUUM")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    store.verify()
    store.commit(a_round(a_job()))
    assert len(store.load().jobs) == 3
    store.close()


def test_many_commits_move_the_log_into_the_file_and_nothing_is_suspected(tmp_path: Path):
    store = open_store(str(tmp_path / "windfall.db"))
    connection = sqlite3.connect(tmp_path / "windfall.db")
    for _ in range(20):
        store.commit(a_round(*(a_job() for _ in range(20))))
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        store.verify()
    connection.close()
    store.close()


def test_a_message_names_the_file_as_people_write_it(tmp_path: Path):
    store = open_store(f"sqlite:///{tmp_path}/windfall.db")
    assert store.where == f"{tmp_path}/windfall.db"
    store.close()


def test_a_look_does_not_wait_for_a_commit(tmp_path: Path):
    database = SqliteDatabase(tmp_path / "windfall.db")
    begun, go = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        begun.set()
        assert go.wait(60)

    committing = threading.Thread(target=database.write, args=(slow,))
    committing.start()
    try:
        assert begun.wait(60)
        database.verify()
    finally:
        go.set()
        committing.join()
        database.close()
