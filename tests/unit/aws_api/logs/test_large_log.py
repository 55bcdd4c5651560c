"""A log of 200 MB: right at both ends and in the middle, in little memory and in bounded steps."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from tests.unit.aws_api.logs.log_world import T, World, messages

LINES = 2_000_000
LINE_BYTES = 100
BLOCK = 10_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Two million lines of 100 bytes, a record for every ten thousand, and a last line without newline."""
    world = World(tmp_path_factory.mktemp("large"))
    log = world.log("big")
    with open(log.path, "wb") as file, open(f"{log.path}.times", "wb") as times:
        for first in range(0, LINES, BLOCK):
            file.write(b"".join(b"line %094d\n" % n for n in range(first, first + BLOCK)))
            times.write(struct.pack("<QQ", (first + BLOCK) * LINE_BYTES, T + first // BLOCK * 500))
        file.write(b"the very last")
        times.write(struct.pack("<QQ", LINES * LINE_BYTES + 13, T + 200 * 500))
    log.touched(T + 200 * 500).end(T + 200 * 500)
    yield world
    log.path.unlink()


@pytest.fixture(autouse=True)
def little_memory():
    tracemalloc.start()
    yield
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 24 * 1024 * 1024


def number(message: str) -> int:
    return int(message.removeprefix("line "))


def test_both_ends(large):
    head, tail = large.get("big", startFromHead=True), large.get("big")
    assert number(messages(head)[0]) == 0
    assert messages(tail)[-1] == "the very last"
    assert number(messages(tail)[-2]) == LINES - 1
    numbers = [number(message) for message in messages(tail)[:-1]]
    assert numbers == list(range(numbers[0], LINES))
    before = messages(large.get("big", nextToken=tail["nextBackwardToken"]))
    assert number(before[-1]) == numbers[0] - 1


def test_the_middle_is_found_by_time(large):
    at = T + 100 * 500
    assert number(messages(large.get("big", startTime=at, startFromHead=True, limit=1))[0]) == 100 * BLOCK
    assert number(messages(large.get("big", endTime=at, limit=1))[0]) == 100 * BLOCK - 1
    found = large.find(startTime=at, limit=3)
    assert [number(message) for message in messages(found)] == [100 * BLOCK + n for n in range(3)]
    assert {event["timestamp"] for event in found["events"]} == {at}


def test_a_search_answers_in_bounded_steps_and_finds_the_end(large):
    first = large.find(filterPattern='"very last"')
    assert first["events"] == []
    assert "nextToken" in first
    assert messages(large.find_all(filterPattern='"very last"', startTime=T + 190 * 500)) == ["the very last"]


def test_one_line_of_many_megabytes(tmp_path):
    world = World(tmp_path)
    log = world.log("bar").write(b"start\n")
    with open(log.path, "r+b") as file:
        file.truncate(64 * 1024 * 1024)  # a hole: one line of zeros
    log.write(b"end of the bar\nlast\n", at=T).end(T)
    page = world.get("bar", limit=3)
    assert messages(page)[-1] == "last"
    assert messages(page)[-2].endswith("end of the bar")
    assert all(len(message) <= 256 * 1024 for message in messages(page))
    assert messages(world.get("bar", startFromHead=True))[0] == "start"
