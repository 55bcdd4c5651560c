"""The times of a log: one record when it grew, none when it did not."""

from __future__ import annotations

from pathlib import Path

from windfall.agent.log_times import RECORD_BYTES, LogTimes, times_at, times_path


def test_records_follow_growth(tmp_path: Path):
    log = tmp_path / "log"
    times = LogTimes(str(log))
    assert not times.note(1)
    log.write_text("")
    assert not times.note(2)
    log.write_text("hello")
    assert times.note(3)
    assert not times.note(4)
    log.write_text("hello world")
    assert times.note(5)
    assert times_at(str(log)) == [(5, 3), (11, 5)]
    assert Path(times_path(str(log))).stat().st_size == 2 * RECORD_BYTES


def test_a_later_agent_goes_on_where_the_earlier_ended(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("hello")
    LogTimes(str(log)).note(3)
    resumed = LogTimes(str(log), resume=True)
    assert not resumed.note(4)
    log.write_text("hello again")
    assert resumed.note(5)
    assert times_at(str(log)) == [(5, 3), (11, 5)]


def test_a_torn_record_is_left_out(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("hello")
    LogTimes(str(log)).note(3)
    with Path(times_path(str(log))).open("ab") as file:
        file.write(b"torn")
    assert times_at(str(log)) == [(5, 3)]


def test_a_log_without_times_has_none(tmp_path: Path):
    assert times_at(str(tmp_path / "log")) == []
