"""Which store a URL means, and what is said when it means none."""

from __future__ import annotations

import sys

import pytest

from tests.conformance.store_builders import a_job, a_round
from windfall.store.errors import BadStoreUrl, CannotOpen, MissingDriver
from windfall.store.opening import open_store


def test_a_url_and_a_plain_path_are_the_same_file(tmp_path, monkeypatch):
    job = a_job()
    store = open_store(f"sqlite://{tmp_path}/a name with 100% #?.db")
    store.commit(a_round(job))
    store.close()
    monkeypatch.chdir(tmp_path)
    for plain in (str(tmp_path / "a name with 100% #?.db"), "a name with 100% #?.db"):
        store = open_store(plain)
        assert store.load().jobs == [job]
        store.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "/",
        "sqlite://",
        "sqlite:///",
        "sqlite://relative.db",
        "mysql://host/x",
        "http://x",
        "a\0b",
        "pg://x",
    ],
)
def test_anything_else_is_refused_with_both_forms(url):
    with pytest.raises(BadStoreUrl, match=r"sqlite:///absolute/path.*postgresql://user@host"):
        open_store(url)


def test_a_refused_url_does_not_give_its_password_away():
    with pytest.raises(BadStoreUrl) as refused:
        open_store("mysql://me:secret@host/x")
    assert "secret" not in str(refused.value)


def test_without_the_driver_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("psycopg", "windfall.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDriver, match=r"pip install 'windfall-batch\[postgres\]'"):
        open_store("postgresql://host/database")


def test_a_server_that_does_not_answer_is_named_without_the_password(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(CannotOpen, match="does not answer") as refused:
        open_store(f"postgresql://me:secret@/jobs?host={tmp_path}")
    assert "database jobs" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_postgresql_url_that_cannot_be_read_says_so():
    pytest.importorskip("psycopg")
    with pytest.raises(CannotOpen, match="cannot be read") as refused:
        open_store("postgresql://me:secret@host/db?nonsense=1")
    assert "secret" not in str(refused.value)


def test_folders_are_not_made_behind_the_users_back(tmp_path):
    with pytest.raises(CannotOpen, match="folder must exist"):
        open_store(str(tmp_path / "no" / "folder.db"))
    assert list(tmp_path.iterdir()) == []
