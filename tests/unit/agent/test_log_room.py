"""Room that is kept ahead of a log: it is there when the disk is full, and given back at the end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from windfall.agent.errors import CannotStart
from windfall.agent.log_room import LogRoom, check_room


@pytest.fixture
def disk(tmp_path: Path, require) -> Iterator[Path]:
    """A file system of 2 MiB."""
    require(os.geteuid() == 0, "only root can mount a small file system")
    here = tmp_path / "disk"
    here.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "windfall-test", str(here)],
        capture_output=True,
        check=False,
    )
    require(mounted.returncode == 0, "nothing can be mounted here")
    yield here
    subprocess.run(["umount", "--lazy", str(here)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (4_096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_what_was_kept_can_be_written_on_a_full_disk(disk: Path):
    log = disk / "a.log"
    with log.open("ab", buffering=0) as job:
        job.write(b"begun\n")
        room = LogRoom(str(log))
        room.keep()
        assert log.stat().st_size == 6, "its size does not change"
        fill(disk / "filler")
        room.keep()
        for _ in range(100):
            job.write(b"a line of fifty bytes, which a job says now and then\n"[:50])
    assert log.stat().st_size == 6 + 5_000


def test_more_is_kept_for_a_log_that_has_grown(disk: Path):
    log = disk / "a.log"
    log.write_bytes(b"x" * 400_000)
    room = LogRoom(str(log))
    room.keep()
    assert allocated(log) >= 500_000
    room.give_back()
    assert log.stat().st_size == 400_000
    assert allocated(log) < 410_000
    room.give_back()


def test_a_log_that_only_its_owner_may_read_is_one_too(tmp_path: Path):
    log = tmp_path / "a.log"
    log.touch(mode=0o400)
    user = 65_534 if os.geteuid() == 0 else os.geteuid()
    if os.geteuid() == 0:
        os.chown(log, user, user)
        for parent in [tmp_path, *tmp_path.parents[:4]]:
            parent.chmod(parent.stat().st_mode | 0o011)
    pid = os.fork()
    if pid == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        LogRoom(str(log)).keep()
        os._exit(0)
    os.waitpid(pid, 0)
    assert log.stat().st_mode & 0o777 == 0o400
    assert log.stat().st_size == 0
    assert allocated(log) > 0


def test_a_log_that_is_gone_is_left_alone(tmp_path: Path):
    room = LogRoom(str(tmp_path / "nothing"))
    room.keep()
    room.give_back()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_started_on_a_full_disk(disk: Path):
    with (disk / "a.log").open("wb") as log:
        check_room(log.fileno())
        fill(disk / "filler")
        with pytest.raises(CannotStart, match="no space left"):
            check_room(log.fileno())
