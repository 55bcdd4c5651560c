"""Prefixes as ranges: what begins with a text is what lies between it and the next text.

Used instead of LIKE, so that `%` and `_` are letters like any other and an index serves. Both databases
compare texts by their UTF-8 bytes, which is the order of code points.
"""

from __future__ import annotations

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def after_all_with(prefix: str) -> str | None:
    """The least text above all that begin with `prefix`; None when there is no such text."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST:
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None


def beginning_with(column: str, prefix: str) -> tuple[str, list[str]]:
    """The condition that a column begins with a text, and its parameters."""
    end = after_all_with(prefix)
    if end is None:
        return f"{column} >= ?", [prefix]
    return f"{column} >= ? AND {column} < ?", [prefix, end]
