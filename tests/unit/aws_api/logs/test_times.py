"""The records beside a log: which time a byte has, and how large the log was at a time."""

from __future__ import annotations

import struct

import pytest

from windfall.aws_api.logs.times import RecordedTimes, times_path


@pytest.fixture
def times_of(tmp_path):
    log = tmp_path / "t.log"

    def make(*records: tuple[int, int], torn: bytes = b"") -> RecordedTimes:
        content = b"".join(struct.pack("<QQ", *record) for record in records) + torn
        times_path(log).write_bytes(content)
        return RecordedTimes(log)

    return make


def test_a_byte_has_the_time_of_the_first_record_that_reaches_it(times_of):
    times = times_of((10, 100), (20, 200), (35, 300))
    assert [times.at(end) for end in (1, 10, 11, 20, 21, 35, 5)] == [100, 100, 200, 200, 300, 300, 100]
    assert times.at(36) is None
    assert (times.size, times.at_ms) == (35, 300)


def test_the_size_before_a_time_leaves_out_what_was_written_at_it(times_of):
    times = times_of((10, 100), (20, 200), (35, 300))
    assert [times.size_before(at) for at in (0, 100, 101, 200, 300, 301, 9999)] == [0, 0, 10, 10, 20, 35, 35]


def test_no_records_are_no_times(times_of, tmp_path):
    for times in (RecordedTimes(tmp_path / "other.log"), times_of(), times_of(torn=b"\1\2\3")):
        assert times.at(1) is None
        assert (times.size, times.at_ms, times.size_before(5)) == (0, 0, 0)


def test_a_torn_record_is_left_out(times_of):
    times = times_of((10, 100), torn=b"\xff" * 15)
    assert times.at(11) is None
    assert times.size == 10


def test_a_log_that_is_purged_while_it_is_read_loses_its_times_quietly(times_of, tmp_path):
    times = times_of((10, 100), (20, 200))
    times_path(tmp_path / "t.log").unlink()
    assert times.at(15) is None
    assert times.size_before(150) == 0


def test_many_records_are_found_without_being_loaded(times_of):
    times = times_of(*((n * 7, n * 500) for n in range(1, 20_001)))
    assert all(times.at(n * 7) == n * 500 for n in (1, 2, 777, 12_345, 20_000))
    assert times.size_before(9_999 * 500) == 9_998 * 7
