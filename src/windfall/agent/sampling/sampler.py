"""The agent's sampling thread: every second or two it measures all attempts, all GPUs and the host, and writes it down.

Off the agent's loop, so that neither a slow device nor a slow disk delays a start. Attempts are measured when they are
older than a moment: a short job pays nothing. Decides when and which; must not know how anything is measured. A failure
here costs a round of samples, never the agent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from windfall.advisor.sample_file import Header
from windfall.advisor.samples import GpuSample, Sample
from windfall.agent.attempt import Attempt
from windfall.agent.attempt_files import samples_path
from windfall.agent.gpus import GpuDevice
from windfall.agent.sampling.attempt_meter import AttemptMeter, Surroundings, begins_with_it, main_pid
from windfall.agent.sampling.gpu_watch import GpuWatch
from windfall.agent.sampling.host import HostMeter, HostUsage
from windfall.agent.sampling.meters import GpuMeter, open_meter
from windfall.agent.sampling.ownership import Ownership
from windfall.agent.sampling.sockets import Traffic
from windfall.agent.sampling.writing import SampleFile
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say

MACHINE_TOKEN = "machine"  # noqa: S105 - a name, no secret
#: Younger attempts are left alone.
GROWN_MS = 1_500
#: How often the host is measured while nothing runs.
IDLE_EVERY_S = 10.0


class _Watched:
    """One attempt under measurement."""

    __slots__ = ("file", "gpu_ids", "looked_at", "meter")

    def __init__(self, attempt: Attempt, gpu_ids: Sequence[str], file: SampleFile) -> None:
        self.meter = AttemptMeter(attempt)
        self.gpu_ids = gpu_ids
        self.file = file
        #: When its counters were last read; None when they say nothing yet.
        self.looked_at: int | None = None
        if not file.resumed and begins_with_it(attempt) and attempt.spawned is not None:
            self.looked_at = attempt.spawned.at


class Sampler:
    """All that is sampled on this machine."""

    def __init__(
        self,
        settings: AgentSettings,
        attempts: Mapping[str, Attempt],
        gpus: Sequence[GpuDevice],
        vcpus: float,
        memory_mib: int,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        meter: GpuMeter | None = None,
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._gpus = gpus
        self._size = (vcpus, memory_mib)
        self._clock_ms = clock_ms
        self._meter = meter
        self._watch: GpuWatch | None = None
        self._host = HostMeter()
        self._ownership = Ownership()
        self._traffic = Traffic()
        self._watched: dict[str, _Watched] = {}
        self._machine_file: SampleFile | None = None
        self._looked_at: int | None = None
        self._complained: set[str] = set()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless sampling is turned off."""
        if self._settings.sample_every_s > 0:
            self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, waiting only a moment for a round under way."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        every_s = self._settings.sample_every_s
        due = time.monotonic() + every_s
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            due = max(due + every_s, time.monotonic())
            try:
                self.round()
            except Exception as error:  # noqa: BLE001 - the edge of a loop: measuring must never hurt what is measured
                self._complain("round", f"sampling failed: {type(error).__name__}: {error}")

    def round(self) -> None:
        """Measure everything once."""
        now = self._clock_ms()
        grown = self._grown(now)
        idle_for_ms = now - (self._looked_at or 0)
        if not grown and (self._settings.machine_samples is None or idle_for_ms < IDLE_EVERY_S * 1000):
            self._watched.clear()
            return
        span_ms = 0 if self._looked_at is None else idle_for_ms
        self._looked_at = now
        host = self._host.measure(span_ms / 1000)
        self._keep(grown)
        held = sorted({gpu_id for watched in self._watched.values() for gpu_id in watched.gpu_ids})
        gpus = self._read_gpus(held)
        if grown:
            self._measure_attempts(now, host, gpus)
        self._measure_machine(now, span_ms, host, gpus)

    def _grown(self, now: int) -> dict[str, Attempt]:
        """The attempts that are worth a look. The loop changes the table meanwhile; copying it is one step."""
        found = {}
        for attempt in list(self._attempts.values()):
            spawned = attempt.spawned
            if attempt.running and spawned is not None and now - spawned.at >= GROWN_MS:
                found[attempt.token] = attempt
        return found

    def _keep(self, grown: dict[str, Attempt]) -> None:
        """Watch what runs and forget what has ended; one whose processes are others than before begins anew."""
        for token in [token for token in self._watched if token not in grown]:
            del self._watched[token]
        for token, attempt in grown.items():
            known = self._watched.get(token)
            if known is not None and known.meter.pid == main_pid(attempt):
                continue
            try:
                self._watched[token] = self._begin(attempt)
            except OSError as error:
                self._complain(token, f"{token}: no samples: {error}")

    def _begin(self, attempt: Attempt) -> _Watched:
        intended = attempt.intended
        by_id = {gpu.id: gpu for gpu in self._gpus}
        gpus = [by_id[gpu_id] for gpu_id in intended.gpu_ids if gpu_id in by_id]
        facts = tuple(self._gpu_watch().facts(gpu) for gpu in gpus)
        header = Header(attempt.token, intended.vcpus, intended.memory_mib, facts)
        file = SampleFile(samples_path(intended.log_path), header)
        return _Watched(attempt, [gpu.id for gpu in gpus], file)

    def _measure_attempts(self, now: int, host: HostUsage, gpus: dict[str, GpuSample]) -> None:
        roots = [watched.meter.pid for watched in self._watched.values()]
        processes = self._ownership.processes(roots)
        sharing = {
            token: [process.pid for process in processes.get(watched.meter.pid, ())]
            for token, watched in self._watched.items()
            if not watched.meter.own_network
        }
        carried = self._traffic.measure(sharing)
        for token, watched in self._watched.items():
            samples = tuple(gpus.get(gpu_id, GpuSample()) for gpu_id in watched.gpu_ids)
            began = watched.looked_at
            span_ms = max(1, now - began) if began is not None else 1
            around = Surroundings(now, span_ms, host, (carried or {}).get(token), samples)
            sample = watched.meter.measure(processes.get(watched.meter.pid, ()), around)
            watched.looked_at = now
            if began is not None:
                self._add(token, watched.file, sample)

    def _measure_machine(self, now: int, span_ms: int, host: HostUsage, gpus: dict[str, GpuSample]) -> None:
        path = self._settings.machine_samples
        if path is None or not span_ms:
            return
        facts = tuple(self._gpu_watch().facts(gpu) for gpu in self._gpus)
        if self._machine_file is None or self._machine_file.header.gpus != facts:
            self._machine_file = SampleFile(path, Header(MACHINE_TOKEN, *self._size, facts))
        sample = Sample(
            at=now,
            span_ms=span_ms,
            cpu_cores=host.cpu_cores,
            memory_bytes=host.memory_bytes,
            processes=host.processes,
            read_bytes_s=host.read_bytes_s,
            write_bytes_s=host.write_bytes_s,
            net_rx_bytes_s=host.rx_bytes_s,
            net_tx_bytes_s=host.tx_bytes_s,
            host_rx_bytes_s=host.rx_bytes_s,
            host_tx_bytes_s=host.tx_bytes_s,
            disk_waiters=host.disk_waiters,
            gpus=tuple(gpus.get(gpu.id, GpuSample()) for gpu in facts),
        )
        self._add(MACHINE_TOKEN, self._machine_file, sample)

    def _read_gpus(self, held: Sequence[str]) -> dict[str, GpuSample]:
        return self._gpu_watch().read(list(self._gpus), held) if self._gpus else {}

    def _gpu_watch(self) -> GpuWatch:
        if self._watch is None:
            real = any(not gpu.simulated for gpu in self._gpus)
            self._watch = GpuWatch(self._meter or open_meter(self._settings.gpus, real=real))
        return self._watch

    def _add(self, token: str, file: SampleFile, sample: Sample) -> None:
        try:
            file.add(sample)
        except OSError as error:
            self._complain(token, f"{token}: a sample cannot be written: {os.strerror(error.errno or 0)}")

    def _complain(self, about: str, text: str) -> None:
        """Say it once: a full disk must not fill with words about it."""
        if about not in self._complained:
            self._complained.add(about)
            say(text)
