"""Why an agent ends as soon as it is started: what its log says from then on.

Decides when that is certain: an agent that says that it cannot serve, or one that has ended twice. One that is killed
once is started again by its warden and is not reported. Must not know what can be wrong with an agent.
"""

from __future__ import annotations

import os
import re

from windfall.agent.speech import CANNOT_SERVE, SPEAKER

_WARDEN = "windfall warden: "
#: With which a line begins.
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
_ENDED = f"{_WARDEN}the agent "
_CERTAIN_AFTER_ENDS = 2
#: The end of a longer text is what counts.
_READ_BYTES = 1 << 16


def log_size(path: str) -> int:
    """Where in the log that begins which is said from now on."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def last_words(path: str, since: int) -> str | None:
    """Why no agent will come, in its own words; None as long as one may."""
    lines = _lines(path, since)
    ends = [line for line in lines if line.startswith(_ENDED)]
    said = [line for line in lines if not line.startswith(_WARDEN)]
    if refusals := [line for line in said if line.startswith(SPEAKER + CANNOT_SERVE)]:
        return refusals[-1].removeprefix(SPEAKER)
    if len(ends) < _CERTAIN_AFTER_ENDS:
        return None
    # What a warden says after this changes from time to time, and a trouble is to be told once.
    own = ends[-1].removeprefix(_WARDEN).partition(" after ")[0].partition("; ")[0]
    return said[-1].removeprefix(SPEAKER) if said else own


def last_line(path: str, since: int) -> str:
    """The last line of the log."""
    return next(iter(reversed(_lines(path, since))), "")


def _lines(path: str, since: int) -> list[str]:
    end = log_size(path)
    if end < since:
        since = 0  # A new log was begun meanwhile.
    if end == since:
        return []  # Asked again and again: most often there is nothing new.
    try:
        with open(path, "rb") as file:
            file.seek(max(since, end - _READ_BYTES))
            text = file.read(_READ_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [_TIME.sub("", line).strip() for line in text.splitlines() if line.strip()]
