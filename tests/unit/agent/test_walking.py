"""Walks through directories of any depth, which change meanwhile."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from tests.deep import LEVELS, deep_directory
from windfall.agent.courier.archives import content_of
from windfall.agent.courier.tree import Tree
from windfall.agent.walking import (
    directories_upwards,
    entries_below,
    open_plain,
    opened_directory,
    opened_root,
    remove_below,
    removed,
)


@pytest.fixture
def top(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_everything_is_found_in_order_and_no_link_is_followed(tmp_path, top):
    for name in ("b/c", "a"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("b/c/file", "a/file", "z"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("b")
    paths = [path for path, _, _ in entries_below(top)]
    assert paths == ["a", "a/file", "b", "b/c", "b/c/file", "link", "z"]
    for path, status, holder in entries_below(top):
        assert os.stat(path.rpartition("/")[2], dir_fd=holder, follow_symlinks=False).st_ino == status.st_ino
    assert [path for path, _ in directories_upwards(top)] == ["a", "b/c", "b"]
    assert [path for path, _, _ in entries_below(top, lambda path: path != "b")] == [
        "a",
        "a/file",
        "b",
        "link",
        "z",
    ]


def test_no_depth_is_too_deep_to_look_through_and_to_remove(tmp_path, top):
    with deep_directory(tmp_path) as path:
        assert [found for found, _, _ in entries_below(top)][-1] == f"{path}/leaf"
        assert sum(1 for _ in directories_upwards(top)) == LEVELS
    assert list(tmp_path.iterdir()) == []


def test_a_long_name_at_every_level_goes_beyond_the_longest_path(tmp_path, top):
    with deep_directory(tmp_path, 100, "n" * 200) as path:
        assert len(path) > os.pathconf("/", "PC_PATH_MAX")
        assert [found for found, _, _ in entries_below(top)][-1] == f"{path}/leaf"
        os.close(opened_directory(top, path))


def test_a_path_without_end_is_an_error(tmp_path, top):
    with deep_directory(tmp_path, 400, "n" * 200), pytest.raises(OSError, match="too long"):
        list(entries_below(top))


def test_a_directory_that_is_moved_away_under_the_walk_costs_only_itself(tmp_path, top):
    for name in ("a/b/c", "a/z", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text(name)
    found = []
    for path, _, _ in entries_below(top):
        found.append(path)
        if path == "a/b/c":
            (tmp_path / "a" / "b").rename(tmp_path / "other" / "moved")
    assert found[:3] == ["a", "a/b", "a/b/c"]
    assert {"a/z", "a/z/file", "other", "other/moved"} <= set(found)


def test_what_is_not_a_directory_is_removed_too_and_a_link_is_not_followed(tmp_path, top):
    (tmp_path / "kept").write_text("1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "d" / "closed").mkdir(mode=0)
    remove_below(top, "d")
    (tmp_path / "file").write_text("1")
    removed(str(tmp_path / "file"))
    removed(str(tmp_path / "nothing"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("marked", ["private/./a/b", "private/a/./b", "private/a/b"])
def test_a_root_is_opened_through_trusted_links_alone(tmp_path, marked):
    (tmp_path / "real" / "a" / "b").mkdir(parents=True)
    (tmp_path / "private").symlink_to("real")
    opened = opened_root(f"{tmp_path}/{marked}")
    try:
        assert os.fstat(opened).st_ino == (tmp_path / "real" / "a" / "b").stat().st_ino
    finally:
        os.close(opened)


@pytest.mark.parametrize(
    ("swapped", "path"), [("a", "./a/b"), ("a/b", "./a/b"), ("a/b", "a/b"), ("a/b", "a/./b/")]
)
def test_a_root_that_became_a_link_is_gone(tmp_path, swapped, path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / swapped).rename(tmp_path / "kept")
    (tmp_path / swapped).symlink_to(tmp_path / "kept")
    with pytest.raises(FileNotFoundError):
        opened_root(f"{tmp_path}/{path}")


def test_only_a_regular_file_is_opened(tmp_path, top):
    (tmp_path / "plain").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    fd = open_plain("plain", top)
    assert os.read(fd, 100) == b"content"
    os.close(fd)
    with pytest.raises(OSError, match="Too many levels") as refused:
        open_plain("link", top)
    assert refused.value.errno == errno.ELOOP
    for name in ("pipe", "missing"):
        with pytest.raises(FileNotFoundError):
            open_plain(name, top)


def test_a_device_is_not_opened(tmp_path, top):
    """As root of a container makes them: the first bytes of a disk would be read, a watchdog would be started."""
    try:
        os.mknod(tmp_path / "zeros", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("no device file can be made here")
    with pytest.raises(FileNotFoundError):
        open_plain("zeros", top)
    assert Tree(str(tmp_path), None).read("zeros", 4) is None
    with pytest.raises(FileNotFoundError):
        next(content_of("zeros", top))
