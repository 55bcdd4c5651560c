"""One attempt, measured: puts together what its processes, its cgroup, its network, its own words and its GPUs say.

Decides which source is believed where several know the same. Must not know threads of the agent nor files of samples.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from windfall.advisor.samples import NAN, GpuSample, Sample
from windfall.agent.attempt import Attempt
from windfall.agent.courier.progress import MOST_BYTES, parse_progress
from windfall.agent.courier.tree import Tree
from windfall.agent.errors import AgentError
from windfall.agent.places import PROGRESS
from windfall.agent.preparation import places_of
from windfall.agent.sampling.cgroup_counters import CgroupCounters, Counters, find_counters
from windfall.agent.sampling.host import HostUsage
from windfall.agent.sampling.proc_files import ProcessTimes, network_bytes, read
from windfall.agent.sampling.usage import ProcessUsage
from windfall.jobs.staging import Progress


class Surroundings(NamedTuple):
    """What a round knows beside the attempt itself."""

    at: int
    span_ms: int
    host: HostUsage
    #: Bytes that its connections on the host's network received and sent; None: not known.
    carried: tuple[int, int] | None
    gpus: tuple[GpuSample, ...]


class AttemptMeter:
    """The counters of one attempt, from round to round."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._usage = ProcessUsage()
        self._group: CgroupCounters | None = None
        self._counters = Counters()
        self._progress: Progress | None = None
        self._network: tuple[int, int] | None = None
        self.pid = main_pid(attempt)
        #: Whether it has a network of its own, whose counters are then its own.
        self.own_network = _network_of(self.pid) not in (None, _network_of(os.getpid()))

    def measure(self, processes: Sequence[ProcessTimes], around: Surroundings) -> Sample:
        """Return what happened since the last look."""
        span_s = around.span_ms / 1000
        usage = self._usage.measure(processes, span_s)
        before, counters = self._counters, self._read_group(len(processes))
        self._counters = counters
        cpu_cores = (counters.cpu_s - before.cpu_s) / span_s
        throttled = (counters.throttled_s - before.throttled_s) / span_s
        memory = usage.resident_bytes
        if not math.isnan(counters.memory_bytes):
            # What it had touched before it was put into its group is counted elsewhere.
            memory = min(memory, max(counters.memory_bytes, usage.largest_bytes))
        received, sent = self._carried(around.carried)
        steps, data_wait_s, stall_s = self._said()
        return Sample(
            at=around.at,
            span_ms=around.span_ms,
            cpu_cores=usage.cpu_cores if math.isnan(cpu_cores) else max(0.0, cpu_cores),
            busiest_thread=usage.busiest_thread,
            memory_bytes=memory,
            processes=float(usage.processes),
            read_bytes_s=usage.read_bytes_s,
            write_bytes_s=usage.write_bytes_s,
            net_rx_bytes_s=received / span_s,
            net_tx_bytes_s=sent / span_s,
            host_rx_bytes_s=around.host.rx_bytes_s,
            host_tx_bytes_s=around.host.tx_bytes_s,
            disk_waiters=float(usage.disk_waiters),
            cpu_throttled=throttled if math.isnan(throttled) else min(1.0, max(0.0, throttled)),
            steps=steps,
            data_wait_s=data_wait_s,
            stall_s=stall_s,
            gpus=around.gpus,
        )

    def _read_group(self, processes: int) -> Counters:
        attempt = self._attempt
        if attempt.cgroup is None and attempt.container_pid is None:
            return Counters()
        if self._group is None:
            self._group = find_counters(self.pid)
        return Counters() if self._group is None else self._group.read(with_memory=processes > 1)

    def _carried(self, by_connection: tuple[int, int] | None) -> tuple[float, float]:
        if not self.own_network:
            return by_connection or (NAN, NAN)
        now = network_bytes(read(f"/proc/{self.pid}/net/dev", 1 << 16))
        before, self._network = self._network or (0, 0), now
        return float(max(0, now[0] - before[0])), float(max(0, now[1] - before[1]))

    def _said(self) -> tuple[float, float, float]:
        """Return the steps done and the seconds lost for data and for saving, in the attempt's own words."""
        if self._attempt.story.accepted is None:
            return NAN, NAN, NAN
        try:
            root = places_of(self._attempt).root
            now = parse_progress(Tree(root, None).read(PROGRESS, MOST_BYTES))
        except (OSError, AgentError):
            return NAN, NAN, NAN
        before, self._progress = self._progress, now or self._progress
        if now is None or before is None:
            return NAN, NAN, NAN
        return (
            _grown(before.step, now.step),
            _grown(before.data_wait_s, now.data_wait_s),
            _grown(before.stall_s, now.stall_s),
        )


def main_pid(attempt: Attempt) -> int:
    """Return the process above all others of the attempt: a container's first one, a warm worker's, or its own."""
    hosted = attempt.story.hosted
    return attempt.container_pid or (hosted.pid if hosted is not None else attempt.pid)


def begins_with_it(attempt: Attempt) -> bool:
    """Tell whether its processes began when the attempt did, so that all they have used was used by it."""
    return main_pid(attempt) == attempt.pid


def _network_of(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def _grown(before: float | None, now: float | None) -> float:
    return NAN if before is None or now is None else max(0.0, float(now - before))
