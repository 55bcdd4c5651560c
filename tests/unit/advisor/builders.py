"""Recordings made by hand: `a_recording(busy=0.2, rx=3e9)` is ten spans of two seconds that are all alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windfall.advisor.samples import GpuSample, Recording, Sample, SampledGpu

V100 = SampledGpu("GPU-1", "Tesla V100-SXM2-16GB", 16384, 300.0, 1530.0, 15.75e9)
H200 = SampledGpu("GPU-1", "NVIDIA H200", 143771, 700.0, 1980.0, 63e9)
#: A host that was measured and does nothing.
QUIET = {
    "cpu_cores": 0.05,
    "busiest_thread": 0.03,
    "memory_bytes": 2e9,
    "processes": 2.0,
    "read_bytes_s": 0.0,
    "write_bytes_s": 0.0,
    "net_rx_bytes_s": 1e4,
    "net_tx_bytes_s": 1e4,
    "disk_waiters": 0.0,
    "cpu_throttled": 0.0,
}
SPAN_MS = 2000


def a_gpu(busy: float, **more: float) -> GpuSample:
    """A GPU with counters, which works in large kernels unless something else is said."""
    usual = {
        "memory_bytes": 5e9,
        "power_w": 90.0 + 350.0 * busy,
        "pcie_rx_bytes_s": 2e7,
        "pcie_tx_bytes_s": 1e7,
        "sm_active": 0.9 * busy,
        "sm_occupancy": 0.4 * busy,
        "memory_active": 0.25 * busy,
        "tensor_active": 0.3 * busy,
    }
    return GpuSample(busy=busy, **{**usual, **more})


def a_recording(
    *gpus: GpuSample, device: SampledGpu = H200, spans: int = 10, vcpus: float = 8.0, **host: Any
) -> Recording:
    """Equal spans; what is not said of the host is quiet."""
    return recording_of([Sample(0, SPAN_MS, **{**QUIET, **host}, gpus=gpus)] * spans, device, vcpus)


def recording_of(samples: list[Sample], device: SampledGpu = H200, vcpus: float = 8.0) -> Recording:
    """Samples one after the other, with their times."""
    timed = tuple(replace(sample, at=1_000_000 + SPAN_MS * (n + 1)) for n, sample in enumerate(samples))
    devices = tuple(replace(device, id=f"GPU-{n}") for n in range(len(samples[0].gpus)))
    return Recording("job#1", vcpus, 61_000, devices, timed)


def a_span(*gpus: GpuSample, **host: Any) -> Sample:
    """One span of a host that is quiet but for what is said."""
    return Sample(0, SPAN_MS, **{**QUIET, **host}, gpus=gpus)
