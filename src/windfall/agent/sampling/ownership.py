"""Which attempt each process belongs to, kept from round to round so that others' processes cost next to nothing.

A process belongs to the attempt whose main process leads its session, else to its parent's attempt, and stays with it
when its parent ends. Must not know what is measured of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windfall.agent.sampling.proc_files import ProcessTimes, pids, read_process

#: Rounds after which processes of others are looked at again, in case the kernel has used their numbers anew.
_DOUBT_AFTER_ROUNDS = 30


class Ownership:
    """The processes of all watched attempts."""

    def __init__(
        self,
        list_pids: Callable[[], list[int]] = pids,
        look: Callable[[int], ProcessTimes | None] = read_process,
    ) -> None:
        self._list_pids = list_pids
        self._look = look
        self._roots: frozenset[int] = frozenset()
        #: Start time and main process of each process of an attempt.
        self._owned: dict[int, tuple[int, int]] = {}
        self._foreign: set[int] = set()
        self._rounds = 0

    def processes(self, roots: Iterable[int]) -> dict[int, list[ProcessTimes]]:
        """Return the processes now, by the main process of their attempt."""
        wanted = frozenset(roots)
        self._rounds += 1
        if not wanted <= self._roots or self._rounds % _DOUBT_AFTER_ROUNDS == 0:
            self._foreign.clear()
        self._roots = wanted
        seen: dict[int, ProcessTimes] = {}
        listed = self._list_pids()
        for pid in listed:
            if pid not in self._foreign:
                found = self._look(pid)
                if found is not None:
                    seen[pid] = found
        self._foreign.intersection_update(listed)
        return self._group(seen)

    def _group(self, seen: dict[int, ProcessTimes]) -> dict[int, list[ProcessTimes]]:
        before, self._owned = self._owned, {}
        grouped: dict[int, list[ProcessTimes]] = {root: [] for root in self._roots}
        for pid, process in seen.items():
            root = self._owner(process, seen, before)
            if root:
                self._owned[pid] = (process.start_ticks, root)
                grouped[root].append(process)
            else:
                self._foreign.add(pid)
        return grouped

    def _owner(
        self, process: ProcessTimes, seen: dict[int, ProcessTimes], before: dict[int, tuple[int, int]]
    ) -> int:
        passed: set[int] = set()
        at: ProcessTimes | None = process
        while at is not None and at.pid not in passed:
            passed.add(at.pid)
            known = before.get(at.pid) or self._owned.get(at.pid)
            if known is not None and known[0] == at.start_ticks and known[1] in self._roots:
                return known[1]
            if at.session in self._roots:
                return at.session
            if at.pid in self._roots:
                return at.pid
            at = seen.get(at.ppid)
        return 0
