"""What is said about a job that loses its place: each thing once, in the order in which it happened."""

from __future__ import annotations

from typing import Any

from windfall.cli.progress import Narrator

NOW = 1_000_000


def an_attempt(number: int, **fields: Any) -> dict[str, Any]:
    """An attempt as the daemon's operation Attempts has it."""
    names = ("stopCause", "stopWords", "deadlineAt", "exitedAt", "stoppedAt", "exitCode", "statusReason")
    unknown = dict.fromkeys((*names, "checkpoint", "restored", "progress"))
    return {**unknown, "number": number, "instance": f"i-{number}", "startedAt": 1, **fields}


def a_mark(step: int | None, name: str = "model.pt") -> dict[str, Any]:
    return {"step": step, "name": name, "bytes": 164_000}


def noticed(**fields: Any) -> dict[str, Any]:
    return an_attempt(
        1,
        stopCause="interrupted",
        stopWords="drill",
        deadlineAt=NOW + 30_000,
        progress={"step": 231},
        **fields,
    )


def taken(**fields: Any) -> dict[str, Any]:
    return noticed(stoppedAt=NOW, exitedAt=NOW, exitCode=143) | {"progress": {"step": 232}, **fields}


def test_an_interruption_from_notice_to_resumption():
    narrator = Narrator()
    assert narrator.news([an_attempt(1)], NOW) == []
    assert narrator.news([noticed()], NOW) == ["its place is taken away in 30 s (drill)"]
    assert narrator.news([noticed()], NOW + 1000) == []
    ended = taken(checkpoint=a_mark(232))
    assert narrator.news([ended], NOW) == ["taken away at step 232; saved: step 232 (164.0 kB)"]
    waiting = an_attempt(2, startedAt=None)
    assert narrator.news([ended, waiting], NOW) == []
    resumed = an_attempt(2, restored=a_mark(232))
    assert narrator.news([ended, resumed], NOW) == ["resumed at step 232 on i-2 (attempt 2)"]
    assert narrator.news([ended, resumed], NOW) == []


def test_all_of_it_at_once_is_told_in_order():
    told = Narrator().news([taken(checkpoint=a_mark(None)), an_attempt(2, restored=a_mark(None))], NOW)
    assert told == [
        "taken away at step 232; saved: model.pt (164.0 kB)",
        "resumed with model.pt on i-2 (attempt 2)",
    ]


def test_what_was_saved_on_notice_is_later_than_what_was_told_before():
    (told,) = Narrator().news([taken(checkpoint=a_mark(240))], NOW)
    assert told == "taken away at step 240; saved: step 240 (164.0 kB)"


def test_what_was_lost_is_said():
    lost = an_attempt(1, stoppedAt=NOW, statusReason="Host EC2 (instance i-1) terminated.")
    assert Narrator().news([lost, an_attempt(2)], NOW) == [
        "taken away; nothing was saved",
        "started again from the beginning on i-2 (attempt 2)",
    ]


def test_other_ends_are_no_interruptions():
    failed = an_attempt(1, stoppedAt=NOW, exitCode=1, statusReason="Essential container in task exited")
    finished = taken(exitCode=0, statusReason="Essential container in task exited")
    assert Narrator().news([failed, an_attempt(2)], NOW) == []
    assert Narrator().news([finished], NOW) == []
