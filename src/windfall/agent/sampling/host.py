"""What the whole host used since the last look: processors, memory, network, disks. Decides which counters of /proc say
it; must not know attempts.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from windfall.advisor.samples import NAN
from windfall.agent.sampling.proc_files import TICKS_S, network_bytes, read

_SECTOR_BYTES = 512


class HostUsage(NamedTuple):
    """One span of the host; rates per second."""

    cpu_cores: float = NAN
    memory_bytes: float = NAN
    processes: float = NAN
    read_bytes_s: float = NAN
    write_bytes_s: float = NAN
    rx_bytes_s: float = NAN
    tx_bytes_s: float = NAN
    disk_waiters: float = NAN


class _Counters(NamedTuple):
    busy_ticks: int
    running: int
    blocked: int
    received: int
    sent: int
    read_bytes: int
    written_bytes: int


class HostMeter:
    """The host's counters, from look to look."""

    def __init__(self) -> None:
        self._before: _Counters | None = None
        self._disks = _whole_disks()

    def measure(self, span_s: float) -> HostUsage:
        """Return what was used since the last look; at the first only what is so now."""
        now = self._look()
        before, self._before = self._before, now
        if before is None or span_s <= 0:
            return HostUsage(memory_bytes=_used_memory(read("/proc/meminfo")), processes=float(now.running))
        return HostUsage(
            cpu_cores=max(0, now.busy_ticks - before.busy_ticks) / TICKS_S / span_s,
            memory_bytes=_used_memory(read("/proc/meminfo")),
            processes=float(now.running),
            read_bytes_s=max(0, now.read_bytes - before.read_bytes) / span_s,
            write_bytes_s=max(0, now.written_bytes - before.written_bytes) / span_s,
            rx_bytes_s=max(0, now.received - before.received) / span_s,
            tx_bytes_s=max(0, now.sent - before.sent) / span_s,
            disk_waiters=float(now.blocked),
        )

    def _look(self) -> _Counters:
        busy, running, blocked = parse_cpu(read("/proc/stat", 1 << 20))
        received, sent = network_bytes(read("/proc/self/net/dev", 1 << 16))
        return _Counters(busy, running, blocked, received, sent, *self._disk_bytes())

    def _disk_bytes(self) -> tuple[int, int]:
        read_sectors = written_sectors = 0
        for line in read("/proc/diskstats", 1 << 16).splitlines():
            fields = line.split()
            if len(fields) > 9 and fields[2] in self._disks:
                read_sectors += int(fields[5])
                written_sectors += int(fields[9])
        return read_sectors * _SECTOR_BYTES, written_sectors * _SECTOR_BYTES


def parse_cpu(content: bytes) -> tuple[int, int, int]:
    """Return the ticks in which any processor worked, and how many threads run and wait for disks, from /proc/stat."""
    busy = running = blocked = 0
    for line in content.splitlines():
        if line.startswith(b"cpu "):
            # user nice system idle iowait irq softirq steal; guests are in user already.
            ticks = [int(field) for field in line.split()[1:9]]
            busy = sum(ticks) - ticks[3] - ticks[4]
        elif line.startswith(b"procs_running"):
            running = int(line.split()[1])
        elif line.startswith(b"procs_blocked"):
            blocked = int(line.split()[1])
    return busy, running, blocked


def _used_memory(meminfo: bytes) -> float:
    amounts = {}
    for line in meminfo.splitlines()[:5]:
        name, _, amount = line.partition(b":")
        amounts[name] = int(amount.split()[0]) * 1024
    try:
        return float(amounts[b"MemTotal"] - amounts[b"MemAvailable"])
    except KeyError:
        return NAN


def _whole_disks() -> frozenset[bytes]:
    """The disks that are hardware: partitions and what is built from disks would count the same bytes again."""
    try:
        names = os.listdir("/sys/block")
    except OSError:
        return frozenset()
    return frozenset(name.encode() for name in names if os.path.exists(f"/sys/block/{name}/device"))
