"""What a job is told in files: that its place is taken away, or may be soon.

Decides in which words. Must not know when that is told, nor who asked for it.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from windfall.agent.attempt import Attempt
from windfall.agent.courier.tree import Tree
from windfall.agent.errors import AgentError
from windfall.agent.places import NOTICE, REBALANCE
from windfall.agent.preparation import places_of
from windfall.agent.speech import say


def write_notice(attempt: Attempt) -> None:
    """Write down for the job that its place is taken away, and when."""
    noticed = attempt.story.noticed
    assert noticed is not None
    document = {
        "action": "terminate",
        "time": _iso(noticed.deadline_at),
        "deadline_at": noticed.deadline_at,
        "why": noticed.words,
    }
    _write(attempt, NOTICE, document)


def write_rebalance(attempt: Attempt, at: int) -> None:
    """Write down for the job that its place may be taken away soon."""
    _write(attempt, REBALANCE, {"noticeTime": _iso(at)})


def _write(attempt: Attempt, name: str, document: dict[str, object]) -> None:
    """Write a small file; a full disk must not keep the signals from being sent."""
    if attempt.story.accepted is None:
        return
    try:
        # The job's user may have put anything there.
        Tree(places_of(attempt).root, None).put(name, msgspec.json.encode(document))
    except (OSError, AgentError) as error:
        say(f"{attempt.token}: {name} cannot be written, so the job gets only signals: {error}")


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
