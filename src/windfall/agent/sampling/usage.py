"""What the processes of one attempt used since the last look: processor, memory, storage.

Decides how counters of processes that come and go become rates. Processor time and storage traffic of a process that
ended go to the parent that waited for it, so what was already counted of it is taken off there again. Must not know
attempts, files or the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from windfall.advisor.samples import NAN
from windfall.agent.sampling.proc_files import (
    TICKS_S,
    ProcessTimes,
    read_thread,
    storage_bytes,
    thread_ids,
)

#: Threads are read every N rounds, and at most M of one attempt at once.
_THREADS_EVERY = 3
_THREADS_AT_ONCE = 48
#: A process that used no processor is asked for its storage traffic only every N rounds: the counters keep.
_QUIET_ROUNDS = 8


class Usage(NamedTuple):
    """One span of one attempt; rates per second."""

    cpu_cores: float
    busiest_thread: float
    #: The sum of all processes' resident memory, in which shared pages count several times, and the largest one's.
    resident_bytes: float
    largest_bytes: float
    processes: int
    read_bytes_s: float
    write_bytes_s: float
    disk_waiters: int


class _Known:
    """What a process had used at the last look."""

    __slots__ = ("children_ticks", "cpu_ticks", "read_bytes", "write_bytes")

    def __init__(self) -> None:
        self.cpu_ticks = self.children_ticks = self.read_bytes = self.write_bytes = 0


class _Moved(NamedTuple):
    """A process that did something in this round."""

    ticks: int
    process: ProcessTimes
    stored: bool


class ProcessUsage:
    """The counters of one attempt."""

    def __init__(
        self,
        list_threads: Callable[[int], list[int]] = thread_ids,
        look_at_thread: Callable[[int, int], ProcessTimes | None] = read_thread,
        look_at_storage: Callable[[int], tuple[int, int] | None] = storage_bytes,
    ) -> None:
        self._list_threads = list_threads
        self._look_at_thread = look_at_thread
        self._look_at_storage = look_at_storage
        self._known: dict[tuple[int, int], _Known] = {}
        #: Ticks of each thread, and the round in which they were read.
        self._threads: dict[tuple[int, int], tuple[int, float]] = {}
        self._round = 0
        self._elapsed_s = 0.0
        #: Whether any process has ever told what it moved.
        self._storage_told = False
        self._last_busiest = 0.0
        self._last_waiting = 0

    def measure(self, processes: Sequence[ProcessTimes], span_s: float) -> Usage:
        """Return what was used since the last look (at the first: since the processes began)."""
        self._round += 1
        self._elapsed_s += span_s
        before, self._known = self._known, {}
        ticks = waited = read = written = 0
        moved: list[_Moved] = []
        for process in processes:
            key = (process.pid, process.start_ticks)
            known = before.pop(key, None)
            fresh = known is None
            if known is None:
                known = _Known()
            self._known[key] = known
            own = process.cpu_ticks - known.cpu_ticks
            ticks += own
            waited += process.children_ticks - known.children_ticks
            if fresh or own or (process.pid + self._round) % _QUIET_ROUNDS == 0:
                counted = self._stored(process.pid) or (known.read_bytes, known.write_bytes)
                stored = counted != (known.read_bytes, known.write_bytes)
                read += counted[0] - known.read_bytes
                written += counted[1] - known.write_bytes
                known.read_bytes, known.write_bytes = counted
                if own or stored:
                    moved.append(_Moved(own, process, stored=stored))
            known.cpu_ticks, known.children_ticks = process.cpu_ticks, process.children_ticks
        for gone in before.values():
            waited -= gone.cpu_ticks + gone.children_ticks
            read -= gone.read_bytes
            written -= gone.write_bytes
        busiest, waiting_threads = self._busiest(moved, span_s)
        return Usage(
            cpu_cores=(ticks + max(0, waited)) / TICKS_S / span_s,
            busiest_thread=busiest,
            resident_bytes=float(sum(process.resident_bytes for process in processes)),
            largest_bytes=float(max((process.resident_bytes for process in processes), default=0)),
            processes=len(processes),
            read_bytes_s=max(0, read) / span_s if self._storage_told else NAN,
            write_bytes_s=max(0, written) / span_s if self._storage_told else NAN,
            disk_waiters=sum(process.state == "D" for process in processes) + waiting_threads,
        )

    def _stored(self, pid: int) -> tuple[int, int] | None:
        """What a process has moved. None means unknown: it has ended, or the kernel does not show it."""
        counted = self._look_at_storage(pid)
        self._storage_told = self._storage_told or counted is not None
        return counted

    def _busiest(self, moved: list[_Moved], span_s: float) -> tuple[float, int]:
        """Return the cores' worth of the busiest thread, and how many threads but the first ones wait for a disk.

        No thread uses more than its process does, so processes are looked into from the busiest down, and only while
        they could still hold a busier thread than the one found, or use a disk. Between two looks the last answer
        stands, as far as the busiest process still allows it.
        """
        moved.sort(key=lambda one: -one.ticks)
        single = max((one.ticks for one in moved if one.process.threads == 1), default=0) / TICKS_S / span_s
        if (self._round - 1) % _THREADS_EVERY:
            bound = moved[0].ticks / TICKS_S / span_s if moved else 0.0
            return max(single, min(self._last_busiest, bound)), self._last_waiting
        most, waiting, budget = single, 0, _THREADS_AT_ONCE
        threads: dict[tuple[int, int], tuple[int, float]] = {}
        for ticks, process, stored in moved:
            bound = ticks / TICKS_S / span_s
            if process.threads == 1 or (bound <= most and not stored) or budget <= 0:
                continue
            ids = self._list_threads(process.pid)
            chosen = self._chosen(process.pid, ids, budget)
            budget -= len(chosen)
            for thread in chosen:
                seen = self._look_at_thread(process.pid, thread)
                if seen is None:
                    continue
                waiting += seen.state == "D" and thread != process.pid
                key = (process.pid, thread)
                last_ticks, at_s = self._threads.get(key, (0, 0.0))
                threads[key] = (seen.cpu_ticks, self._elapsed_s)
                since_s = self._elapsed_s - at_s
                most = max(most, min(bound, 1.0, (seen.cpu_ticks - last_ticks) / TICKS_S / since_s))
        oldest = self._elapsed_s - 16 * _THREADS_EVERY * span_s
        kept = {key: seen for key, seen in self._threads.items() if seen[1] > oldest}
        self._threads = {**kept, **threads}
        self._last_busiest, self._last_waiting = most, waiting
        return most, waiting

    def _chosen(self, pid: int, ids: list[int], budget: int) -> list[int]:
        """All threads where they are few; else the first one and a window that moves on from round to round."""
        if len(ids) <= budget:
            return ids
        begin = self._round * (budget - 1) % len(ids)
        turn = (ids[begin:] + ids[:begin])[: budget - 1]
        return [pid, *(thread for thread in turn if thread != pid)]
