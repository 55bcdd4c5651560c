"""A child's worker is known to the next agent."""

from __future__ import annotations

from pathlib import Path

from tests.unit.agent.stories import story_of
from windfall.agent.journal import Journal, read_journal
from windfall.agent.records import Hosted, Intended

INTENDED = Intended("t", "task", "/log", [], 64, 1.0, sandboxed=False, at=1)
HOSTED = Hosted("t", 10, 5, sandboxed=True)


def test_the_record_is_read_again_and_survives_a_rewrite(tmp_path: Path):
    path = str(tmp_path / "journal")
    journal = Journal(path, "boot")
    journal.rewrite(1, [])
    journal.add(INTENDED)
    journal.add(HOSTED)
    journal.flush()
    stories = read_journal(path).stories
    assert stories["t"].hosted == HOSTED
    journal.rewrite(1, stories.values())
    assert read_journal(path).stories["t"].hosted == HOSTED


def test_an_ended_attempt_needs_it_no_more():
    assert HOSTED in story_of(INTENDED, HOSTED).records()
