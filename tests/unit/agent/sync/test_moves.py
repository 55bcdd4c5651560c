"""The kernel tells which files were moved to their names."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from windfall.agent.sync.moves import Moves


@pytest.fixture
def moves(tmp_path):
    heard = Moves(str(tmp_path))
    yield heard
    heard.close()


def test_a_file_that_was_moved_is_told_from_one_that_was_written(tmp_path, moves):
    (tmp_path / "d").mkdir()
    moves.listen(["d"])
    for name in ("a", "d/b"):
        (tmp_path / f"{name}.tmp").write_text("1")
        (tmp_path / f"{name}.tmp").rename(tmp_path / name)
    (tmp_path / "written").write_text("1")
    moves.hear()
    assert moves.has("a", 0)
    assert moves.has("d/b", 0)
    assert not moves.has("written", 0)
    assert not moves.has("a", time.time_ns() + 1_000_000_000), "it was written to since"
    moves.listen(["d"], ["a"])
    assert not moves.has("d/b", 0), "what is gone is forgotten"


def test_a_file_that_is_moved_after_a_look_is_not_forgotten_with_it(tmp_path, moves):
    moves.listen([])
    seen_before: list[str] = []
    (tmp_path / "a.tmp").write_text("1")
    (tmp_path / "a.tmp").rename(tmp_path / "a")
    moves.listen([], seen_before)
    assert moves.has("a", 0)
    moves.listen([], ["a"])
    assert moves.has("a", 0)
    moves.listen([], [])
    assert not moves.has("a", 0), "it was gone at the next look"


def test_a_directory_that_was_moved_has_finished_files(tmp_path, moves):
    moves.listen([])
    (tmp_path / "step.tmp" / "deep").mkdir(parents=True)
    (tmp_path / "step.tmp").rename(tmp_path / "step")
    moves.listen(["step", "step/deep"], ["step/deep/file"])
    assert moves.has("step/deep/file", 0)
    (tmp_path / "step").rename(tmp_path / "other")
    (tmp_path / "other" / "x.tmp").write_text("1")
    (tmp_path / "other" / "x.tmp").rename(tmp_path / "other" / "x")
    moves.hear()
    assert not moves.has("step/x", 0)


def test_nothing_is_known_after_the_end_or_before_the_start(tmp_path, moves):
    assert not moves.has("a", 0)
    moves.close()
    moves.listen([])
    moves.hear()
    assert not moves.has("a", 0)


def test_the_kernel_is_asked_no_longer_when_nobody_listens(tmp_path):
    def listening() -> int:
        # A descriptor that lists the others is gone when it is looked at.
        links = [link for link in Path("/proc/self/fd").iterdir() if os.path.lexists(link)]
        return sum("inotify" in str(link.readlink()) for link in links)

    before = listening()
    heard = Moves(str(tmp_path))
    heard.listen([])
    assert listening() == before + 1
    del heard
    assert listening() == before
