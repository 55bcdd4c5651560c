"""FinalMetricDataList: the last value of each metric that a job's patterns find in its log.

Decides which part of a log is looked at: the end of it at first, then only what has been added since. Results
are kept per attempt, so that asking again costs nothing while a log does not grow. The search itself is done
by `metric_scan` in a process of its own. Must not know statuses or the store.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windfall.aws_api.logs.attempt_log import AttemptLog, LogEnd
from windfall.control.ports import AttemptFiles
from windfall.jobs.attempts import Attempt

SCAN_BYTES = 4 * 1024 * 1024
LINE_BYTES = 16 * 1024
#: How much CPU time one pattern may take to search one piece; many times what an honest one needs.
PATTERN_S = 0.5
#: How many patterns that take too long one call finds out about; the next call goes on from there.
SLOW_MAX = 3
#: How long a caller waits while others search, before it is answered with what was known.
PATIENCE_S = 2.0
ATTEMPTS_KEPT = 1_000
SLOW_KEPT = 1_000

log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("metric_scan.py")

#: (name, pattern)
Patterns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One metric's last value, and when its line was written."""

    name: str
    value: float
    at: int


@dataclass(slots=True)
class _Seen:
    """What is known of one attempt's log."""

    position: int = 0
    values: dict[str, MetricValue] = field(default_factory=dict)


class FinalMetrics:
    """Reads metrics from the logs of attempts, and remembers how far it has read."""

    def __init__(
        self,
        files: AttemptFiles,
        *,
        pattern_s: float = PATTERN_S,
        scan_bytes: int = SCAN_BYTES,
        python: str = sys.executable,
    ) -> None:
        self._files = files
        self._pattern_s = pattern_s
        self._scan_bytes = scan_bytes
        self._python = python
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        #: Patterns that took too long, which are not tried again.
        self._too_slow: OrderedDict[str, None] = OrderedDict()
        #: One search at a time: many callers of Describe must not become many processes.
        self._searching = threading.Lock()

    async def of(self, attempts: Sequence[Attempt], patterns: Patterns, now: int) -> list[MetricValue]:
        """The last values over all attempts, in the order of the patterns; metrics without one are left out."""
        if not patterns or not attempts:
            return []
        return await asyncio.to_thread(self._of, attempts, patterns, now)

    def _of(self, attempts: Sequence[Attempt], patterns: Patterns, now: int) -> list[MetricValue]:
        if self._searching.acquire(timeout=PATIENCE_S):
            try:
                for attempt in attempts:
                    self._look(attempt, patterns, now)
            except (OSError, subprocess.SubprocessError):
                # The process could not be started; earlier results still hold, and the next call tries again.
                log.exception("metrics of %s could not be read", attempts[-1].token)
            finally:
                self._searching.release()
        values: dict[str, MetricValue] = {}
        for attempt in attempts:
            for name, seen in self._seen.get(attempt.task_id, _Seen()).values.items():
                # Hosts write at the same time: the line that was written last counts.
                if name not in values or seen.at >= values[name].at:
                    values[name] = seen
        return [values[name] for name, _ in patterns if name in values]

    def _look(self, attempt: Attempt, patterns: Patterns, now: int) -> None:
        seen = self._seen.setdefault(attempt.task_id, _Seen())
        self._seen.move_to_end(attempt.task_id)
        while len(self._seen) > ATTEMPTS_KEPT:
            self._seen.popitem(last=False)
        ending = LogEnd(attempt.stopped_at is not None, attempt.stopped_at)
        attempt_log = AttemptLog(self._files.log(attempt.task_id), ending, now)
        # Complete lines only, as long as more may come.
        bottom = attempt_log.lines.end if ending.ended else attempt_log.bottom()
        start = max(seen.position, bottom - self._scan_bytes)
        if bottom <= start:
            return
        piece = attempt_log.lines.read(start, bottom - start)
        matches, complete = self._search(piece, patterns)
        for name, value, end in matches:
            seen.values[name] = MetricValue(name, value, attempt_log.at(start + end))
        if complete:
            seen.position = start + len(piece)

    def _search(self, piece: bytes, patterns: Patterns) -> tuple[list[tuple[str, float, int]], bool]:
        """Last values in a piece, and whether every pattern has had its turn."""
        matches: list[tuple[str, float, int]] = []
        left = [(name, regex) for name, regex in patterns if regex not in self._too_slow]
        for _ in range(SLOW_MAX):
            answered = self._ask(piece, left)
            for name, text, end in answered:
                if text is not None and math.isfinite(value := float(text)):
                    matches.append((name, value, end))
            left = left[len(answered) :]
            if not left:
                return matches, True
            _, slow = left.pop(0)
            self._too_slow[slow] = None
            if len(self._too_slow) > SLOW_KEPT:
                self._too_slow.popitem(last=False)
            log.warning("the metric pattern %r takes too long and is left out", slow)
        return matches, not left

    def _ask(self, piece: bytes, patterns: Patterns) -> list[tuple[str, str | None, int]]:
        """What the search answers; fewer answers than patterns when one of them took too long."""
        if not patterns:
            return []
        request = {"seconds": self._pattern_s, "line_bytes": LINE_BYTES, "patterns": list(patterns)}
        # -I and -S: nothing of the user's environment or site, which also makes the start quick.
        done = subprocess.run(
            [self._python, "-I", "-S", str(_PROGRAM)],
            input=json.dumps(request).encode() + b"\n" + piece,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=10 * self._pattern_s * len(patterns) + 30,
        )
        return [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.endswith(b"]")]
