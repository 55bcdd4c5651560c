"""Plain names below the prefix, as SageMaker has them."""

from __future__ import annotations

import pytest

from tests.unit.agent.sync.memory_objects import MemoryObjects
from tests.unit.agent.sync.trees import Harness, contents
from windfall.objects.errors import Unreachable
from windfall.objects.opening import open_objects


@pytest.fixture
def store():
    return MemoryObjects()


@pytest.fixture
def job(tmp_path, store):
    (tmp_path / "checkpoints").mkdir()
    return Harness(tmp_path / "checkpoints", store, publish=True)


def test_files_appear_under_their_own_names_and_vanish_with_them(job, store):
    job.write("model/weights", b"more than eight bytes")
    job.write("small", b"1")
    job.write("empty", b"")
    job.settle()
    assert store.plain() == contents(job.directory)
    (job.directory / "small").unlink()
    job.write("model/weights", b"other bytes, as many!")
    job.settle()
    job.pass_once()
    assert store.plain() == contents(job.directory)


def test_only_what_changed_is_put_again(job, store):
    job.write("a", b"1")
    job.write("b", b"2")
    job.settle()
    store.calls.clear()
    job.write("b", b"3")
    job.settle()
    assert [key for call, key in store.calls if call == "copy"] == ["b"]


def test_objects_that_the_job_never_had_are_left_alone(job, store):
    job.write("a", b"1")
    job.settle()
    store.put("notes.txt", b"the user's own")
    (job.directory / "a").unlink()
    job.settle()
    job.pass_once()
    assert store.plain() == {"notes.txt": b"the user's own"}


def test_a_users_own_objects_are_restored_and_then_kept_in_step(job, store):
    store.put("epoch-1.pt", b"weights of before")
    store.put("sub/config.json", b"{}")
    store.put("sub", b"")  # what a console makes to stand for a directory
    restored = job.sync.restore()
    assert contents(job.directory) == {"epoch-1.pt": b"weights of before", "sub/config.json": b"{}"}
    assert restored.mark is not None
    assert (restored.files, restored.bytes) == (2, 19)
    store.calls.clear()
    (job.directory / "epoch-1.pt").unlink()
    job.write("epoch-2.pt", b"new")
    job.settle()
    job.pass_once()
    assert store.plain() == {"epoch-2.pt": b"new", "sub/config.json": b"{}", "sub": b""}
    assert "sub/config.json" not in [key for call, key in store.calls if call in ("put", "copy")]


def test_a_name_that_was_put_before_a_failure_is_not_forgotten(job, store):
    job.write("a", b"1")
    job.pass_once()

    def fail_after_a(call: str, key: str) -> None:
        if call == "put" and key.endswith("published.json") and "a" in store.objects:
            raise Unreachable("away")

    store.fail = fail_after_a
    job.pass_once()
    assert "a" in store.plain()
    store.fail = lambda _call, _key: None
    (job.directory / "a").unlink()
    job.write("b", b"2")
    job.sync = job.another(1)
    job.flush()
    assert store.plain() == {"b": b"2"}


def test_a_directory_may_become_a_file_in_a_store_of_files(tmp_path):
    job = Harness(tmp_path / "checkpoints", open_objects(f"file://{tmp_path}/store"), publish=True)
    job.write("a/b", b"1")
    job.settle()
    (job.directory / "a" / "b").unlink()
    (job.directory / "a").rmdir()
    job.write("a", b"2")
    synced = job.flush()
    assert synced.alarm is None
    assert (tmp_path / "store" / "a").read_bytes() == b"2"
    (job.directory / "a").unlink()
    job.write("a/c", b"3")
    assert job.flush().alarm is None
    assert (tmp_path / "store" / "a" / "c").read_bytes() == b"3"


def test_a_name_that_is_no_utf8_is_kept_but_not_published(job, store):
    job.write("odd-\udcff", b"1")
    job.settle()
    assert store.plain() == {}
    assert job.restored() == {"odd-\udcff": b"1"}
    assert len(job.said("left-out")) == 1
