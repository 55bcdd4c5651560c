"""What is told of the files that go with an attempt's private directory, and that looking has an end."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.agent.stories import PLAIN
from windfall.agent.left_files import left_files
from windfall.jobs.staging import LeftFiles, Output, Staging


def an_attempt(directory: Path, *patterns: str) -> Any:
    output = Output("/work", "file:///kept", archived=False, patterns=patterns)
    accepted = SimpleNamespace(staging=Staging(outputs=(output,)))
    intended = SimpleNamespace(private_directories=[str(directory)])
    story = SimpleNamespace(accepted=accepted)
    return SimpleNamespace(intended=intended, story=story, launcher=PLAIN)


def test_files_that_are_not_kept_are_counted(tmp_path):
    for name in ("a.pt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("12")
    assert left_files(an_attempt(tmp_path, "*.pt")) == LeftFiles(2, 4, ("b.txt", "c.txt"))


def test_looking_ends_when_it_takes_long(tmp_path):
    for number in range(100):
        (tmp_path / f"{number:03}").touch()
    seconds = count()
    found = left_files(an_attempt(tmp_path, "*.pt"), clock=lambda: next(seconds) / 10)
    assert found == LeftFiles(5, 0, ("000", "001", "002"), more=True)
