"""Finds the last value of each metric in a piece of a log. A program of its own, because its patterns are
callers'.

A pattern can take forever on the wrong line, and Python's `re` cannot be interrupted from within. So the
search runs in a process that the kernel ends when a pattern has used up its CPU time; the parent sees
which one that was. Reads one JSON object {"seconds", "line_bytes", "patterns": [[name, regex], ...]} as the
first line of its input and the log as the rest; prints one JSON line [name, value, end] per pattern, `end`
being the offset behind the line, or [name, null, 0]. Uses the standard library alone and runs without the
package.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys

_MEMORY_BYTES = 1 << 30


def last_value(pattern: re.Pattern[str], log: bytes, line_bytes: int) -> tuple[float | None, int]:
    """The number in the last line that matches, and where that line ends."""
    end = len(log)
    while end > 0:
        start = log.rfind(b"\n", 0, end) + 1
        match = pattern.search(log[start:end][:line_bytes].decode("utf-8", "replace"))
        if match is not None:
            try:
                return float(match[1]), end
            except (TypeError, ValueError):
                pass  # a line that looks like the metric and has no number
        end = start - 1
    return None, 0


def main() -> None:
    """Search for each pattern in turn, each with an alarm that the process does not survive."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    request = json.loads(sys.stdin.buffer.readline())
    log = sys.stdin.buffer.read()
    for name, regex in request["patterns"]:
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        value, end = last_value(re.compile(regex), log, request["line_bytes"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        # JSON has no NaN; a metric may well be one.
        sys.stdout.write(json.dumps([name, None if value is None else repr(value), end]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
