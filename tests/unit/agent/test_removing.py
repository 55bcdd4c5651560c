"""Directories that jobs leave: deep, wide, closed, full of odd things; and those that cannot be removed."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.agent.removing import put_aside, remove_tree


def deep(path: Path, levels: int) -> None:
    """Make directories in one another, with a file in each."""
    script = (
        f"import os\nos.makedirs({str(path)!r}, exist_ok=True)\nos.chdir({str(path)!r})\n"
        f"for i in range({levels}):\n open('f', 'w').close(); os.mkdir('d'); os.chdir('d')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_any_depth_is_removed_with_few_open_files(tmp_path: Path):
    deep(tmp_path / "left", 5_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 8, hard))
    try:
        assert remove_tree(str(tmp_path / "left")) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        subprocess.run(["rm", "-rf", str(tmp_path / "left")], check=True)  # pytest could not remove it either
    assert list(tmp_path.iterdir()) == []


def test_many_files_and_directories_are_removed(tmp_path: Path):
    for number in range(100):
        (tmp_path / "left" / f"a{number}" / "b" / "c").mkdir(parents=True)
        for file in range(20):
            (tmp_path / "left" / f"a{number}" / "b" / f"{file}").touch()
    assert remove_tree(str(tmp_path / "left")) is None
    assert list(tmp_path.iterdir()) == []


def test_odd_things_are_removed_and_links_are_not_followed(tmp_path: Path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    left = tmp_path / "left"
    left.mkdir()
    (left / "link").symlink_to(kept)
    (left / "broken").symlink_to("nowhere")
    os.mkfifo(left / "pipe", 0)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(left / "socket"))
    (left / "closed").touch(mode=0)
    (left / os.fsdecode(b"\xff name\n")).touch()
    (left / os.fsdecode(b"\xfe")).mkdir()
    os.link(kept / "file", left / "hard")
    assert remove_tree(str(left)) is None
    assert (kept / "file").read_text() == "mine"


def test_closed_directories_are_removed_by_a_user_who_is_not_root(tmp_path: Path):
    left = tmp_path / "left"
    inner = left / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0o500)
    (left / "a").chmod(0)
    left.chmod(0o100)
    user = 65_534 if os.geteuid() == 0 else os.geteuid()
    if os.geteuid() == 0:
        for path in (tmp_path, left, left / "a", inner, inner / "file"):
            os.chown(path, user, user)
        for parent in tmp_path.parents[:4]:
            parent.chmod(parent.stat().st_mode | 0o011)
    pid = os.fork()
    if pid == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        os._exit(0 if remove_tree(str(left)) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_removed(tmp_path: Path):
    assert remove_tree(str(tmp_path / "nothing")) is None
    assert remove_tree(str(tmp_path / "no" / "thing")) is None


def test_what_cannot_be_removed_is_told_and_put_aside(tmp_path: Path, require):
    require(os.geteuid() == 0, "only root can mount")
    left = tmp_path / "left"
    (left / "mounted").mkdir(parents=True)
    (left / "file").touch()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "none", str(left / "mounted")], capture_output=True, check=False
    )
    require(mounted.returncode == 0, "nothing can be mounted here")
    aside = None
    try:
        assert "EBUSY" in (remove_tree(str(left)) or "")
        assert not (left / "file").exists(), "all else is gone"
        aside = put_aside(str(left))
        assert aside == f"{left}.cannot-be-removed"
        left.mkdir()
        assert put_aside(str(left)) not in (aside, None)
    finally:
        subprocess.run(["umount", f"{aside or left}/mounted"], check=True)


def test_a_file_in_place_of_a_directory_is_left_and_told(tmp_path: Path):
    (tmp_path / "left").write_text("a file")
    assert "ENOTDIR" in (remove_tree(str(tmp_path / "left")) or "")
    assert stat.S_ISREG((tmp_path / "left").stat().st_mode)


@pytest.mark.parametrize("name", ["left", "left.tmp"])
def test_a_name_that_was_put_aside_is_no_attempts(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    aside = put_aside(str(tmp_path / name))
    assert aside is not None
    assert Path(aside).name.startswith(name)
