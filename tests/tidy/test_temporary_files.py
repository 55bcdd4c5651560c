"""Tests of one session keep their files apart from those of every other."""

from __future__ import annotations

from pathlib import Path


def test_no_other_session_can_close_the_way_to_our_files(tmp_path: Path):
    """pytest's usual directory has one parent for all sessions of a user, and each that starts takes others' rights."""
    shared = [part for part in tmp_path.parts if part.startswith("pytest-of-")]
    assert not shared, "let tests/conftest.py choose the directory, or give one with --basetemp"
