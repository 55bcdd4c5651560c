"""What the kernel counts for a whole cgroup: processor time of all that ever ran in it, memory, how often it was held
back.

Better than sums over processes, where an attempt has a group of its own: nothing that ended is missing, and no page
counts twice. Decides which files say it, in version 1 and 2; must not know attempts.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from windfall.advisor.samples import NAN
from windfall.agent.cgroups import parse_mounts, parse_own_groups
from windfall.agent.sampling.proc_files import read

_PERIOD_US = 100_000


class Counters(NamedTuple):
    """The counters of a group now; NaN where it does not count that."""

    cpu_s: float = NAN
    #: How long all the periods together were in which it was held back.
    throttled_s: float = NAN
    memory_bytes: float = NAN


class CgroupCounters:
    """The directories of one group."""

    def __init__(self, version: int, cpu: str | None, memory: str | None) -> None:
        self._version = version
        self._cpu = cpu
        self._memory = memory

    def read(self, *, with_memory: bool) -> Counters:
        """Return the counters; memory only if asked, because adding it up costs the kernel something."""
        cpu_s, throttled_s = self._cpu_counters()
        return Counters(cpu_s, throttled_s, self._memory_bytes() if with_memory else NAN)

    def _cpu_counters(self) -> tuple[float, float]:
        if self._cpu is None:
            return NAN, NAN
        counted = _table(read(f"{self._cpu}/cpu.stat"))
        if self._version == 2:
            cpu_s = counted.get(b"usage_usec", NAN) / 1e6
            period = read(f"{self._cpu}/cpu.max").split()[1:]
        else:
            usage = read(f"{self._cpu}/cpuacct.usage").strip()
            cpu_s = int(usage) / 1e9 if usage else NAN
            period = read(f"{self._cpu}/cpu.cfs_period_us").split()
        period_us = int(period[0]) if period else _PERIOD_US
        return cpu_s, counted.get(b"nr_throttled", NAN) * period_us / 1e6

    def _memory_bytes(self) -> float:
        if self._memory is None:
            return NAN
        counted = _table(read(f"{self._memory}/memory.stat", 16 << 10))
        private, shared = (b"anon", b"shmem") if self._version == 2 else (b"total_rss", b"total_shmem")
        return counted.get(private, NAN) + counted.get(shared, 0.0)


def find_counters(pid: int, mountinfo: bytes | None = None) -> CgroupCounters | None:
    """Find the group that a process is in; None where it has none that can be read."""
    mounts = parse_mounts((mountinfo or read("/proc/self/mountinfo", 1 << 18)).decode(errors="replace"))
    own = parse_own_groups(read(f"/proc/{pid}/cgroup").decode(errors="replace"))
    # Version 1 comes first: where both are mounted, version 2 has no controllers.
    for wanted in (1, 2):
        found: dict[str, str] = {}
        for version, controllers, mount in mounts:
            for name in ("cpu", "memory") if version == 2 else controllers:
                path = own.get("" if version == 2 else name)
                if version == wanted and path is not None and os.path.exists(f"{mount}{path}/{name}.stat"):
                    found[name] = os.path.normpath(mount + path)
        if found:
            return CgroupCounters(wanted, found.get("cpu"), found.get("memory"))
    return None


def _table(content: bytes) -> dict[bytes, float]:
    """Read lines of a name and a number."""
    lines = (line.split() for line in content.splitlines())
    return {fields[0]: float(fields[1]) for fields in lines if len(fields) == 2}
