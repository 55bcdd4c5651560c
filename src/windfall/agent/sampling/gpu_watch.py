"""Asks a meter about devices without ever waiting long for one: a dying device must not stop the others' samples.

A thread asks one device after the other. When it does not come back in time, the device that it stands at is left
alone with it until it does, and another thread asks the rest. Decides who is asked closely; must not know attempts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from windfall.advisor.samples import GpuSample, SampledGpu
from windfall.agent.gpus import GpuDevice
from windfall.agent.sampling.meters import GpuMeter


class GpuWatch:
    """The newest sample of every device."""

    def __init__(self, meter: GpuMeter, patience_s: float = 1.0) -> None:
        self._meter = meter
        self._patience_s = patience_s
        self._facts: dict[str, SampledGpu] = {}
        #: Devices that did not answer, with the thread that still waits for them.
        self._hung: dict[str, _Asking] = {}
        self._turn = 0

    def read(self, gpus: Sequence[GpuDevice], held: Sequence[str]) -> dict[str, GpuSample]:
        """Return a sample of each device that answers; of those that are held, one in each round is asked closely."""
        close_id = held[self._turn % len(held)] if held else None
        self._turn += 1
        self._hung = {gpu_id: asking for gpu_id, asking in self._hung.items() if asking.is_alive()}
        wanted = [gpu for gpu in gpus if gpu.id not in self._hung]
        found: dict[str, GpuSample] = {}
        while wanted:
            asking = _Asking(wanted, lambda gpu: self._ask(gpu, closely=gpu.id == close_id))
            asking.start()
            asking.join(self._patience_s)
            found |= dict(asking.answers)
            if not asking.is_alive():
                break
            asking.abandoned = True
            self._hung[wanted[asking.at].id] = asking
            wanted = wanted[asking.at + 1 :]
        return found

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        """Return what a device is; only what the inventory knows of one that does not answer."""
        if gpu.id not in self._facts:
            self.read([gpu], ())
        return self._facts.get(gpu.id) or SampledGpu(gpu.id, gpu.name, gpu.memory_mib)

    def _ask(self, gpu: GpuDevice, *, closely: bool) -> GpuSample:
        if gpu.id not in self._facts:
            self._facts[gpu.id] = self._meter.facts(gpu)
        return self._meter.read(gpu.id, closely=closely)


class _Asking(threading.Thread):
    """One walk along the devices."""

    def __init__(self, gpus: Sequence[GpuDevice], ask: Callable[[GpuDevice], GpuSample]) -> None:
        super().__init__(name="gpu-meter", daemon=True)
        self._gpus = gpus
        self._ask = ask
        self.answers: dict[str, GpuSample] = {}
        #: Where it stands.
        self.at = 0
        #: Set when nobody waits for it any more.
        self.abandoned = False

    def run(self) -> None:
        """Ask until the end or until abandoned."""
        for number, gpu in enumerate(self._gpus):
            if self.abandoned:
                return
            self.at = number
            self.answers[gpu.id] = self._ask(gpu)
