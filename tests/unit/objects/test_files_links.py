"""No link below a directory of objects is followed, whatever is done there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.objects.errors import ObjectsError, Refused
from windfall.objects.files import FileObjects


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What must stay as it is."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_text("hidden")
    return directory


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "place"
    directory.mkdir()
    return directory


def objects(place: Path, below: str = "") -> FileObjects:
    return FileObjects(place / below, (place / below).as_uri(), base=place)


def test_a_directory_that_is_a_link_leads_nowhere(place: Path, outside: Path, tmp_path: Path):
    (place / "chunks").symlink_to(outside)
    store = objects(place)
    for touch in (
        lambda: store.get("chunks/secret"),
        lambda: store.get_range("chunks/secret", 0, 9),
        lambda: store.get_file("chunks/secret", tmp_path / "brought"),
        lambda: store.get_into("chunks/secret", 2),
        lambda: store.head("chunks/secret"),
        lambda: store.put("chunks/8a", b"mine"),
        lambda: store.put("chunks/8a", b"mine", create_only=True),
        lambda: store.put_pieces("chunks/deep/er", [b"mine"]),
        lambda: store.put_file("chunks/8a", __file__),
        lambda: store.copy("chunks/secret", "copied"),
        lambda: list(store.list("chunks")),
    ):
        with pytest.raises(Refused, match="links are not followed"):
            touch()
    with pytest.raises(Refused):
        store.delete(["chunks/secret"])
    assert list(store.list()) == []
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "hidden"}
    assert not (tmp_path / "brought").exists()


def test_an_object_that_is_a_link_is_none(place: Path, outside: Path):
    (place / "x").symlink_to(outside / "secret")
    store = objects(place)
    with pytest.raises(Refused, match="links are not followed"):
        store.get("x")
    assert store.head("x") is None
    assert list(store.list()) == []
    store.put("x", b"mine")
    assert (outside / "secret").read_text() == "hidden"
    assert store.get("x") == b"mine"


def test_a_link_on_the_way_to_the_directory_leads_nowhere(place: Path, outside: Path):
    (place / "a").mkdir()
    (place / "a" / "b").symlink_to(outside)
    store = objects(place, "a/b")
    with pytest.raises(Refused):
        store.put("x", b"mine")
    with pytest.raises(Refused):
        list(store.list())
    (place / "a" / "c").symlink_to(outside / "missing")
    with pytest.raises(ObjectsError):
        objects(place, "a/c/d").put("x", b"mine")
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_links_above_the_place_are_the_administrators(place: Path, tmp_path: Path):
    linked = tmp_path / "linked"
    linked.symlink_to(place)
    objects(linked, "a").put("x", b"1")
    assert (place / "a" / "x").read_bytes() == b"1"


def test_a_pipe_holds_nobody_up(place: Path):
    os.mkfifo(place / "pipe")
    store = objects(place)
    with pytest.raises(ObjectsError):
        store.get("pipe")
    assert store.head("pipe") is None


def test_deleting_never_removes_more_than_empty_directories_below(place: Path, outside: Path):
    store = objects(place, "root")
    store.put("a/b/x", b"1")
    store.put("a/y", b"1")
    store.delete(["a/b/x"])
    assert not (place / "root" / "a" / "b").exists()
    store.delete(["a/y", "never/there"])
    assert (place / "root").is_dir()
