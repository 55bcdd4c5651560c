"""Private directories are handed on empty, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.agent.credentials import JobUser
from windfall.agent.directories import PrivateDirectories

MYSELF = JobUser("me", os.geteuid(), os.getegid(), (), drop=False)


def test_an_empty_directory_is_handed_on(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path), MYSELF)
    directories.make(str(tmp_path / "a"))
    inode = (tmp_path / "a").stat().st_ino
    assert directories.discard_empty(str(tmp_path / "a"))
    directories.make(str(tmp_path / "b"))
    assert not (tmp_path / "a").exists()
    assert ((tmp_path / "b").stat().st_ino, (tmp_path / "b").stat().st_mode & 0o777) == (inode, 0o700)


def test_a_full_directory_is_not(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path), MYSELF)
    directories.make(str(tmp_path / "a"))
    (tmp_path / "a" / "file").touch()
    assert not directories.discard_empty(str(tmp_path / "a"))
    assert (tmp_path / "a" / "file").exists()


def test_a_changed_directory_is_removed_instead(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path), MYSELF)
    directories.make(str(tmp_path / "a"))
    (tmp_path / "a").chmod(0o777)
    assert directories.discard_empty(str(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []


def test_one_that_exists_keeps_its_files_and_a_link_is_not_followed(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path), MYSELF)
    directories.make(str(tmp_path / "spare"))
    directories.discard_empty(str(tmp_path / "spare"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    directories.make(str(tmp_path / "a"))
    assert (tmp_path / "a" / "file").exists()
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(FileExistsError):
        directories.make(str(tmp_path / "link"))


def test_one_that_is_gone_counts_as_discarded(tmp_path: Path):
    assert PrivateDirectories(str(tmp_path), MYSELF).discard_empty(str(tmp_path / "never"))


def test_what_an_earlier_agent_left_is_told_apart_from_what_is_in_use(tmp_path: Path):
    used, left, left_tmp = "a" * 32, "b" * 32, "b" * 32 + ".tmp"
    for name in (used, left, left_tmp, "somebody-elses", "c" * 31, ".hidden"):
        (tmp_path / name).mkdir()
    directories = PrivateDirectories(str(tmp_path), MYSELF)
    assert sorted(directories.leftovers({str(tmp_path / used)})) == [
        str(tmp_path / left),
        str(tmp_path / left_tmp),
    ]
    assert PrivateDirectories(str(tmp_path / "not-yet"), MYSELF).leftovers(set()) == []


def test_a_parent_that_was_cleared_away_is_made_again(tmp_path: Path):
    parent = tmp_path / "attempts"
    PrivateDirectories(str(parent), MYSELF).make(str(parent / "a"))
    assert ((parent / "a").stat().st_mode & 0o777, parent.stat().st_mode & 0o777) == (0o700, 0o711)
