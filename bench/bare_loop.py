"""The yardstick: a bare Python loop that starts `true` with a log file of its own, and nothing else.

No queue, no API, no durability: what any scheduler adds is measured against this, in the same run.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

IN_FLIGHT = 2


class Pace(NamedTuple):
    """How fast the loop was, and what a process cost."""

    per_s: float
    #: Processor milliseconds of the loop and of the process itself.
    cpu_ms: float


def run(count: int, workspace: Path, at_once: int = IN_FLIGHT) -> Pace:
    """Start and collect `count` processes of `true`, at most `at_once` at a time, each with its own log and session."""
    program = "/bin/true"
    logs = Path(tempfile.mkdtemp(prefix="bare-", dir=workspace))
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    argv, environment = [program], {"PATH": "/usr/bin:/bin"}
    running = 0
    used_s = _used_s()
    begin = time.perf_counter()
    for number in range(count):
        if running == at_once:
            os.waitpid(-1, 0)
            running -= 1
        actions = [
            (os.POSIX_SPAWN_OPEN, 1, f"{logs}/{number}.log", flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        os.posix_spawn(program, argv, environment, file_actions=actions, setsid=True)
        running += 1
    while running:
        os.waitpid(-1, 0)
        running -= 1
    pace = Pace(count / (time.perf_counter() - begin), (_used_s() - used_s) / count * 1000)
    made = sum(1 for _ in logs.iterdir())
    if made != count:
        raise RuntimeError(f"the bare loop made {made} logs instead of {count}")
    return pace


def _used_s() -> float:
    return sum(os.times()[:4])


def start_latency_ms(count: int, workspace: Path) -> list[float]:
    """Time from the call of posix_spawn until the program's own first act, as `date` writes it down."""
    found = []
    path = workspace / "bare-date.log"
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    for _ in range(count):
        begin = time.time()
        actions = [(os.POSIX_SPAWN_OPEN, 1, str(path), flags, 0o600)]
        argv = ["date", "+%s.%N"]
        pid = os.posix_spawn("/bin/date", argv, {"PATH": "/usr/bin:/bin"}, file_actions=actions)
        os.waitpid(pid, 0)
        found.append((float(path.read_text()) - begin) * 1000)
        time.sleep(0.005)
    return found
