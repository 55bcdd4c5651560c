"""When files were made, by the kernel's word: a new file of an old number is told from the old one."""

from __future__ import annotations

import os

import pytest

from tests.waiting import wait_until
from windfall.agent.sync.births import born_ns
from windfall.agent.sync.scanning import look_through


def test_a_file_that_replaces_another_was_made_later_and_one_that_is_written_was_not(tmp_path):
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        (tmp_path / "a").write_text("1")
        first = born_ns("a", place)
        if not first:
            pytest.skip("this file system does not keep when files were made")
        (tmp_path / "a").write_text("written in place")
        assert born_ns("a", place) == first
        assert abs(first - (tmp_path / "a").stat().st_mtime_ns) < 60 * 1_000_000_000

        def replaced() -> bool:
            (tmp_path / "new").write_text("2")
            (tmp_path / "new").rename(tmp_path / "a")
            return born_ns("a", place) > first

        # The kernel's clock for files goes by ticks of some milliseconds.
        wait_until(replaced, "a later birth")
        assert born_ns("missing", place) == 0
    finally:
        os.close(place)


def test_a_look_tells_a_replaced_file_from_the_one_before(tmp_path):
    (tmp_path / "a").write_text("1")
    before = look_through(str(tmp_path)).files["a"]

    def replaced() -> bool:
        (tmp_path / "b").write_text("2")
        (tmp_path / "b").rename(tmp_path / "a")
        return not look_through(str(tmp_path)).files["a"].is_same_file(before)

    wait_until(replaced, "the look to find another file")
    same = look_through(str(tmp_path)).files["a"]
    (tmp_path / "a").write_text("3")
    assert look_through(str(tmp_path)).files["a"].is_same_file(same)
