"""Which metrics there are: namespace, name, unit, dimensions, and how each follows from a sample.

SageMaker's are those of its training instances, counted as SageMaker does: 100 percent for each core and each GPU.
CWAgent's are the names that the CloudWatch agent gives to what nvidia-smi says. The rest is Windfall's own. Must not
know where samples come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, isnan, nan

from windfall.advisor.samples import GpuSample, Recording, Sample, SampledGpu

TRAINING = "/aws/sagemaker/TrainingJobs"
AGENT = "CWAgent"
OWN = "Windfall"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class JobMetric:
    """A metric of a whole attempt."""

    namespace: str
    name: str
    unit: str
    value: Callable[[Sample, Recording], float]


@dataclass(frozen=True, slots=True)
class GpuMetric:
    """A metric of one GPU of an attempt."""

    namespace: str
    name: str
    unit: str
    value: Callable[[GpuSample, SampledGpu], float]


def _total(values: Sequence[float]) -> float:
    measured = [value for value in values if not isnan(value)]
    return fsum(measured) if measured else nan


def _gpu_memory_percent(sample: GpuSample, gpu: SampledGpu) -> float:
    return 100 * sample.memory_bytes / (gpu.memory_mib * _MIB) if gpu.memory_mib else nan


def _memory_percent(sample: Sample, recording: Recording) -> float:
    return 100 * sample.memory_bytes / (recording.memory_mib * _MIB) if recording.memory_mib else nan


def _all_gpu_memory(sample: Sample, recording: Recording) -> float:
    pairs = zip(sample.gpus, recording.gpus, strict=False)
    return _total([_gpu_memory_percent(sample, gpu) for sample, gpu in pairs])


JOB_METRICS: tuple[JobMetric, ...] = (
    JobMetric(TRAINING, "CPUUtilization", "Percent", lambda s, _: 100 * s.cpu_cores),
    JobMetric(TRAINING, "MemoryUtilization", "Percent", _memory_percent),
    JobMetric(TRAINING, "GPUUtilization", "Percent", lambda s, _: _total([100 * g.busy for g in s.gpus])),
    JobMetric(TRAINING, "GPUMemoryUtilization", "Percent", _all_gpu_memory),
    JobMetric(OWN, "CPUCores", "Count", lambda s, _: s.cpu_cores),
    JobMetric(OWN, "MemoryBytes", "Bytes", lambda s, _: s.memory_bytes),
    JobMetric(OWN, "DiskReadBytes", "Bytes/Second", lambda s, _: s.read_bytes_s),
    JobMetric(OWN, "DiskWriteBytes", "Bytes/Second", lambda s, _: s.write_bytes_s),
    JobMetric(OWN, "NetworkIn", "Bytes/Second", lambda s, _: s.net_rx_bytes_s),
    JobMetric(OWN, "NetworkOut", "Bytes/Second", lambda s, _: s.net_tx_bytes_s),
    JobMetric(OWN, "Steps", "Count", lambda s, _: s.steps),
    JobMetric(OWN, "DataWaitSeconds", "Seconds", lambda s, _: s.data_wait_s),
    JobMetric(OWN, "CheckpointStallSeconds", "Seconds", lambda s, _: s.stall_s),
)
GPU_METRICS: tuple[GpuMetric, ...] = (
    GpuMetric(AGENT, "nvidia_smi_utilization_gpu", "Percent", lambda s, _: 100 * s.busy),
    GpuMetric(AGENT, "nvidia_smi_utilization_memory", "Percent", lambda s, _: 100 * s.memory_active),
    GpuMetric(AGENT, "nvidia_smi_memory_used", "Megabytes", lambda s, _: s.memory_bytes / _MIB),
    GpuMetric(AGENT, "nvidia_smi_memory_total", "Megabytes", lambda _, g: float(g.memory_mib or nan)),
    GpuMetric(AGENT, "nvidia_smi_power_draw", "None", lambda s, _: s.power_w),
    GpuMetric(AGENT, "nvidia_smi_temperature_gpu", "None", lambda s, _: s.temperature_c),
    GpuMetric(AGENT, "nvidia_smi_clocks_current_sm", "None", lambda s, _: s.sm_clock_mhz),
    GpuMetric(OWN, "GPUStreamingMultiprocessorActive", "Percent", lambda s, _: 100 * s.sm_active),
    GpuMetric(OWN, "GPUPCIeIn", "Bytes/Second", lambda s, _: s.pcie_rx_bytes_s),
    GpuMetric(OWN, "GPUPCIeOut", "Bytes/Second", lambda s, _: s.pcie_tx_bytes_s),
)
