"""A log that outgrows its limit keeps its beginning and its newest part, at their offsets, and says what is missing."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.attempt_files import RecordedLog
from windfall.agent.log_limit import LogLimit, hole_from, keep_within, lower_limit
from windfall.aws_api.logs.lines import LogLines
from windfall.jobs.log_limits import log_limit_bytes

MIB = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.touch()
    return path


def grow(log: Path, first: int, count: int) -> int:
    """Add numbered lines of 64 bytes; the answer is the next number."""
    with log.open("ab", buffering=0) as job:
        job.write(b"".join(b"line %09d %s\n" % (number, b"." * 48) for number in range(first, first + count)))
    return first + count


def stored(log: Path) -> int:
    return log.stat().st_blocks * 512


def lines_of(log: Path) -> LogLines:
    recorded = RecordedLog(str(log))
    return LogLines(recorded.read, recorded.size, final=True, gap=recorded.gap)


def texts(log: Path) -> list[str]:
    return [piece.content.decode() for piece in lines_of(log).forward(0) if piece.content]


def test_a_log_of_a_hundred_times_its_limit_stays_within_it(log):
    number, limit = 0, LogLimit(str(log), MIB)
    for _ in range(200):
        number = grow(log, number, 8_192)
        limit.keep()
        assert stored(log) <= MIB + 8_192
    assert log.stat().st_size == number * 64 == 100 * MIB, "offsets stay what they were"
    said = texts(log)
    kept = [int(line.split()[1]) for line in said if line.startswith("line 0")]
    assert kept[0] == 0
    assert kept[-1] == number - 1
    assert len([before for before, after in pairwise(kept) if after != before + 1]) == 1, (
        "one part is missing"
    )
    assert len(kept) * 64 >= MIB // 2
    told = [line for line in said if "windfall" in line]
    assert len(told) == 1
    assert "99.2 MiB of output are not kept here" in told[0]
    assert "limited to 1 MiB" in told[0]
    assert "--job-log-limit" in told[0]
    assert not any("\0" in line for line in said)


def test_a_log_within_its_limit_is_not_touched(log):
    grow(log, 0, 10_000)
    before = log.read_bytes()
    keep_within(str(log), MIB)
    keep_within(str(log), 0)
    assert log.read_bytes() == before


def test_a_log_that_is_gone_is_left_alone(tmp_path):
    keep_within(str(tmp_path / "gone.log"), 1)


def test_a_file_system_without_holes_is_told_once_and_left_as_it_is(log, monkeypatch, capfd):
    monkeypatch.setattr("windfall.agent.log_limit._PUNCH_HOLE", 1 << 30)
    grow(log, 0, 50_000)
    before, limit = log.read_bytes(), LogLimit(str(log), MIB)
    limit.keep()
    limit.keep()
    assert log.read_bytes() == before
    assert capfd.readouterr().err.count("cannot be shortened") == 1


def test_a_reader_at_any_place_finds_the_same_lines(log):
    number, limit = 0, LogLimit(str(log), MIB)
    for _ in range(4):
        number = grow(log, number, 20_000)
        limit.keep()
    lines = lines_of(log)
    forward = list(lines.forward(0))
    assert list(lines.backward(lines.end))[::-1] == forward
    recorded = RecordedLog(str(log))
    start, end = recorded.gap(0)
    assert 0 < start < end < recorded.size
    for position in (start, start + 1, (start + end) // 2, end - 1):
        behind = next(lines.forward(lines.first_beyond(position)))
        assert (behind.start, lines.before_gap(position + 1)) == (end, start)
    assert recorded.gap(end) == (recorded.size, recorded.size)


def test_what_is_dropped_while_somebody_reads_is_blank(log):
    number = grow(log, 0, 50_000)
    lines = lines_of(log)
    reading = lines.forward(0)
    next(reading)
    grow(log, number, 50_000)
    keep_within(str(log), MIB)
    assert not any(b"\0" in piece.content for piece in reading)


def test_a_job_that_makes_its_log_huge_costs_readers_nothing(log):
    grow(log, 0, 10)
    os.truncate(log, 1 << 40)
    keep_within(str(log), MIB)
    # What is left of its last block are NULs of the job's own making.
    assert [line[:5] for line in texts(log)] == ["line "] * 10 + ["\0" * 5]
    pieces = list(lines_of(log).backward(1 << 40))
    assert len([piece for piece in pieces if piece.content]) == 11
    with log.open("rb") as file:
        assert hole_from(file.fileno(), 1 << 39, 1 << 40) == (1 << 39, 1 << 40)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12))
def test_holes_of_the_jobs_own_hide_nothing(tmp_path_factory, parts):
    path = tmp_path_factory.getbasetemp() / "holes.log"
    path.write_bytes(b"")
    with path.open("r+b", buffering=0) as job:
        at = 0
        for blocks, written in parts:
            if written:
                os.pwrite(job.fileno(), (b"x" * 4_095 + b"\n") * blocks, at)
            at += blocks * 4_096
        os.ftruncate(job.fileno(), at)
    count = sum(blocks for blocks, written in parts if written)
    assert texts(path) == ["x" * 4_095] * count
    lines = lines_of(path)
    assert len([piece for piece in lines.backward(lines.end) if piece.content]) == count


@pytest.mark.parametrize(
    ("wanted", "most", "limit"), [(None, 9, 9), (5, 9, 5), (20, 9, 9), (5, 0, 5), (None, 0, 0)]
)
def test_a_job_can_only_lower_the_limit(wanted, most, limit):
    assert lower_limit(wanted, most) == limit


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10g", 10 << 30),
        ("1M", 1 << 20),
        (" 2TiB ", 2 << 40),
        ("0g", None),
        ("10", None),
        ("10k", None),
        ("-1g", None),
    ],
)
def test_sizes_are_written_with_their_unit(text, size):
    assert log_limit_bytes(text) == size
