"""The files beside a log: which time a byte has, how large the log was at a time, and what is removed with it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from windfall.agent.attempt_files import RECORD_BYTES, AttemptDirectory, LogTimes, RecordedLog, times_path

TASK = "0123456789abcdef" * 2


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "t.log"


@pytest.fixture
def recorded(log: Path):
    def make(*records: tuple[int, int], torn: bytes = b"") -> RecordedLog:
        content = b"".join(struct.pack("<QQ", *record) for record in records) + torn
        Path(times_path(str(log))).write_bytes(content)
        return RecordedLog(str(log))

    return make


def records_of(log: Path) -> list[tuple[int, int]]:
    content = Path(times_path(str(log))).read_bytes()
    return list(struct.iter_unpack("<QQ", content[: len(content) - len(content) % RECORD_BYTES]))


def test_a_byte_has_the_time_of_the_first_record_that_reaches_it(recorded):
    times = recorded((10, 100), (20, 200), (35, 300))
    assert [times.at(end) for end in (1, 10, 11, 20, 21, 35, 5)] == [100, 100, 200, 200, 300, 300, 100]
    assert times.at(36) is None
    assert (times.timed_size, times.timed_at) == (35, 300)


def test_the_size_before_a_time_leaves_out_what_was_written_at_it(recorded):
    times = recorded((10, 100), (20, 200), (35, 300))
    assert [times.size_before(at) for at in (0, 100, 101, 200, 300, 301, 9999)] == [0, 0, 10, 10, 20, 35, 35]


def test_no_time_of_a_log_is_beyond_the_calendar(recorded):
    assert recorded((10, (1 << 64) - 1)).at(5) == 253_402_300_799_999


def test_no_records_are_no_times(recorded, tmp_path):
    for times in (RecordedLog(str(tmp_path / "other.log")), recorded(), recorded(torn=b"\1\2\3")):
        assert times.at(1) is None
        assert (times.timed_size, times.timed_at, times.size_before(5)) == (0, 0, 0)


def test_a_torn_record_is_left_out(recorded):
    times = recorded((10, 100), torn=b"\xff" * 15)
    assert times.at(11) is None
    assert times.timed_size == 10


def test_a_log_that_is_purged_while_it_is_read_loses_its_bytes_and_times_quietly(recorded, log):
    log.write_bytes(b"x" * 20)
    times = recorded((10, 100), (20, 200))
    assert times.timed_size == 20
    Path(times_path(str(log))).unlink()
    log.unlink()
    assert times.at(15) is None
    assert times.size_before(150) == 0
    assert times.read(0, 5) == b""


def test_many_records_are_found_without_being_loaded(recorded):
    times = recorded(*((n * 7, n * 500) for n in range(1, 20_001)))
    assert all(times.at(n * 7) == n * 500 for n in (1, 2, 777, 12_345, 20_000))
    assert times.size_before(9_999 * 500) == 9_998 * 7


def test_records_follow_growth(log: Path):
    times = LogTimes(str(log))
    assert not times.note(1)
    log.write_text("")
    assert not times.note(2)
    log.write_text("hello")
    assert times.note(3)
    assert not times.note(4)
    log.write_text("hello world")
    assert times.note(5)
    assert records_of(log) == [(5, 3), (11, 5)]


def test_a_later_agent_goes_on_where_the_earlier_ended(log: Path):
    log.write_text("hello")
    LogTimes(str(log)).note(3)
    resumed = LogTimes(str(log), resume=True)
    assert not resumed.note(4)
    log.write_text("hello again")
    assert resumed.note(5)
    assert records_of(log) == [(5, 3), (11, 5)]


def test_an_attempt_that_has_left_nothing_has_an_empty_log_and_no_samples(tmp_path: Path):
    files = AttemptDirectory(tmp_path)
    log = files.log(TASK)
    assert (log.size, log.written_at, log.read(0, 10), log.at(1)) == (0, -1, b"", None)
    assert (files.recording(TASK), files.latest(TASK), files.machine_head()) == (None, None, None)
    files.remove(TASK)


def test_all_that_an_attempt_left_is_removed_and_samples_may_stay(tmp_path: Path):
    files = AttemptDirectory(tmp_path)
    names = {f"{TASK}.log", f"{TASK}.log.times", f"{TASK}.samples", "other.log"}
    for name in names:
        (tmp_path / name).write_text("x")
    files.remove(TASK, samples=False)
    assert {path.name for path in tmp_path.iterdir()} == {f"{TASK}.samples", "other.log"}
    files.remove(TASK)
    assert {path.name for path in tmp_path.iterdir()} == {"other.log"}


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path):
    (tmp_path / f"{TASK}.log").mkdir()
    (tmp_path / f"{TASK}.samples").write_text("x")
    with pytest.raises(OSError, match=TASK):
        AttemptDirectory(tmp_path).remove(TASK)
    assert not (tmp_path / f"{TASK}.samples").exists()


@pytest.mark.parametrize("name", ["", "../secrets", "a/b", "a.b", "x" * 65, "a\n"])
def test_what_is_not_a_task_id_never_becomes_a_path(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="must not become a path"):
        AttemptDirectory(tmp_path).log(name)
