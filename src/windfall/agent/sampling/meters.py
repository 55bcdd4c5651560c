"""What GPUs say of themselves: the port, and the meters that need no driver.

A meter is asked by one thread at a time and may block for as long as a dying device likes (gpu_watch.py sees to that).
What a device does not tell is NaN. A GPU that several attempts share reports all of them together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from windfall.advisor.samples import GpuSample, SampledGpu
from windfall.agent.devices.readings import MEASURED
from windfall.agent.gpus import GpuDevice

_FACTS = ("power_limit_w", "sm_clock_max_mhz", "pcie_bytes_s")


class GpuMeter(Protocol):
    """A way to measure GPUs."""

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        """Return what a device is, with what it can do at most where that is known."""
        ...

    def read(self, gpu_id: str, *, closely: bool) -> GpuSample:
        """Return how a device is doing; `closely` adds what is costly to ask."""
        ...


class NoMeter:
    """For devices that are only names."""

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        """Return what the inventory knows."""
        return SampledGpu(gpu.id, gpu.name, gpu.memory_mib)

    def read(self, gpu_id: str, *, closely: bool) -> GpuSample:  # noqa: ARG002 - the port has them
        """Return that nothing is known."""
        return GpuSample()


class RecordedMeter:
    """Values from the file that the devices come from (`gpus = recorded:PATH`).

    A device's `meter` maps members of GpuSample to a number, or to a list of numbers of which each reading takes the
    next, from the start again after the last.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed_ns = -1
        self._devices: dict[str, dict[str, Any]] = {}
        self._readings: dict[str, int] = {}

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        """Return what inventory and file know."""
        recorded = self._device(gpu.id)
        facts = {name: _number(recorded.get(name)) for name in _FACTS}
        return SampledGpu(gpu.id, gpu.name, gpu.memory_mib, **facts)

    def read(self, gpu_id: str, *, closely: bool) -> GpuSample:  # noqa: ARG002 - nothing is costly here
        """Return the next values of the file."""
        meter = self._device(gpu_id).get("meter")
        turn = self._readings.get(gpu_id, 0)
        self._readings[gpu_id] = turn + 1
        if not isinstance(meter, Mapping):
            return GpuSample()
        values = {name: _at(value, turn) for name, value in meter.items() if name in MEASURED}
        return GpuSample(**{name: value for name, value in values.items() if value is not None})

    def _device(self, gpu_id: str) -> dict[str, Any]:
        try:
            changed_ns = os.stat(self._path).st_mtime_ns
            if changed_ns != self._changed_ns:
                with open(self._path, "rb") as file:
                    document = msgspec.json.decode(file.read())
                listed = document.get("gpus", []) if isinstance(document, dict) else document
                self._devices = {str(one["id"]): one for one in listed}
                self._changed_ns = changed_ns
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            pass  # Half written, or wrong: the listing of devices reports it; the earlier values stay.
        return self._devices.get(gpu_id, {})


def open_meter(setting: str, *, real: bool) -> GpuMeter:
    """Return the meter for the setting `gpus`; `real` says whether a driver's devices were found."""
    kind, _, path = setting.partition(":")
    if kind == "recorded":
        return RecordedMeter(path)
    if real:
        from windfall.agent.sampling.nvml import open_nvml_meter  # Only where there is a driver: it is large.

        found = open_nvml_meter()
        if found is not None:
            return found
    return NoMeter()


def _at(value: Any, turn: int) -> float | None:
    if isinstance(value, list):
        return _number(value[turn % len(value)]) if value else None
    return _number(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
