"""A look finds finished regular files, and never goes out of its directory."""

from __future__ import annotations

import os

import pytest

from windfall.agent.sync.scanning import has_stamp, is_unfinished, look_through, opened_below


def test_a_look_finds_files_and_directories(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "c").write_bytes(b"123")
    look = look_through(str(tmp_path))
    assert list(look.files) == ["a/c"]
    assert look.files["a/c"].stamp.bytes == 3
    assert set(look.directories) == {"a", "a/b"}


@pytest.mark.parametrize(
    ("name", "unfinished"),
    [
        ("model.tmp", True),
        ("model.part", True),
        ("model~", True),
        (".tmpx", True),
        (".step-000000001.tmp", True),
        ("model", False),
        (".hidden", False),
        ("tmp", False),
    ],
)
def test_names_that_say_themselves_that_they_are_being_written(name, unfinished):
    assert is_unfinished(name) is unfinished


def test_a_directory_that_was_swapped_for_a_link_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "d").symlink_to(outside)
    (inside / "f").symlink_to(outside / "secret")
    for path in ("d/secret", "f"):
        with pytest.raises(OSError, match=r"(?i)symbolic|directory"), opened_below(str(inside), path):
            pass
    assert look_through(str(inside)).files == {}


def test_a_pipe_does_not_block_whoever_opens_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError), opened_below(str(tmp_path), "pipe"):
        pass


def test_a_stamp_changes_with_the_file(tmp_path):
    (tmp_path / "a").write_text("1")
    stamp = look_through(str(tmp_path)).files["a"].stamp
    assert has_stamp(str(tmp_path), "a", stamp)
    (tmp_path / "b").write_text("1")
    (tmp_path / "b").rename(tmp_path / "a")
    assert not has_stamp(str(tmp_path), "a", stamp)
    (tmp_path / "a").unlink()
    assert not has_stamp(str(tmp_path), "a", stamp)


def test_what_lies_too_deep_is_told(tmp_path):
    deep = tmp_path
    for _ in range(70):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (reason,) = look_through(str(tmp_path)).odd.values()
    assert "deep" in reason


def test_a_directory_that_is_gone_is_told_from_an_empty_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        look_through(str(tmp_path / "gone"))
