"""Private directories are handed on empty, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.agent.credentials import JobUser
from windfall.agent.directories import PrivateDirectories

MYSELF = JobUser("me", os.geteuid(), os.getegid(), (), drop=False)


def test_an_empty_directory_is_handed_on(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path))
    directories.make(str(tmp_path / "a"), MYSELF)
    inode = (tmp_path / "a").stat().st_ino
    assert directories.discard_empty(str(tmp_path / "a"))
    directories.make(str(tmp_path / "b"), MYSELF)
    assert not (tmp_path / "a").exists()
    assert ((tmp_path / "b").stat().st_ino, (tmp_path / "b").stat().st_mode & 0o777) == (inode, 0o700)


def test_a_full_directory_is_not(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path))
    directories.make(str(tmp_path / "a"), MYSELF)
    (tmp_path / "a" / "file").touch()
    assert not directories.discard_empty(str(tmp_path / "a"))
    assert (tmp_path / "a" / "file").exists()


def test_a_changed_directory_is_removed_instead(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path))
    directories.make(str(tmp_path / "a"), MYSELF)
    (tmp_path / "a").chmod(0o777)
    assert directories.discard_empty(str(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_never_goes_from_one_user_to_another(tmp_path: Path, require):
    require(os.geteuid() == 0, "only root makes directories for others")
    first, second = (JobUser(str(uid), uid, uid, (), drop=True) for uid in (200_001, 200_002))
    directories = PrivateDirectories(str(tmp_path))
    directories.make(str(tmp_path / "a"), first)
    inode = (tmp_path / "a").stat().st_ino
    assert directories.discard_empty(str(tmp_path / "a"))
    directories.make(str(tmp_path / "b"), second)
    made = (tmp_path / "b").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (200_002, 200_002, 0o700)
    assert made.st_ino != inode
    directories.make(str(tmp_path / "c"), first)
    assert ((tmp_path / "c").stat().st_ino, (tmp_path / "c").stat().st_uid) == (inode, 200_001)


def test_what_is_nobodys_here_is_removed(tmp_path: Path, require):
    require(os.geteuid() == 0, "only root can give a directory away")
    directories = PrivateDirectories(str(tmp_path))
    directories.make(str(tmp_path / "a"), MYSELF)
    os.chown(tmp_path / "a", 200_003, 200_003)
    assert directories.discard_empty(str(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []


def test_one_that_exists_keeps_its_files_and_a_link_is_not_followed(tmp_path: Path):
    directories = PrivateDirectories(str(tmp_path))
    directories.make(str(tmp_path / "spare"), MYSELF)
    directories.discard_empty(str(tmp_path / "spare"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    directories.make(str(tmp_path / "a"), MYSELF)
    assert (tmp_path / "a" / "file").exists()
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(FileExistsError):
        directories.make(str(tmp_path / "link"), MYSELF)


def test_one_that_is_gone_counts_as_discarded(tmp_path: Path):
    assert PrivateDirectories(str(tmp_path)).discard_empty(str(tmp_path / "never"))


def test_what_an_earlier_agent_left_is_told_apart_from_what_is_in_use(tmp_path: Path):
    used, left, left_tmp = "a" * 32, "b" * 32, "b" * 32 + ".tmp"
    for name in (used, left, left_tmp, "somebody-elses", "c" * 31, ".hidden"):
        (tmp_path / name).mkdir()
    directories = PrivateDirectories(str(tmp_path))
    assert sorted(directories.leftovers({str(tmp_path / used)})) == [
        str(tmp_path / left),
        str(tmp_path / left_tmp),
    ]
    assert PrivateDirectories(str(tmp_path / "not-yet")).leftovers(set()) == []


def test_a_parent_that_was_cleared_away_is_made_again(tmp_path: Path):
    parent = tmp_path / "attempts"
    PrivateDirectories(str(parent)).make(str(parent / "a"), MYSELF)
    assert ((parent / "a").stat().st_mode & 0o777, parent.stat().st_mode & 0o777) == (0o700, 0o711)
