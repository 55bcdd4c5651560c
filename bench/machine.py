"""The machine that a run is measured on, and what processes on it cost: facts from /proc."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")


def describe(directory: Path, command: str) -> dict[str, Any]:
    """What a reader must know to judge the figures; `directory` is where daemons keep their files."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "Python": platform.python_version(),
        "load average at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind = line.split()[:3]
        inside = str(directory).startswith(point.rstrip("/") + "/") or point == "/"
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used so far, its collected children not counted."""
    return sum(_times(pid)[:2]) / _TICKS


def children_cpu_s(pid: int) -> float:
    """Processor seconds of all children that a process has collected so far."""
    return sum(_times(pid)[2:]) / _TICKS


def _times(pid: int) -> list[int]:
    content = Path(f"/proc/{pid}/stat").read_text()
    return [int(field) for field in content[content.rfind(")") + 2 :].split()[11:15]]


def resident_mib(pid: int | str = "self") -> float:
    """Memory of a process that is in RAM."""
    return _rollup(pid, "Rss:")


def proportional_mib(pid: int | str = "self") -> float:
    """Memory of a process with shared pages divided among those who share them."""
    return _rollup(pid, "Pss:")


def _rollup(pid: int | str, name: str) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still live."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_quiet(most_s: float = 20.0) -> float:
    """Wait while others keep the cores busy, but not for ever; answer the share of processor time in use."""
    deadline = time.monotonic() + most_s
    while True:
        busy = _busy_share(0.5)
        if busy < 0.25 or time.monotonic() >= deadline:
            return busy


def _busy_share(seconds: float) -> float:
    def read() -> tuple[int, int]:
        numbers = [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]

    total, idle = read()
    time.sleep(seconds)
    total_now, idle_now = read()
    return 1 - (idle_now - idle) / max(1, total_now - total)
