"""Finds a job's own numbers in a piece of its log. A program of its own, because its patterns are callers'.

A pattern can take forever on the wrong line, and Python's `re` cannot be interrupted from within. So the search runs in
a process that the kernel ends when a pattern has used up its CPU time. Reads one JSON object {"seconds", "line_bytes",
"points", "patterns": [[name, regex], ...]} as the first line of its input and the log as the rest; prints one JSON line
[name, source, [[end, step, value], ...]] for each curve, `end` being the offset behind the line. Lines that are JSON
objects with numbers come first, under the names of their members. Uses the standard library alone and runs without the
package.
"""

from __future__ import annotations

import json
import math
import re
import resource
import signal
import sys
from collections.abc import Iterator

_MEMORY_BYTES = 1 << 30
#: Members of JSON lines that become curves.
NAMES_MAX = 20
#: Members that say which step a line is about.
_STEPS = ("step", "global_step", "iteration", "iter", "epoch")

Point = list[float | int | None]


def thinned(points: list[Point], most: int) -> list[Point]:
    """No more than `most` of the points, evenly, the last one always."""
    if len(points) <= most:
        return points
    stride = -(-len(points) // most)
    return points[(len(points) - 1) % stride :: stride]


def lines_of(log: bytes, line_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Where each line ends, and its first bytes."""
    start = 0
    while start < len(log):
        end = log.find(b"\n", start)
        end = len(log) if end < 0 else end
        yield end, log[start : min(end, start + line_bytes)]
        start = end + 1


def of_json_lines(log: bytes, line_bytes: int) -> dict[str, list[Point]]:
    """The numbers of lines that are JSON objects, by name."""
    curves: dict[str, list[Point]] = {}
    for end, line in lines_of(log, line_bytes):
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            members = json.loads(line)
        except (ValueError, RecursionError):
            continue
        step = next((members[name] for name in _STEPS if _is_number(members.get(name))), None)
        for name, value in members.items():
            if name not in _STEPS and _is_number(value) and (name in curves or len(curves) < NAMES_MAX):
                curves.setdefault(name[:100], []).append([end, step, value])
    return curves


def of_pattern(pattern: re.Pattern[str], log: bytes, line_bytes: int) -> list[Point]:
    """The numbers in lines that match."""
    points: list[Point] = []
    for end, line in lines_of(log, line_bytes):
        match = pattern.search(line.decode("utf-8", "replace"))
        if match is not None:
            try:
                value = float(match[1])
            except (TypeError, ValueError, IndexError):
                continue  # a line that looks like the metric and has no number
            if math.isfinite(value):
                points.append([end, None, value])
    return points


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def main() -> None:
    """Search for each curve in turn, each with an alarm that the process does not survive."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    request = json.loads(sys.stdin.buffer.readline())
    log = sys.stdin.buffer.read()
    most, line_bytes = request["points"], request["line_bytes"]

    def tell(name: str, source: str, points: list[Point]) -> None:
        sys.stdout.write(json.dumps([name, source, thinned(points, most)]) + "\n")
        sys.stdout.flush()

    for name, points in of_json_lines(log, line_bytes).items():
        tell(name, "json line", points)
    for name, regex in request["patterns"]:
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        points = of_pattern(re.compile(regex), log, line_bytes)
        signal.setitimer(signal.ITIMER_PROF, 0)
        tell(name, "log regex", points)


if __name__ == "__main__":
    main()
