"""GPUs measured through NVML, the driver's own library.

Decides which of its answers are cheap enough for every round. Profiling counters (GPM; Hopper and newer) are means over
the time since they were last read, so they lose nothing when they are read rarely. NVML's PCIe byte counters
are not used: they have 32 bits, which a full link goes round several times a second. Must not know attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windfall.advisor.samples import NAN, GpuSample, SampledGpu
from windfall.agent.devices.nvml import load_nvml
from windfall.agent.gpus import GpuDevice

#: Profiling metrics by NVML's number, with what one of its units is: they come as percents and MiB a second.
_GPM = {
    2: ("sm_active", 0.01),
    3: ("sm_occupancy", 0.01),
    5: ("tensor_active", 0.01),
    10: ("memory_active", 0.01),
    20: ("pcie_tx_bytes_s", float(1 << 20)),
    21: ("pcie_rx_bytes_s", float(1 << 20)),
}
#: Bytes a second of one lane, by generation, in one direction, after encoding.
_LANE_BYTES_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
#: Temperature and throttling change slowly and cost as much as the rest.
_SLOW_EVERY = 4


def open_nvml_meter() -> NvmlMeter | None:
    """Return the meter, None where there is no driver."""
    nvml = load_nvml()
    return None if nvml is None else NvmlMeter(nvml)


class NvmlMeter:
    """`nvml` is the module pynvml, or something that answers like it."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._devices: dict[str, _Device] = {}

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        """Return what a device is and can do at most."""
        try:
            ceilings = self._device(gpu.parent or gpu.id).ceilings()
        except self._nvml.NVMLError:
            ceilings = {}
        return SampledGpu(gpu.id, gpu.name, gpu.memory_mib, **ceilings)

    def read(self, gpu_id: str, *, closely: bool) -> GpuSample:
        """Return how a device is doing; a device that fails is opened anew at the next reading."""
        try:
            return self._device(gpu_id).read(closely=closely)
        except self._nvml.NVMLError:
            self._devices.pop(gpu_id, None)
            return GpuSample()

    def _device(self, gpu_id: str) -> _Device:
        if gpu_id not in self._devices:
            self._devices[gpu_id] = _Device(self._nvml, self._nvml.nvmlDeviceGetHandleByUUID(gpu_id))
        return self._devices[gpu_id]


class _Device:
    """One handle, with what was found out about it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._turn = 0
        #: Questions that this device does not answer are not asked again.
        self._mute: set[str] = set()
        self._slow: dict[str, float] = {}
        self._close: dict[str, float] = {}
        self._profiler = _Profiler(nvml, handle) if self._supports_profiling() else None

    def ceilings(self) -> dict[str, float]:
        """Return what the device can do at most, as far as it says."""
        nvml, handle = self._nvml, self._handle
        power = self._ask("limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
        clock = self._ask("max", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
        generation = self._ask("generation", lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        width = self._ask("width", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
        lane = _LANE_BYTES_S.get(int(generation)) if generation is not None else None
        link = None if lane is None or width is None else lane * width
        known = {"power_limit_w": power, "sm_clock_max_mhz": clock, "pcie_bytes_s": link}
        return {name: float(value) for name, value in known.items() if value is not None}

    def read(self, *, closely: bool) -> GpuSample:
        """Return one sample."""
        nvml, handle = self._nvml, self._handle
        values: dict[str, float | None] = {
            "memory_bytes": self._ask("memory", self._used_bytes),
            "power_w": self._ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            "sm_clock_mhz": self._ask(
                "clock", lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            ),
        }
        rates = self._ask("rates", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        if rates is not None:
            values |= {"busy": rates.gpu / 100, "memory_active": rates.memory / 100}
        if self._turn % _SLOW_EVERY == 0:
            self._slow = self._read_slowly()
        self._turn += 1
        if closely:
            self._close = self._read_closely()
        known = {**values, **self._slow, **self._close}
        return GpuSample(**{name: value for name, value in known.items() if value is not None})

    def _read_slowly(self) -> dict[str, float]:
        nvml, handle = self._nvml, self._handle
        heat = self._ask(
            "heat", lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        )
        reasons = self._ask("reasons", lambda: float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
        found = {"temperature_c": heat, "throttle": reasons}
        return {name: value for name, value in found.items() if value is not None}

    def _read_closely(self) -> dict[str, float]:
        if self._profiler is not None:
            return dict(self._profiler.read())
        nvml, handle = self._nvml, self._handle
        found = {}
        for name, counter in (
            ("pcie_tx_bytes_s", nvml.NVML_PCIE_UTIL_TX_BYTES),
            ("pcie_rx_bytes_s", nvml.NVML_PCIE_UTIL_RX_BYTES),
        ):
            kilobytes = self._ask(name, lambda c=counter: nvml.nvmlDeviceGetPcieThroughput(handle, c))  # type: ignore[misc] # mypy cannot infer a lambda with a default
            if kilobytes is not None:
                found[name] = kilobytes * 1024.0
        return found

    def _used_bytes(self) -> float:
        """What programs hold; the part that the driver keeps for itself is told apart by newer drivers."""
        nvml = self._nvml
        version = getattr(nvml, "nvmlMemory_v2", None)
        try:
            return float(nvml.nvmlDeviceGetMemoryInfo(self._handle, version=version).used)
        except nvml.NVMLError:
            return float(nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def _supports_profiling(self) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):
            return False

    def _ask(self, question: str, ask: Callable[[], Any]) -> Any | None:
        """An answer, None where there is none; a device that is gone is an error of its own."""
        if question in self._mute:
            return None
        nvml = self._nvml
        try:
            return ask()
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
                self._mute.add(question)
                return None
            if error.value in (nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_INVALID_ARGUMENT):
                return None
            raise


class _Profiler:
    """Two snapshots of a device's profiling counters, taken by turns: what lies between them is a mean."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._old = nvml.nvmlGpmSampleAlloc()
        self._new = nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._old)

    def read(self) -> Mapping[str, float]:
        """Return the means since the last reading."""
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._new)
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_GPM)
        asked.sample1, asked.sample2 = self._old, self._new
        for number, metric in enumerate(_GPM):
            asked.metrics[number].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        self._old, self._new = self._new, self._old
        found = {}
        for number, (name, unit) in enumerate(_GPM.values()):
            metric = asked.metrics[number]
            found[name] = metric.value * unit if metric.nvmlReturn == 0 else NAN
        return found
