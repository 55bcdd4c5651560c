"""Attempts at any stage, for tests."""

from __future__ import annotations

from typing import Any

from windfall.agent.attempt import Attempt
from windfall.agent.launchers import ProcessLauncher
from windfall.agent.orphans import Orphans
from windfall.agent.records import Intended, Known
from windfall.agent.stages import Story

#: What the launcher of a process does without a machine: it finds and signals processes.
_NO_MACHINE: Any = None
PLAIN = ProcessLauncher(
    _NO_MACHINE, _NO_MACHINE, Orphans("agent-of-these-tests"), lambda _: None, lambda *_: None
)


def story_of(intended: Intended, *records: Known) -> Story:
    """What an agent knows of an attempt after these."""
    story = Story(intended)
    for record in records:
        story.add(record)
    return story


def attempt_of(story: Story) -> Attempt:
    """An attempt that is a process, of which nothing but its story is known."""
    return Attempt(story, PLAIN)
