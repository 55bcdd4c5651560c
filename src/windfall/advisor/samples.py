"""What is measured of an attempt, every second or two: the values. How they lie in a file is sample_file.py's.

The agent writes them, the daemon reads them, the advisor thinks about them. NaN is "not known", which is never the same
as zero. Decides shapes; must not know bytes or files nor how anything is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU over one span. Shares are between 0 and 1."""

    #: The part of the time in which at least one kernel ran.
    busy: float = NAN
    memory_bytes: float = NAN
    power_w: float = NAN
    sm_clock_mhz: float = NAN
    temperature_c: float = NAN
    #: Into and out of the GPU.
    pcie_rx_bytes_s: float = NAN
    pcie_tx_bytes_s: float = NAN
    #: The part of the SMs' time in which a warp was resident, and how full they were; of profiling counters alone.
    sm_active: float = NAN
    sm_occupancy: float = NAN
    #: How much of its peak bandwidth the memory gave; from the utilisation counter where there is no profiling one.
    memory_active: float = NAN
    tensor_active: float = NAN
    #: NVML's bits for why clocks are held down.
    throttle: float = NAN


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes of one attempt over one span."""

    #: The end of the span.
    at: int
    span_ms: int
    #: Cores' worth of processor time, of all processes and of the busiest single thread.
    cpu_cores: float = NAN
    busiest_thread: float = NAN
    memory_bytes: float = NAN
    processes: float = NAN
    #: From and to storage, page cache not counted.
    read_bytes_s: float = NAN
    write_bytes_s: float = NAN
    #: Its own network traffic, where that can be told from others'.
    net_rx_bytes_s: float = NAN
    net_tx_bytes_s: float = NAN
    #: The host's own, all together.
    host_rx_bytes_s: float = NAN
    host_tx_bytes_s: float = NAN
    #: How many threads on average waited in the kernel without being interruptible, which is mostly for a disk.
    disk_waiters: float = NAN
    #: The part of the span whose scheduling periods were cut short for its vCPU limit, as its cgroup counted them.
    cpu_throttled: float = NAN
    #: What it said of itself: steps, and seconds within the span in which it waited for data, and in which it held its
    #: loop up for saving.
    steps: float = NAN
    data_wait_s: float = NAN
    stall_s: float = NAN
    gpus: tuple[GpuSample, ...] = ()


@dataclass(frozen=True, slots=True)
class SampledGpu:
    """Which device a column of samples is about."""

    id: str
    name: str
    memory_mib: int | None = None
    #: W, MHz and bytes a second that it can do at most; None is not known.
    power_limit_w: float | None = None
    sm_clock_max_mhz: float | None = None
    pcie_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """The samples of one attempt, oldest first, with what they are of."""

    token: str
    vcpus: float
    memory_mib: int
    gpus: tuple[SampledGpu, ...]
    samples: tuple[Sample, ...]
