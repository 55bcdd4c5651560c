"""What a page can watch: the names of topics, which question each stands for, and when two answers say the same.

Every topic is answered by an operation that can be asked by itself too, for the same caller. Decides how often a topic
is looked at. Must not know streams or watchers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.views.spelling import Answer

TOPICS_MAX, ROWS_MAX = 40, 100
#: What is watched is remembered for a while, so it must be short.
ID_LETTERS_MAX = 200
#: The size of a log, which is an operation only here.
LOG_SIZE = "LogSize"

_JOB = re.compile(r"(job|array|log):([A-Za-z0-9][A-Za-z0-9._:#-]{0,199})(?:@([1-9][0-9]{0,5}))?", re.ASCII)
#: By the topic: the operations that answer it, whose members are put together, and the seconds between two looks.
_PLAIN: dict[str, tuple[tuple[str, ...], int]] = {
    "now": (("Top", "Machines"), 2),
    "counts": (("Counts",), 1),
    "alarms": (("Alarms",), 5),
    "activity": (("Activity",), 10),
    "queues": (("Status",), 2),
}
_OF_JOB = {"job": ("JobPage", 2), "array": ("ArrayMap", 1), "log": (LOG_SIZE, 1)}
#: Members that say when an answer was made, or that follow from the clock alone.
_MOVES_WITH_THE_CLOCK = frozenset({"at", "now", "seconds"})
#: Reasons whose texts say for how long something has been so.
_TELLS_A_DURATION = frozenset({"running", "starting", "held_by"})


@dataclass(frozen=True, slots=True)
class Topic:
    """One thing to watch."""

    name: str
    operations: tuple[str, ...]
    every_s: int
    #: What the operations are asked with, as pairs, so that topics can be compared and kept in tables.
    job_id: str | None = None
    attempt: int | None = None
    rows: tuple[str, ...] = ()

    @property
    def params(self) -> dict[str, Any]:
        """The request's members."""
        if self.rows:
            return {"jobIds": list(self.rows)}
        if self.job_id is None:
            return {}
        return {"jobId": self.job_id} | ({} if self.attempt is None else {"attempt": self.attempt})


def topics_of(params: Mapping[str, Any]) -> list[Topic]:
    """The topics that a request names."""
    names, rows = params.get("topics"), params.get("rows", [])
    if not isinstance(names, list) or not 1 <= len(names) <= TOPICS_MAX:
        raise ApiError("Invalid", f"topics is required (a list of 1 to {TOPICS_MAX} topics).")
    if (
        not isinstance(rows, list)
        or len(rows) > ROWS_MAX
        or not all(isinstance(it, str) and 0 < len(it) <= ID_LETTERS_MAX for it in rows)
    ):
        raise ApiError(
            "Invalid",
            f"rows must be a list of at most {ROWS_MAX} job ids of at most {ID_LETTERS_MAX} letters.",
        )
    return [_topic(name, tuple(rows)) for name in dict.fromkeys(map(str, names))]


def _topic(name: str, rows: tuple[str, ...]) -> Topic:
    if name in _PLAIN:
        return Topic(name, *_PLAIN[name])
    if name == "rows" and rows:
        return Topic(name, ("JobRows",), 1, rows=rows)
    match = _JOB.fullmatch(name)
    if match is None or (match[3] and match[1] != "log"):
        raise ApiError(
            "Invalid",
            f"{name[:100]!r} cannot be watched; there are {', '.join(_PLAIN)}, rows (with `rows`), job:ID, array:ID, "
            "log:ID and log:ID@ATTEMPT.",
        )
    operation, every_s = _OF_JOB[match[1]]
    return Topic(name, (operation,), every_s, match[2], int(match[3]) if match[3] else None)


def content_of(answer: Any) -> Any:
    """What of an answer is news when it differs: all but what follows from the clock."""
    if isinstance(answer, dict):
        tells = answer.get("code") in _TELLS_A_DURATION
        return {
            name: content_of(value)
            for name, value in answer.items()
            if name not in _MOVES_WITH_THE_CLOCK and not (tells and name == "text")
        }
    return [content_of(item) for item in answer] if isinstance(answer, list) else answer


def shown(topic: Topic, answer: Answer) -> Answer:
    """The part of an answer that a topic shows."""
    if topic.name == "queues":
        return {name: answer[name] for name in ("queues", "environments", "warnings", "waiting", "running")}
    if topic.name == "activity":
        return dict(answer["points"][-1]) if answer["points"] else {}
    return answer
