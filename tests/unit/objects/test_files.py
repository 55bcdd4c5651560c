"""What only a store of files has: unfinished puts, directories, owners."""

from __future__ import annotations

import os
import time

import pytest

from windfall.objects.errors import BadUri, NotFound
from windfall.objects.files import ABANDONED_S, INCOMING
from windfall.objects.opening import open_objects


@pytest.fixture
def objects(tmp_path):
    return open_objects(f"file://{tmp_path}/store")


def test_an_unfinished_put_is_no_object_and_an_abandoned_one_is_removed(objects, tmp_path):
    objects.put("a/b", b"1")
    recent, old = (tmp_path / "store" / "a" / f"{INCOMING}{name}" for name in ("recent", "old"))
    recent.write_bytes(b"half")
    old.write_bytes(b"half")
    long_ago = time.time() - ABANDONED_S - 60
    os.utime(old, (long_ago, long_ago))
    assert [entry.key for entry in objects.list()] == ["a/b"]
    assert recent.exists()
    assert not old.exists()


def test_objects_are_private_and_empty_directories_go(objects, tmp_path):
    objects.put("a/b/c", b"1")
    assert (tmp_path / "store" / "a" / "b" / "c").stat().st_mode & 0o077 == 0
    assert (tmp_path / "store" / "a").stat().st_mode & 0o077 == 0
    objects.delete(["a/b/c"])
    assert list((tmp_path / "store").iterdir()) == []


def test_a_name_cannot_be_an_object_and_a_directory_of_others(objects):
    objects.put("a/b", b"1")
    with pytest.raises(BadUri, match="choose another name"):
        objects.put("a", b"2")
    with pytest.raises(BadUri, match="choose another name"):
        objects.put("a/b/c", b"3")
    with pytest.raises(NotFound):
        objects.get("a")
    objects.delete(["a"])
    assert objects.head("a") is None
    assert [entry.key for entry in objects.list()] == ["a/b"]


def test_links_in_the_store_are_not_objects(objects, tmp_path):
    objects.put("a", b"1")
    (tmp_path / "store" / "link").symlink_to("/etc/hostname")
    (tmp_path / "store" / "loop").symlink_to(tmp_path / "store")
    assert [entry.key for entry in objects.list()] == ["a"]


@pytest.mark.parametrize("with_base", [False, True])
def test_nothing_is_below_an_object_and_nothing_can_be_where_one_is_in_the_way(tmp_path, with_base: bool):
    (tmp_path / "one.csv").write_text("1")
    base = tmp_path if with_base else None
    assert list(open_objects(f"file://{tmp_path}/one.csv", base=base).list()) == []
    with pytest.raises(BadUri, match="choose another name"):
        list(open_objects(f"file://{tmp_path}/one.csv", base=base).list("below"))
    with pytest.raises(BadUri, match="choose another name"):
        list(open_objects(f"file://{tmp_path}/one.csv/below", base=base).list())
