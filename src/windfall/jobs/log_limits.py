"""How large a job's log may get, as settings and tags say it. Decides the form and the least; limits nothing."""

from __future__ import annotations

import re

#: What stands for no limit in the daemon's settings.
NO_LIMIT = "none"
LIMIT_FORM = "a size from 1m on, such as 500m, 10g or 1t"
LIMIT_PATTERN = r"([1-9][0-9]{0,5})([mgtMGT])([iI]?[bB])?"
_FORM = re.compile(LIMIT_PATTERN, re.ASCII)
_UNITS = {"m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def log_limit_bytes(text: str) -> int | None:
    """The limit in bytes; None for what is not in the form."""
    match = _FORM.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2].lower()]
