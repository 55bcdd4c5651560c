"""What machines may write into the daemon's directory of logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.mirror_messages import LogHave, LogPiece
from windfall.engines.fleet.mirror import FULL_WAIT_S, MOST_SAMPLES_BYTES, MirrorFiles, free_room
from windfall.jobs.ids import MachineId

A = MachineId("hosts-a")


@pytest.fixture
def mirror(tmp_path: Path) -> MirrorFiles:
    return MirrorFiles(AttemptDirectory(tmp_path), room=lambda _: 1 << 30)


def test_pieces_are_added_at_the_end_whatever_comes_twice_or_too_soon(mirror, tmp_path):
    log = tmp_path / "t-1.log"
    assert mirror.take(A, LogPiece("t-1", "log", 0, b"", 9)) == LogHave("t-1", "log", 0)
    assert mirror.take(A, LogPiece("t-1", "log", 0, b"abc", 9)) == LogHave("t-1", "log", 3)
    assert mirror.take(A, LogPiece("t-1", "log", 0, b"abc", 9)) == LogHave("t-1", "log", 3)
    assert mirror.take(A, LogPiece("t-1", "log", 6, b"ghi", 9)) == LogHave("t-1", "log", 3)
    assert mirror.take(A, LogPiece("t-1", "log", 1, b"XXdef", 9)) == LogHave("t-1", "log", 6)
    assert log.read_bytes() == b"abcdef"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_file_of_samples_is_changed_in_its_place_or_begun_anew(mirror, tmp_path):
    samples = tmp_path / "t-1.samples"
    assert mirror.take(A, LogPiece("t-1", "samples", 0, b"head-old-1", 10, begins=True)) is None
    mirror.take(A, LogPiece("t-1", "samples", 5, b"new", 12))
    mirror.take(A, LogPiece("t-1", "samples", 99, b"beyond a gap", 111))
    assert samples.read_bytes() == b"head-new-1"
    mirror.take(A, LogPiece("t-1", "samples", 0, b"x", 1, begins=True))
    assert samples.read_bytes() == b"x"
    mirror.take(A, LogPiece("machine", "machine", 0, b"m", 1, begins=True))
    assert (tmp_path / "machine.hosts-a.samples").read_bytes() == b"m"


def test_a_file_of_samples_has_a_largest_size(mirror, tmp_path):
    mirror.take(A, LogPiece("t-1", "samples", 0, b"x", 1, begins=True))
    for offset in (MOST_SAMPLES_BYTES, -1):
        mirror.take(A, LogPiece("t-1", "samples", offset, b"y", 1))
    assert (tmp_path / "t-1.samples").read_bytes() == b"x"


def test_nothing_is_written_where_the_disk_has_no_room_and_the_machine_is_told_to_wait(tmp_path):
    rooms = [1 << 30, 2]
    mirror = MirrorFiles(AttemptDirectory(tmp_path), room=lambda _: rooms[0])
    mirror.take(A, LogPiece("t-1", "log", 0, b"abc", 6))
    rooms.reverse()
    assert mirror.take(A, LogPiece("t-1", "log", 3, b"def", 6)) == LogHave("t-1", "log", 3, FULL_WAIT_S)
    assert (tmp_path / "t-1.log").read_bytes() == b"abc"
    rooms.reverse()
    assert mirror.take(A, LogPiece("t-1", "log", 3, b"def", 6)) == LogHave("t-1", "log", 6)


def test_some_of_the_disk_is_kept(tmp_path):
    import shutil

    assert free_room(str(tmp_path)) < shutil.disk_usage(tmp_path).free


@pytest.mark.parametrize("task", ["../up", "a/b", "", "a.b", "x" * 65])
def test_what_cannot_be_a_task_never_becomes_a_path(mirror, tmp_path, task):
    with pytest.raises(ValueError, match="must not become a path"):
        mirror.take(A, LogPiece(task, "log", 0, b"x", 1))
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(mirror, tmp_path):
    (tmp_path / "t-1.log").symlink_to(tmp_path / "elsewhere")
    have = mirror.take(A, LogPiece("t-1", "log", 0, b"x", 1))
    assert have is not None
    assert have.wait_s == FULL_WAIT_S
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_is_far_behind_is_reported(mirror, caplog):
    mirror.take(A, LogPiece("t-1", "log", 0, b"x", 1 << 30))
    assert mirror.lagging == {"t-1"}
    assert "behind" in caplog.text
    mirror.take(A, LogPiece("t-1", "log", 1, b"y", 2))
    assert mirror.lagging == set()


def test_what_a_machine_has_not_kept_is_a_hole_here_too(mirror, tmp_path):
    mirror.take(A, LogPiece("t-1", "log", 0, b"begun\n", 9))
    far = 1 << 30
    assert mirror.take(A, LogPiece("t-1", "log", far, b"too soon\n", far + 9)) == LogHave("t-1", "log", 6)
    have = mirror.take(A, LogPiece("t-1", "log", far, b"behind\n", far + 7, skips=True))
    assert have == LogHave("t-1", "log", far + 7)
    assert mirror.take(A, LogPiece("t-1", "log", far + 99, b"", far + 99, skips=True)) == LogHave(
        "t-1", "log", far + 99
    )
    log = AttemptDirectory(tmp_path).log("t-1")
    assert (tmp_path / "t-1.log").stat().st_blocks * 512 <= 3 * 4_096
    assert log.read(0, 4_096).strip() == b"begun"
    assert log.gap(0) == (4_096, far)
    assert log.read(far - 10, 17) == b"\n" * 10 + b"behind\n"


def test_a_machine_that_sends_without_end_fills_no_more_than_the_limit(tmp_path):
    mirror = MirrorFiles(AttemptDirectory(tmp_path), room=lambda _: 1 << 30, limit_bytes=1 << 20)
    data, log = b"x" * 63 + b"\n", tmp_path / "t-1.log"
    for offset in range(0, 20 << 20, 64 << 10):
        piece = LogPiece("t-1", "log", offset, data * 1_024, 20 << 20)
        assert mirror.take(A, piece) == LogHave("t-1", "log", offset + (64 << 10))
        assert log.stat().st_blocks * 512 <= (1 << 20) + (128 << 10)
    assert log.stat().st_size == 20 << 20


@pytest.mark.parametrize("kind", ["log", "times"])
@pytest.mark.parametrize("offset", [1 << 43, 1 << 60, 1 << 63, 1 << 80])
def test_a_machine_cannot_name_a_place_that_no_file_has(mirror, tmp_path, kind, offset):
    have = mirror.take(A, LogPiece("t-1", kind, offset, b"x", offset + 1, skips=True))
    assert have == LogHave("t-1", kind, offset + 1)
    assert list(tmp_path.iterdir()) == []
