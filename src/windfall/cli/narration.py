"""What `windfall run` says about a job that loses its place: taken away, what was saved, where it goes on.

Attempts in, sentences out, each once. Must not ask the daemon or print.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windfall.cli.attempts import Attempt, mark_words
from windfall.cli.wording import duration

#: Why an attempt leaves its place that is tried again, as the daemon names it; and how AWS words a lost host.
_TAKEN_AWAY = ("interrupted", "sick GPU", "preempted", "outranked")
_HOST_LOST = "Host EC2"


class Narrator:
    """Remembers what was said."""

    def __init__(self) -> None:
        self._said: set[tuple[int, str]] = set()

    def news(self, attempts: Iterable[Attempt], now: int) -> list[str]:
        """What has happened to these attempts of a job since the last look."""
        lines: list[str] = []
        before: Attempt | None = None
        for attempt in attempts:
            number = attempt["number"]
            if before is not None and _lost_its_place(before) and attempt["startedAt"] is not None:
                lines += self._once(number, "started", _resumed(attempt))
            if (
                attempt["stopCause"] in _TAKEN_AWAY
                and attempt["exitedAt"] is None
                and attempt["stoppedAt"] is None
            ):
                lines += self._once(number, "notice", _noticed(attempt, now))
            if _lost_its_place(attempt):
                lines += self._once(number, "taken", _taken(attempt))
            before = attempt
        return lines

    def _once(self, number: int, what: str, text: str) -> list[str]:
        if (number, what) in self._said:
            return []
        self._said.add((number, what))
        return [text]


def _lost_its_place(attempt: Attempt) -> bool:
    if attempt["stoppedAt"] is None:
        return False
    lost = str(attempt["statusReason"] or "").startswith(_HOST_LOST)
    return lost or (attempt["stopCause"] in _TAKEN_AWAY and attempt["exitCode"] != 0)


def _noticed(attempt: Attempt, now: int) -> str:
    left = attempt["deadlineAt"]
    until = "" if left is None else f" in {duration(max(0, left - now))}"
    why = f" ({attempt['stopWords']})" if attempt["stopWords"] else ""
    return f"its place is taken away{until}{why}"


def _taken(attempt: Attempt) -> str:
    progress: dict[str, Any] = attempt["progress"] or {}
    saved = attempt["checkpoint"] or attempt["restored"]
    # The last step is often known from what was saved on notice alone.
    steps = [step for step in (progress.get("step"), saved and saved["step"]) if step is not None]
    at = f" at step {max(steps):,}" if steps else ""
    outcome = f"saved: {mark_words(saved)}" if saved else "nothing was saved"
    return f"taken away{at}; {outcome}"


def _resumed(attempt: Attempt) -> str:
    progress: dict[str, Any] = attempt["progress"] or {}
    restored, step = attempt["restored"], progress.get("restoredStep")
    where = f"on {attempt['instance']} (attempt {attempt['number']})"
    if step is None and restored is not None:
        step = restored["step"]
    if step is not None:
        return f"resumed at step {step:,} {where}"
    if restored is not None:
        return f"resumed with {restored['name']} {where}"
    return f"started again from the beginning {where}"
