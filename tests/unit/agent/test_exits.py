"""The warden's file as the agent reads it."""

from __future__ import annotations

from pathlib import Path

from windfall.agent.exits import ExitsFile, OrphanExit, parse_exits


def test_torn_and_strange_lines_are_left_out():
    assert parse_exits(b"12 345 256 1000\nnonsense\n13 346 9 -1\n14 347 0 10") == [
        OrphanExit(12, 345, 256, 1000)
    ]


def test_each_line_is_read_once_and_the_file_is_emptied_only_when_all_is_read(tmp_path: Path):
    path = tmp_path / "exits"
    exits = ExitsFile(str(path))
    assert exits.read_new() == []
    with path.open("ab") as writer:
        writer.write(b"1 2 3 4\n")
        writer.flush()
        assert exits.read_new() == [OrphanExit(1, 2, 3, 4)]
        writer.write(b"5 6 7 8\n")
        writer.flush()
        exits.empty()
        assert path.stat().st_size > 0
        assert exits.read_new() == [OrphanExit(5, 6, 7, 8)]
        exits.empty()
        assert path.stat().st_size == 0
        writer.write(b"9 9 9 9\n")
    assert exits.read_new() == [OrphanExit(9, 9, 9, 9)]
