"""Which files of a job's private directory are kept after its end, by the patterns that its submitter gave.

Pure: patterns and relative paths in, answers out. Must not look at a disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

PATTERNS_MAX = 32
_LONGEST = 1024
#: A program writes no such pattern, and each one costs time for every file.
_WILDCARDS_MAX = 32
#: Directories above a file that are compared with a pattern, from the top; a job may make ten thousand.
_DEEPEST = 64


class BadPattern(ValueError):
    """The text is not a list of patterns; it says what to write instead."""


def read_patterns(text: str) -> tuple[str, ...]:
    """The patterns in a text: separated by spaces, or each ended by a line break where names have spaces."""
    words = text.splitlines() if "\n" in text else text.split()
    patterns = tuple(dict.fromkeys(word.removeprefix("./").rstrip("/") for word in words))
    if not patterns or len(patterns) > PATTERNS_MAX:
        raise BadPattern(f"give 1 to {PATTERNS_MAX} patterns, such as *.pt or results/")
    for pattern in patterns:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/") or len(pattern) > _LONGEST:
            raise BadPattern(
                f"{pattern[:100]!r} must name files below the job's own directory, such as *.pt or results/"
            )
        if sum(pattern.count(sign) for sign in "*?[") > _WILDCARDS_MAX:
            raise BadPattern(
                f"{pattern[:100]!r} has more than {_WILDCARDS_MAX} wildcards; write a shorter one"
            )
    return patterns


def is_kept(path: str, patterns: Sequence[str]) -> bool:
    """Whether a file is kept: it, or a directory that it is in, matches a pattern.

    A pattern without a slash means a name wherever it stands.
    """
    *above, name = path.split("/")
    names = [*above[:_DEEPEST], name]
    ways = ["/".join(names[:count]) for count in range(1, len(names))] + [path]
    return any(_matches(ways if "/" in pattern else names, pattern) for pattern in patterns)


def _matches(candidates: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(candidate, pattern) for candidate in candidates)
