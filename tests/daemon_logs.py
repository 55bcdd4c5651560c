"""The last lines of the daemons that a failed test had, shown with its failure.

A daemon's directory is removed when its test ends, and a failure that comes once in a hundred runs leaves nothing else
to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

#: Characters of each log that are shown.
SHOWN = 6_000
_LOGS = ("*.log", "data/agent/*.log", "data/s3/*.log", "data/*.log")

_watched: list[Path] = []
_closed: list[tuple[str, str]] = []


def watch(root: Path) -> None:
    """Show the logs below this directory when a test fails."""
    _watched.append(root)


def closing(root: Path) -> None:
    """Keep the ends of these logs until the test is over: the directory is about to be removed."""
    if root in _watched:
        _watched.remove(root)
        _closed.extend(_ends(root))


def begin_test() -> None:
    """Drop what the test before has closed."""
    _closed.clear()


def ends_of_logs() -> list[tuple[str, str]]:
    """Each log of this test's daemons by its path, and how it ends."""
    return [*_closed, *(end for root in _watched for end in _ends(root))]


def _ends(root: Path) -> Iterator[tuple[str, str]]:
    for pattern in _LOGS:
        for log in sorted(root.glob(pattern)):
            try:
                text = log.read_text(errors="replace")[-SHOWN:]
            except OSError:
                continue
            if text.strip():
                yield str(log.relative_to(root.parent)), text
