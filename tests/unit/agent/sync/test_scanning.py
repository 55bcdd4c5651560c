"""A look finds finished regular files, and never goes out of its directory."""

from __future__ import annotations

import os

import pytest

from tests.deep import deep_directory
from windfall.agent.sync.scanning import LONGEST_BYTES, is_unfinished, look_through, opened_below


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
    look = look_through(str(tmp_path))
    assert look_through(str(tmp_path), look).files["a"] is look.files["a"], (
        "what is as before is not made anew"
    )
    (tmp_path / "b").write_text("1")
    (tmp_path / "b").rename(tmp_path / "a")
    assert look_through(str(tmp_path), look).files["a"].stamp != look.files["a"].stamp
    (tmp_path / "a").unlink()
    assert look_through(str(tmp_path), look).files == {}


def test_no_depth_is_too_deep(tmp_path):
    with deep_directory(tmp_path) as path:
        look = look_through(str(tmp_path))
        assert list(look.files) == [f"{path}/leaf"]
        with opened_below(str(tmp_path), f"{path}/leaf") as descriptor:
            assert os.read(descriptor, 10) == b"leaf"
        assert look.odd == {}


def test_links_that_stay_inside_are_found_and_others_are_told(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "latest").symlink_to("epoch-2")
    (tmp_path / "deep" / "up").symlink_to("../epoch-2")
    (tmp_path / "deep" / "absolute").symlink_to(tmp_path / "epoch-2")
    (tmp_path / "seen").symlink_to("/opt/ml/checkpoints/epoch-2")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "above").symlink_to("../x")
    look = look_through(str(tmp_path), None, (str(tmp_path), "/opt/ml/checkpoints"))
    assert {path: link.target for path, link in look.links.items()} == {
        "latest": "epoch-2",
        "deep/up": "../epoch-2",
        "deep/absolute": "../epoch-2",
        "seen": "epoch-2",
    }
    assert set(look.odd) == {"out", "above"}
    assert "/etc/passwd" in look.odd["out"]


def test_a_file_without_end_is_told_and_not_taken(tmp_path):
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(1 << 43)
        assert set(look_through(str(tmp_path)).files) == {"endless"}
        try:
            file.truncate(LONGEST_BYTES + 1)
        except OSError:
            pytest.skip("the file system has no files so long")
    assert "TiB" in look_through(str(tmp_path)).odd["endless"]


def test_the_file_systems_own_clock_is_asked(tmp_path):
    before = look_through(str(tmp_path)).clock_ns
    if before is None:
        pytest.skip("the file system has no files without a name")
    (tmp_path / "a").write_text("1")
    assert before <= (tmp_path / "a").stat().st_ctime_ns <= look_through(str(tmp_path)).clock_ns


def test_a_directory_that_is_gone_is_told_from_an_empty_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        look_through(str(tmp_path / "gone"))
