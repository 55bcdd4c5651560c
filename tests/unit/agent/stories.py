"""Attempts at any stage, for tests."""

from __future__ import annotations

from windfall.agent.stages import Intended, Known, Story


def story_of(intended: Intended, *records: Known) -> Story:
    """What an agent knows of an attempt after these."""
    story = Story(intended)
    for record in records:
        story.add(record)
    return story
